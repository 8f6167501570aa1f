# SPDX-License-Identifier: Apache-2.0
"""Profiles that `poseidon profile` measures of scripts, for tests of several front ends."""
import json
import os
import pathlib
import subprocess

import programs

PROGRAM = os.environ.get("POSEIDON_PROGRAM", "")


def clean(**variables):
    names = {name: value for name, value in os.environ.items() if not name.startswith((*programs.LAUNCHERS, "POSEIDON_PROFILE"))}
    return {**names, "PYTHONPATH": str(programs.FRONT_END), **variables}


def profile(python, folder, *words, patience, **variables):
    """How `poseidon profile` ended, for which `python` is the first in PATH."""
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    shell = binaries / "python"
    shell.write_text(f'#!/bin/sh\nexec "{python}" -B "$@"\n')
    shell.chmod(0o700)
    return subprocess.run([PROGRAM, "profile", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=patience,
                          env=clean(PATH=f"{binaries}:{os.environ['PATH']}", **variables))


def planned(folder, file, *arguments):
    """By layer: its scheme, and the bytes that a worker sends, where two workers send the fewest bytes."""
    out = pathlib.Path(folder, "plan.json")
    done = subprocess.run([PROGRAM, "plan", file, "--workers", "2", "--rate", "1G", "--policy", "bytes", "--json", out, *arguments],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    layers = json.loads(out.read_text())["prediction"]["plan"]["layers"]
    return {layer["layer"]: [layer["scheme"], layer["predicted_bytes"]["sent"]] for layer in layers}


def of_job(session, model, layers):
    """The same of a job, as `planned` has it."""
    known = {layer.name: session.layer_plan(model, layer.id) for layer in layers}
    return {name: [plan.scheme_name.decode(), plan.bytes_sent] for name, plan in known.items()}
