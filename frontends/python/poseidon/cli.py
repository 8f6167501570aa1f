# SPDX-License-Identifier: Apache-2.0
"""The `poseidon` command is a program of its own, which this one becomes. It becomes Python again for `doctor` and `demo`
(tools/run/python_commands.cc), by the interpreter that POSEIDON_PYTHON names.

The program beside the package has no trainer; that of poseidon-train-caffe (trainer.py), and a checkout's, where `make build`
made it, have every command.
"""
from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn

from . import distribution, trainer


def become(program: str, words: list[str], libraries: pathlib.Path | None = None) -> NoReturn:
    """Goes on as `program`, which finds its libraries in one more folder."""
    environment = {**os.environ, "POSEIDON_PYTHON": sys.executable, "POSEIDON_COMMAND": own_command()}
    if libraries is not None:
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{libraries}:{before}" if before else str(libraries)
    sys.stdout.flush()
    os.execve(program, [program, *words], environment)


def called_as() -> str:
    """The last part of the name by which this command was called, which may be that of a link to it."""
    return pathlib.Path(sys.argv[0]).name


def own_command() -> str:
    """The file to which `poseidon links` makes links; empty where this was started in another way."""
    command = os.path.abspath(sys.argv[0])
    return os.path.realpath(command) if called_as() in ("poseidon", "caffe", *trainer.PROGRAMS) and os.access(command, os.X_OK) else ""


def fail(sentence: str) -> int:
    print(f"poseidon: {sentence}", file=sys.stderr)
    return 1


def main(arguments: list[str] | None = None) -> int:
    """Runs the command that `arguments` (those of the process) say, and returns its exit code. Most commands replace this
    process and do not return."""
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None and called_as() in trainer.PROGRAMS:
        words = [called_as(), *words]
    places = distribution.places("POSEIDON_PROGRAM", "bin/poseidon", "bin/poseidon")
    program = next((path for path in places if os.access(path, os.X_OK)), None)
    if program is None:
        return fail("the program is missing, expected a wheel of poseidon-train, or a checkout after make build")
    alone = words[:1] in (["run"], ["rank"], ["doctor"], ["demo"]) or trainer.is_of_script(words)
    if alone or (found := trainer.find()) is None:
        become(program, words)
    if not found.trouble:
        become(str(found.program), words, found.libraries)
    if trainer.is_needed(words):
        return fail(found.trouble)
    become(program, words)


if __name__ == "__main__":
    sys.exit(main())
