# SPDX-License-Identifier: Apache-2.0
"""What training scripts do gives what it gives in one process on the concatenated batch."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import features  # noqa: E402
import poseidon  # noqa: E402
from conftest import FORKS, PATIENCE, free_port  # noqa: E402

WORKERS = 2


class Failed(Exception):
    pass


class Workers:
    """Two workers of one job, which train one feature after another: a session has room for many models."""

    def __init__(self, folder, devices=(None,) * WORKERS, delays=None, **options):
        self.folder, self.devices, self.delays, self.options = folder, devices, delays, options
        self.processes = []

    def start(self):
        token = self.folder / "job.token"
        poseidon.make_token_file(token)
        options = {"workers": WORKERS, "port": free_port(), "token_file": str(token), **self.options}
        self.pipes, ends = zip(*(FORKS.Pipe() for _ in range(WORKERS)))
        self.processes = [FORKS.Process(target=features.work, args=(rank, options, end, device, self.delays))
                          for rank, (end, device) in enumerate(zip(ends, self.devices))]
        for process in self.processes:
            process.start()

    def train(self, name, **words):
        """What every rank answers, (weights, schemes, log). `words` are wrap's. After a failure the next feature finds new
        workers."""
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
            for rank, answer in enumerate(answers):
                if isinstance(answer, str):
                    raise Failed(f"rank {rank}: {answer}")
            return answers
        except (Failed, EOFError, OSError):
            self.kill()
            raise

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


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Their plan is final at step 3 and sends Linears as factors: that is fewer bytes."""
    workers = Workers(tmp_path_factory.mktemp("planned"), policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def forced(tmp_path_factory):
    """They send Linears as factors from the first step."""
    workers = Workers(tmp_path_factory.mktemp("forced"), schemes=features.FACTORS)
    yield workers
    workers.end()


def assert_trained(name, answers):
    expected = features.reference(name, WORKERS)
    (weights, schemes, _), *others = answers
    for other, others_schemes, _ in others:
        assert others_schemes == schemes
        assert [key for key, tensor in weights.items() if not torch.equal(tensor, other[key])] == []
    tolerance = features.ALL[name].tolerance
    assert weights.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(weights[key], tensor, rtol=tolerance, atol=tolerance,
                                   msg=lambda text, key=key: f"{key}: {text}")
    return schemes


@pytest.mark.parametrize("name", features.FEATURES)
def test_two_workers_train_as_one(planned, name):
    assert_trained(name, planned.train(name))


@pytest.mark.parametrize("name", features.FORCED)
def test_two_workers_train_as_one_with_factors_from_the_first_step(forced, name):
    assert set(assert_trained(name, forced.train(name)).values()) == {"sfb"}


@pytest.mark.parametrize("name", ["Plain", "Autocast", "Tied", "Twice", "Unused", "Frozen", "Thawed", "Checkpointed",
                                  "CheckpointedReentrantly", "Adapted", "Recurrent", "Statistics", "Halves", "LateAutocast",
                                  "LateHookOnRank1", "LatePenaltyOnRank1"])
def test_two_workers_train_as_one_with_overlap(planned, name):
    assert_trained(name, planned.train(name, overlap=True))


@pytest.mark.parametrize("name", [name for name in features.FEATURES if name.startswith("Late")])
def test_the_plan_sends_factors_where_something_begins_late(planned, name):
    _, schemes, _ = planned.train(name)[0]
    assert schemes["2"] == "sfb"
