# SPDX-License-Identifier: Apache-2.0
"""Pictures of nets, as pycaffe's draw: by Graphviz, where it is installed."""
from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Any

from ..errors import PoseidonError
from .net import Path


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def get_dot(caffe_net: Any, rankdir: str = "LR", phase: int | None = None) -> str:
    """The graph of the NetParameter `caffe_net` in Graphviz's language, `rankdir` its direction, with the layers of `phase` alone, or of
    all."""
    lines = [f"digraph {_quoted(caffe_net.name or 'Net')} {{", f"rankdir={rankdir};", "node [shape=box];"]
    for index, layer in enumerate(caffe_net.layer):
        if phase is not None and not _is_in(layer, phase):
            continue
        node = f"layer{index}"
        lines.append(f"{node} [label={_quoted(f'{layer.name} ({layer.type})')}, style=filled, fillcolor=lightblue];")
        lines += [f"{_quoted('blob ' + bottom)} -> {node};" for bottom in layer.bottom]
        lines += [f"{_quoted('blob ' + top)} [label={_quoted(top)}, shape=octagon]; {node} -> {_quoted('blob ' + top)};"
                  for top in layer.top]
    return "\n".join([*lines, "}"]) + "\n"


def _is_in(layer: Any, phase: int) -> bool:
    def holds(rule: Any) -> bool:
        return not rule.HasField("phase") or bool(rule.phase == phase)
    if len(layer.include):
        return any(map(holds, layer.include))
    return not any(rule.HasField("phase") and rule.phase == phase for rule in layer.exclude)


def draw_net(caffe_net: Any, rankdir: str, ext: str = "png", phase: int | None = None) -> bytes:
    """The picture of the NetParameter `caffe_net` in the format `ext`; `rankdir`, `phase`: as get_dot has them."""
    dot = get_dot(caffe_net, rankdir, phase)
    program = shutil.which("dot")
    if program is None:
        raise PoseidonError("drawing needs the program dot of Graphviz, which is not installed; `poseidon draw_net` draws without it",
                            "UNAVAILABLE")
    return subprocess.run([program, f"-T{ext}"], input=dot.encode(), capture_output=True, check=True).stdout


def draw_net_to_file(caffe_net: Any, filename: Path, rankdir: str = "LR", phase: int | None = None) -> None:
    """Writes the picture of the NetParameter `caffe_net` to `filename`, whose ending says the format; `rankdir`, `phase`: as get_dot has
    them."""
    path = pathlib.Path(filename)
    path.write_bytes(draw_net(caffe_net, rankdir, path.suffix.removeprefix(".") or "png", phase))
