# SPDX-License-Identifier: Apache-2.0
"""Workers that meet by themselves, as torchrun's do on one host, each a program of its own: for tests of several front ends."""
import os
import pathlib
import secrets
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FRONT_END = HERE.parents[1] / "frontends" / "python"
LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "POSEIDON_TOKEN_FILE", "POSEIDON_PORT")


class Prepared:
    """A Python that has imported `modules`, in an environment with `variables`, before a program starts (prepared.py). It lives
    from the first program to the end of this process."""

    def __init__(self, python, *modules, **variables):
        self.python, self.modules, self.variables = python, modules, variables
        self.servers = []

    def command(self):
        """The words before a program's file."""
        if not self.servers:
            self.folder = tempfile.TemporaryDirectory(prefix="p-")  # a socket's name is short
            for number in range(2):
                self.servers.append(subprocess.Popen(
                    [self.python, "-B", HERE / "prepared.py", "serve", f"{self.folder.name}/{number}", *self.modules],
                    env={**os.environ, **self.variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            for server in self.servers:
                assert server.stdout.readline() == b"listens\n"
        return [self.python, "-I", "-S", "-B", HERE / "prepared.py", "run", self.folder.name]


def start(python, folder, workers, *command, **variables):
    """Starts `command` once for each rank, in `folder`, by an interpreter or a Prepared one. Variables that are None are not
    set."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    if isinstance(python, Prepared) and workers > 1:
        clean["TORCHELASTIC_RUN_ID"] = secrets.token_hex(4)  # the programs have not one parent by which they could meet

    def start_one(rank):
        own = {**clean, "PYTHONPATH": str(FRONT_END), "TMPDIR": str(folder), "RANK": str(rank), "WORLD_SIZE": str(workers),
               "LOCAL_WORLD_SIZE": str(workers), **variables}
        words = python.command() if isinstance(python, Prepared) else [python, "-B"]
        return subprocess.Popen([*words, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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


def printed(python, folder, workers, *command, patience):
    """What rank 0 has printed, once all have ended well."""
    processes = start(python, folder, workers, *command)
    outputs = said(processes, patience)
    assert [process.returncode for process in processes] == [0] * workers, outputs
    return outputs[0][0]


def check_goes_on(python, folder, script, forget, patience):
    """That a script of two workers, whose argument is the number of epochs and which prints a line for each, ends as one that was never
    stopped where it goes on after the first. `forget` removes what it has saved. Returns the lines."""
    def run(epochs):
        return printed(python, folder, 2, script, str(epochs), patience=patience).splitlines()
    whole = run(2)
    forget()
    parts = [*run(1), *run(2)]
    assert parts == whole and len(whole) == 2, (parts, whole)
    return whole
