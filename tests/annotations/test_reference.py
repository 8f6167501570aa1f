# SPDX-License-Identifier: Apache-2.0
"""What the package exports has docstrings, and they name every parameter; `make site` makes a reference of them, which tests/site reads."""
import inspect
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "site"), str(ROOT / "frontends" / "python")]

for package in ("torch", "lightning", "accelerate", "transformers"):
    pytest.importorskip(package, reason=f"{package} is not installed for this interpreter")

import reference  # noqa: E402

EXPORTED = dict(reference.exported())
CLASSES = {name: thing for name, thing in EXPORTED.items() if isinstance(thing, type)}


def documented():
    """(name, docstring, the callable whose parameters it has to name or None)"""
    for name, thing in EXPORTED.items():
        if name not in CLASSES:
            yield name, thing.__doc__, thing
            continue
        made = "__init__" in vars(thing) and name not in reference.RETURNED
        yield name, vars(thing)["__doc__"], thing.__init__ if made else None
        for member in reference.INTERFACE[name]:
            found = inspect.getattr_static(thing, member)
            yield f"{name}.{member}", found.__doc__, found if callable(found) else None


DOCUMENTED = {name: (text, call) for name, text, call in documented()}


def test_every_class_says_what_its_interface_is():
    assert set(CLASSES) == set(reference.INTERFACE)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_public_name_has_a_docstring_that_names_every_parameter(name):
    text, call = DOCUMENTED[name]
    assert text, f"{name} has no docstring"
    parameters = inspect.signature(call).parameters.values() if call else ()
    for parameter in parameters:
        if parameter.name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        assert re.search(rf"`{parameter.name}\b", text), f"the docstring of {name} does not name `{parameter.name}`"

