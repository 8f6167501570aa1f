# SPDX-License-Identifier: Apache-2.0
"""Workers that meet by themselves, as torchrun's do on one host, each a program of its own: for tests of several front ends."""
import os
import pathlib
import subprocess

FRONT_END = pathlib.Path(__file__).resolve().parents[2] / "frontends" / "python"
LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "POSEIDON_TOKEN_FILE", "POSEIDON_PORT")


def start(python, folder, workers, *command, **variables):
    """Starts `command` once for each rank, in `folder`. Variables that are None are not set."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}

    def start_one(rank):
        own = {**clean, "PYTHONPATH": str(FRONT_END), "TMPDIR": str(folder), "RANK": str(rank), "WORLD_SIZE": str(workers),
               "LOCAL_WORLD_SIZE": str(workers), **variables}
        return subprocess.Popen([python, "-B", *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={name: value for name, value in own.items() if value is not None})
    return [start_one(rank) for rank in range(workers)]


def ended(processes, patience):
    """What they said on standard error, by rank, once all have ended; `patience` in seconds, for each."""
    return [errors for _, errors in said(processes, patience)]


def said(processes, patience):
    """The same with standard output before it."""
    try:
        return [process.communicate(timeout=patience) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
