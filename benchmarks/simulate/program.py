# SPDX-License-Identifier: Apache-2.0
"""The program that plays a job on virtual time."""
import json
import pathlib
import subprocess

from benchmarks.performance.standalone import Failed

SIMULATE = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "poseidon_simulate"


def play(profile, workers, rate, *options, what):
    """What it found, as a JSON object. `profile`: a JSON text. Raises Failed, which begins with `what`."""
    words = [SIMULATE, "--profile", "-", "--workers", workers, "--rate", rate, *options]
    done = subprocess.run([str(word) for word in words], input=profile, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{what}: {done.stderr.strip()}")
    return json.loads(done.stdout)
