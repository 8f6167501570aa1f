# SPDX-License-Identifier: Apache-2.0
"""The wheel's long description: README.md without its picture and its links into the checkout, which would lead nowhere on the page
of an index. Read by scikit-build-core.

The project has no public address yet. Once it has one, relative links become absolute here, and `urls` of both pyproject.toml name it.
"""
from __future__ import annotations

import pathlib
import re

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
NOTE = "Names of files in brackets are those of the project's repository, which has no public address yet.\n\n"


def described(text: str) -> str:
    def named(link: re.Match[str]) -> str:
        words, target = link.groups()
        path = target.partition("#")[0]
        if ":" in target:
            return link[0]
        return words if not path or path == words else f"{words} (`{path}`)"

    text = re.sub(r"(?m)^!\[[^\]]*\]\([^)]*\)\n\n", "", text)
    title, rest = text.split("\n\n", 1)
    parts = re.split(r"(?ms)(^```.*?^```$)", rest)
    parts = [part if part.startswith("```") else re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", named, part) for part in parts]
    return f"{title}\n\n{NOTE}" + "".join(parts)


def dynamic_metadata(_settings: object, _project: object) -> dict[str, object]:
    return {"readme": {"text": described(README.read_text()), "content-type": "text/markdown"}}
