# SPDX-License-Identifier: Apache-2.0
"""A model's files, which all workers may write at one path, at once: each is whole at any moment. All of them write the same."""
from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import Any


def whole(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`plain`, a model's save or save_weights, which writes beside the path and then takes its place."""
    def save(filepath: Any, overwrite: bool = True, *more: Any, **words: Any) -> Any:
        path = os.fspath(filepath) if isinstance(filepath, (str, os.PathLike)) else ""
        if more or not is_one_file(path, words) or not overwrite and os.path.exists(path):
            return plain(filepath, overwrite, *more, **words)
        folder, name = os.path.split(path)
        beside = os.path.join(folder, f".{secrets.token_hex(4)}-{name}")
        try:
            plain(beside, overwrite=True, **words)
            os.replace(beside, path)
        finally:
            if os.path.exists(beside):
                os.remove(beside)
        return None
    return save


def is_one_file(path: str, words: dict[str, Any]) -> bool:
    """Of this machine, and not a folder of several."""
    return path.endswith((".keras", ".h5", ".hdf5")) and "://" not in path and not os.path.isdir(path) and \
        words.get("zipped") is not False and words.get("max_shard_size") is None
