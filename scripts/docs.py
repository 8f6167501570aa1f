#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference of the Python package as HTML, from its docstrings, by pdoc.

  scripts/docs.py [FOLDER]        default: build/docs

What is documented is what a module exports, and of a class what INTERFACE lists. tests/annotations/test_reference.py
requires that all of it has docstrings.
"""
import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODULES = ("poseidon", "poseidon.torch", "poseidon.lightning", "poseidon.accelerate", "poseidon.transformers")

# The members of exported classes that users call. The others serve the package itself, or a framework that calls them.
INTERFACE = {
    "poseidon.PoseidonError": (),
    "poseidon.Session": ("abort", "barrier", "broadcast", "broadcast_bytes", "broadcast_number", "close", "differing", "hosts",
                         "leave", "local_rank", "member_name", "sum", "take_trace"),
    "poseidon.torch.DistributedDataParallel": ("join", "no_sync", "register_comm_hook"),
    "poseidon.torch.Exchange": ("no_sync", "plan", "plan_text", "synchronize"),
    "poseidon.torch.PoseidonError": (),
    "poseidon.lightning.Strategy": ("all_gather", "barrier", "broadcast", "reduce"),
    "poseidon.accelerate.Accelerator": ("free_memory", "no_sync", "prepare_model"),
    "poseidon.transformers.Trainer": (),
    "poseidon.transformers.TrainingArguments": (),
}
RETURNED = ("poseidon.Session", "poseidon.torch.Exchange")  # which functions return, and users do not make


def exported():
    """(name, object) of all that the modules export."""
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def keep_interface(kind, members):
    """Leaves these members alone in a class, of those that it and the package's classes below it define."""
    inherited = [base for base in kind.__mro__[1:] if base.__module__.split(".")[0] == "poseidon"]
    for base in inherited:
        for member in members:
            if member in vars(base) and member not in vars(kind):
                setattr(kind, member, vars(base)[member])
    for name in [name for name in vars(kind) if not name.startswith("_") and name not in members]:
        delattr(kind, name)


def main(folder=ROOT / "build" / "docs"):
    import pdoc.render
    for name, thing in exported():
        if isinstance(thing, type):
            keep_interface(thing, INTERFACE[name])
            if "__init__" in vars(thing):  # whose arguments the class' docstring has
                if name in RETURNED:
                    del thing.__init__
                else:
                    thing.__init__.__doc__ = "The arguments are those named above."  # else pdoc shows what a foreign base says
    pdoc.render.configure(include_undocumented=False, show_source=False)
    pdoc.pdoc(*MODULES, output_directory=pathlib.Path(folder))
    print(f"{folder}/index.html")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "frontends" / "python"))
    main(*sys.argv[1:])
