# SPDX-License-Identifier: Apache-2.0
"""What the trainer's wheel says of versions, from the places where they are: its own, the core's, and torch's. Read by
scikit-build-core."""
from __future__ import annotations

import pathlib
import re
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[3]


def found(pattern: str, file: str) -> str:
    match = re.search(pattern, (ROOT / file).read_text())
    if match is None:
        raise RuntimeError(f"{file} has no {pattern}")
    return match[1]


def dynamic_metadata(_settings: object, _project: object) -> dict[str, Any]:
    version = found(r"project\(poseidon VERSION ([0-9.]+)", "CMakeLists.txt")
    minor = found(r"torch==(\d+\.\d+)\.", "scripts/dependencies.txt")
    # Tensors have another layout in every minor version of torch.
    return {"version": version, "dependencies": [f"poseidon-train=={version}", f"torch=={minor}.*"]}
