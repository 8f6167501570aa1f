# SPDX-License-Identifier: Apache-2.0
"""Jobs of several real processes over loopback, each a run of worker.py."""
import json
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
FRONT_END = HERE.parents[1] / "frontends" / "python"
sys.path.insert(0, str(FRONT_END))

import poseidon  # noqa: E402

PATIENCE = 60 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))
FACTORS = {"wide": "sfb", "twice": "sfb", "some": "sfb", "never": "sfb", "last": "sfb"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Importing torch takes longer than most jobs: workers of which nobody looks at the end are forked from a process that
# has done it.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch._dynamo"])  # which every optimizer imports


def run_worker(case_file, rank, log):
    """worker.py in a child of the server."""
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import worker
    worker.main(case_file, rank)


class Ended:
    def __init__(self, process, output, errors):
        self.code, self.output, self.errors = process.returncode, output, errors

    @property
    def failure(self):
        """What a worker that caught a PoseidonError said of it."""
        return json.loads(self.output.strip().splitlines()[-1])


class Job:
    """Runs of worker.py, one process per rank."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0

    def case(self, **words):
        self.count += 1
        token = self.folder / "job.token"
        poseidon.make_token_file(token)
        return {"workers": 2, "steps": 6, "optimizer": "sgd", "overlap": False, "schemes": None, "micro": 1,
                "final_plan_step": None, "set_to_none": True, "skipped": [], "port": free_port(),
                "token": str(token), "result": str(self.folder / f"result-{self.count}-"), **words}

    def write(self, case):
        file = self.folder / "case.json"
        file.write_text(json.dumps(case))
        return str(file)

    def run(self, case):
        """How every rank ended, each a program of its own."""
        file = self.write(case)
        workers = [subprocess.Popen([sys.executable, "-B", str(HERE / "worker.py"), file, str(rank)],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for rank in range(case["workers"])]
        try:
            return [Ended(worker, *worker.communicate(timeout=PATIENCE)) for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()

    def train(self, **words):
        """A job that has to succeed: its case, and what every rank saved; all weights are the same."""
        import torch  # not above: without torch the tests that need it are skipped
        case = self.case(**words)
        file = self.write(case)
        workers = [FORKS.Process(target=run_worker, args=(file, rank, case["result"] + f"{rank}.log"))
                   for rank in range(case["workers"])]
        try:
            for worker in workers:
                worker.start()
            for rank, worker in enumerate(workers):
                worker.join(PATIENCE)
                said = pathlib.Path(case["result"] + f"{rank}.log").read_text()
                assert worker.exitcode == 0, f"rank {rank} ended with {worker.exitcode}\n{said}"
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
        results = [torch.load(case["result"] + str(rank)) for rank in range(case["workers"])]
        for result in results[1:]:
            assert differing(results[0]["weights"], result["weights"]) == []
        return case, results


def differing(one, other):
    """Names of tensors that are not equal bit for bit."""
    import torch
    return [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def alone():
    """A job of one worker, in this process."""
    import poseidon.torch
    poseidon.torch.init(rank=0, workers=1)
    yield
    poseidon.torch.shutdown()
