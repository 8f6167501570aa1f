# SPDX-License-Identifier: Apache-2.0
"""What the package exports has docstrings, and they name every parameter; `make docs` makes a reference of them."""
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "frontends" / "python")]

for package in ("torch", "lightning", "accelerate", "transformers"):
    pytest.importorskip(package, reason=f"{package} is not installed for this interpreter")

import docs  # noqa: E402

EXPORTED = dict(docs.exported())
CLASSES = {name: thing for name, thing in EXPORTED.items() if isinstance(thing, type)}


def documented():
    """(name, docstring, the callable whose parameters it has to name or None)"""
    for name, thing in EXPORTED.items():
        if name not in CLASSES:
            yield name, thing.__doc__, thing
            continue
        made = "__init__" in vars(thing) and name not in docs.RETURNED
        yield name, vars(thing)["__doc__"], thing.__init__ if made else None
        for member in docs.INTERFACE[name]:
            found = inspect.getattr_static(thing, member)
            yield f"{name}.{member}", found.__doc__, found if callable(found) else None


DOCUMENTED = {name: (text, call) for name, text, call in documented()}


def test_every_class_says_what_its_interface_is():
    assert set(CLASSES) == set(docs.INTERFACE)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_public_name_has_a_docstring_that_names_every_parameter(name):
    text, call = DOCUMENTED[name]
    assert text, f"{name} has no docstring"
    parameters = inspect.signature(call).parameters.values() if call else ()
    for parameter in parameters:
        if parameter.name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        assert re.search(rf"`{parameter.name}\b", text), f"the docstring of {name} does not name `{parameter.name}`"


def test_the_reference_is_made(tmp_path):
    pytest.importorskip("pdoc", reason="pdoc is not installed for this interpreter")
    run = subprocess.run([sys.executable, "-B", ROOT / "scripts" / "docs.py", tmp_path], capture_output=True, text=True)
    assert run.returncode == 0 and not run.stderr, run.stderr
    for name in DOCUMENTED:
        module = next(module for module in reversed(docs.MODULES) if name.startswith(module + "."))
        page = (tmp_path / (module.replace(".", "/") + ".html")).read_text()
        assert f'id="{name.removeprefix(module + ".")}"' in page, f"{name} is not in the reference"
