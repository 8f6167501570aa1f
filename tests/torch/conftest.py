# SPDX-License-Identifier: Apache-2.0
"""Jobs of several real processes over loopback, each a run of worker.py."""
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
FRONT_END = HERE.parents[1] / "frontends" / "python"
sys.path.insert(0, str(FRONT_END))
sys.path.append(str(HERE.parent / "shared"))

import programs  # noqa: E402
from some_cases import pytest_collection_modifyitems, pytest_configure  # noqa: E402, F401  # make test runs some
from ports import free_port  # noqa: E402

import poseidon  # noqa: E402

TIMEOUT_FACTOR = float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))
PATIENCE = 60 * TIMEOUT_FACTOR
FACTORS = {"wide": "sfb", "twice": "sfb", "some": "sfb", "never": "sfb", "last": "sfb"}


# Importing torch takes longer than most jobs: workers of which nobody looks at the end are forked from a process that
# has done it.
FORKS = multiprocessing.get_context("forkserver")
# What every optimizer imports, and what torch.compile does.
SLOW = ["torch._dynamo", "torch._functorch.aot_autograd", "torch._dynamo.backends.debugging"]
FORKS.set_forkserver_preload(SLOW)
PREPARED = programs.Prepared(sys.executable, *SLOW)  # for workers whose end is looked at


def run_worker(case_file, rank, log):
    """worker.py in a child of the server."""
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import worker
    worker.main(case_file, rank)


def work_on_features(*arguments):
    """features.work in a child of the server."""
    import features
    features.work(*arguments)


class Ended:
    def __init__(self, process, output, errors):
        self.code, self.output, self.errors = process.returncode, output, errors

    @property
    def failure(self):
        """The report of a worker that caught a PoseidonError."""
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
        workers = [subprocess.Popen([*PREPARED.command(), HERE / "worker.py", file, str(rank)],
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


COUNTS = [int(count) for count in os.environ.get("POSEIDON_FEATURE_WORKERS", "2").split(",")]  # jobs that train the features


class Failed(Exception):
    pass


class Workers:
    """Workers of one job, each on its device, which train one feature after another: a session has room for many models."""

    def __init__(self, folder, devices, delays=None, **options):
        self.folder, self.devices, self.delays, self.options = folder, devices, delays, options
        self.processes = []

    def start(self):
        token = self.folder / "job.token"
        poseidon.make_token_file(token)
        options = {"workers": len(self.devices), "port": free_port(), "token_file": str(token), **self.options}
        self.pipes, ends = zip(*(FORKS.Pipe() for _ in self.devices))
        self.processes = [FORKS.Process(target=work_on_features, args=(rank, options, end, device, self.delays))
                          for rank, (end, device) in enumerate(zip(ends, self.devices))]
        for process in self.processes:
            process.start()

    def train(self, name, **words):
        """Every rank's Answer; after every step all had the same parameters, bit for bit. `words` are wrap's. After a failure the
        next feature finds new workers."""
        if not self.processes:
            self.start()
        try:
            for pipe in self.pipes:
                pipe.send((name, words))
            answers = []
            for rank, pipe in enumerate(self.pipes):
                if not pipe.poll(PATIENCE):
                    raise Failed(f"rank {rank} does not answer")
                answers.append(pipe.recv())
            failed = [f"rank {rank}: {answer}" for rank, answer in enumerate(answers) if isinstance(answer, str)]
            if failed:
                raise Failed("\n".join(failed))
        except (Failed, EOFError, OSError):
            self.kill()
            raise
        for step, digests in enumerate(zip(*(answer.digests for answer in answers))):
            assert len(set(digests)) == 1, f"parameters are not the same on all workers after step {step}: {digests}"
        return answers

    def kill(self):
        for process in self.processes:
            process.kill()
            process.join()
        self.processes = []

    def end(self):
        for process, pipe in zip(self.processes, self.pipes if self.processes else ()):
            pipe.send(None)
        for process in self.processes:
            process.join(PATIENCE)
        codes = [process.exitcode for process in self.processes]
        self.kill()
        assert not any(codes), codes


@pytest.fixture(scope="module", params=COUNTS)
def planned(tmp_path_factory, request):
    """Their plan is final at step 3 and sends Linears as factors: that is fewer bytes."""
    workers = Workers(tmp_path_factory.mktemp("planned"), (None,) * request.param, policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.fixture(scope="module", params=COUNTS)
def forced(tmp_path_factory, request):
    """They send Linears as factors from the first step."""
    import features  # which needs torch
    workers = Workers(tmp_path_factory.mktemp("forced"), (None,) * request.param, schemes=features.FACTORS)
    yield workers
    workers.end()


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
