# SPDX-License-Identifier: Apache-2.0
"""What the reference of the Python package documents: all that a module exports, and of a class what INTERFACE lists.

tests/annotations/test_reference.py requires that all of it has docstrings which name every parameter, tests/site that all of it is in the site.
"""
import ast
import importlib
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "frontends" / "python"
IMPORTED = ("poseidon", "poseidon.torch", "poseidon.lightning", "poseidon.accelerate", "poseidon.transformers")
READ = ("poseidon.keras", "poseidon.tensorflow")  # whose framework may be in no environment of a test: their sources are read
MODULES = IMPORTED + READ

# The members of exported classes that users call. The others serve the package itself, or a framework that calls them.
INTERFACE = {
    "poseidon.PoseidonError": (),
    "poseidon.Session": ("abort", "barrier", "broadcast", "broadcast_bytes", "broadcast_number", "close", "differing", "hosts",
                         "leave", "local_rank", "member_name", "record", "sum", "take_trace"),
    "poseidon.torch.DistributedDataParallel": ("join", "no_sync", "register_comm_hook"),
    "poseidon.torch.Exchange": ("no_sync", "plan", "plan_text", "synchronize"),
    "poseidon.torch.PoseidonError": (),
    "poseidon.lightning.Strategy": ("all_gather", "barrier", "broadcast", "reduce"),
    "poseidon.accelerate.Accelerator": ("free_memory", "no_sync", "prepare_model"),
    "poseidon.transformers.Trainer": (),
    "poseidon.transformers.TrainingArguments": (),
}
BACKENDS = {"poseidon.keras": {"On TensorFlow": "poseidon.keras.on_tensorflow", "On torch": "poseidon.keras.on_torch"}}  # whose functions it has
RETURNED = ("poseidon.Session", "poseidon.torch.Exchange")  # which functions return, and users do not make


def exported():
    """(name, object) of all that the modules export which a test imports."""
    for module in map(importlib.import_module, IMPORTED):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def file_of(module):
    path = PACKAGE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def names(module):
    """What a module exports, by its source."""
    [found] = [node.value for node in ast.parse(file_of(module).read_text()).body
               if isinstance(node, ast.Assign) and [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]]
    return ast.literal_eval(found)


def groups(module):
    """(title, names with their modules) of what a module exports. What has one implementation has no title."""
    exported_names = sorted(names(module), key=str.lower)
    backends = BACKENDS.get(module, {})
    theirs = set().union(*map(names, backends.values()))
    yield "", [f"{module}.{name}" for name in exported_names if name not in theirs]
    for title, backend in backends.items():
        yield title, [f"{backend}.{name}" for name in exported_names if name in theirs]
