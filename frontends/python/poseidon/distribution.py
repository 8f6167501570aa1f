# SPDX-License-Identifier: Apache-2.0
"""Where this package's files are, and what pip knows of it: the version that it installed, and whom else the name poseidon
belongs to."""
from __future__ import annotations

import os
import pathlib
from importlib import metadata

NAME = "poseidon-train"
NAMESAKE = "poseidon"  # of somebody else's, in the package index


def places(variable: str, beside: str, built: str) -> list[str]:
    """Where a file of ours may be, the first that is there counts: where the environment's `variable` says, and nowhere
    else; `beside` the package's modules, as a wheel has it; `built` in its checkout's build/release."""
    named = os.environ.get(variable)
    if named:
        return [named]
    here = pathlib.Path(__file__).resolve().parent
    return [str(here / beside), str(here.parents[2] / "build" / "release" / built)]


def find(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def version() -> str | None:
    """The version of the distribution whose file this is; None in a checkout, whose version is its library's."""
    ours = find(NAME)
    here = pathlib.Path(__file__).resolve()
    installed = ours is not None and pathlib.Path(str(ours.locate_file("poseidon/distribution.py"))).resolve() == here
    return ours.version if ours is not None and installed else None


def namesake() -> str | None:
    """A sentence where the other distribution is installed as well; else None."""
    other = find(NAMESAKE)
    if other is None:
        return None
    return (f"an unrelated distribution '{NAMESAKE}' {other.version} is installed and may bring a package of the same "
            f"name, expected {NAME} alone: pip uninstall {NAMESAKE}, then pip install --force-reinstall poseidon_train-*.whl")
