# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on the backend poseidon, beside gloo; DDP's object that is attached; DDP's join (groups.py)."""
import os
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import accelerator  # noqa: E402
import poseidon  # noqa: E402
from conftest import HERE, PATIENCE, PREPARED, free_port  # noqa: E402

sys.path.append(str(HERE.parent / "shared"))
import programs  # noqa: E402


def run(folder, workers, case, **variables):
    """How each rank ended: its code and what it said on standard error."""
    plain = dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")) if workers == 1 else {}  # as nobody has launched it
    processes = programs.start(PREPARED, folder, workers, HERE / "groups.py", case, folder / f"{case}-of{workers}-",
                               **{**plain, **variables})
    said = programs.ended(processes, PATIENCE)
    return [(process.returncode, errors) for process, errors in zip(processes, said)]


def succeed(folder, workers, case, **variables):
    for code, errors in run(folder, workers, case, **variables):
        assert code == 0, errors[-3000:]


def trained(folder, workers, case, **variables):
    """Parameters and buffers, of which all ranks have the same bits."""
    succeed(folder, workers, case, **variables)
    first, *others = (torch.load(folder / f"{case}-of{workers}-{rank}") for rank in range(workers))
    for other in others:
        assert all(torch.equal(one, two) for one, two in zip(first, other, strict=True))
    return first


def close(folder, workers, case, **variables):
    """That they train what one process does."""
    alone, together = trained(folder, 1, case, **variables), trained(folder, workers, case, **variables)
    largest = max(parameter.abs().max() for parameter in alone if parameter.is_floating_point())
    for one, other in zip(alone, together, strict=True):
        assert (one - other).abs().max() <= 3e-6 * largest if one.is_floating_point() else torch.equal(one, other)


@pytest.mark.parametrize("workers", [2, 3])
def test_collectives_are_those_of_torch(tmp_path, workers):
    succeed(tmp_path, workers, "collectives")


@pytest.mark.skipif(bool(accelerator.why_not()), reason=str(accelerator.why_not()))
@pytest.mark.parametrize("case", ["on_a_device", "ddp_on_a_device", "attached_on_a_device"])
def test_tensors_may_be_on_a_device(tmp_path, case):
    succeed(tmp_path, 2, case)


@pytest.mark.parametrize("workers, case", [(2, "ddps"), (3, "ddp"), (2, "beside_distribute")])
def test_ddp_trains_as_over_gloo(tmp_path, workers, case):
    trained(tmp_path, workers, case)


@pytest.mark.parametrize("case", ["unlike", "unlike_sums"])
def test_tensors_that_differ_between_workers_are_named_as_such(tmp_path, case):
    for _, errors in run(tmp_path, 2, case):
        assert "AssertionError" not in errors and errors.count("a collective is called as") <= 1, errors[-3000:]


@pytest.mark.parametrize("case", ["lost", "lost_in_ddp"])
def test_a_lost_rank_is_named_by_all_others(tmp_path, case):
    *others, (_, _) = run(tmp_path, 3, case)
    for code, errors in others:
        assert code != 0
        assert "worker 2" in errors and "PoseidonError" in errors, errors[-3000:]


def test_ctrl_c_ends_a_wait_and_all_others(tmp_path):
    (_, interrupted), (code, other) = run(tmp_path, 2, "interrupted")
    assert "KeyboardInterrupt" in interrupted and code != 0
    assert "worker 0" in other and "KeyboardInterrupt" in other, other[-3000:]


# ---- launchers

def open_mpi(rank):
    return {"RANK": None, "WORLD_SIZE": None, "LOCAL_WORLD_SIZE": None, "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": f"prterun-b-{os.getpid()}@1"}


@pytest.mark.long
def test_they_meet_where_mpirun_says_nothing_of_torch(tmp_path):
    processes = [programs.start(sys.executable, tmp_path, 1, HERE / "groups.py", "meets", tmp_path / "x", **open_mpi(rank))[0]
                 for rank in range(2)]
    said = programs.ended(processes, PATIENCE)
    assert [process.returncode for process in processes] == [0, 0], said


def test_one_process_that_nobody_started_is_a_group_of_one(tmp_path):
    succeed(tmp_path, 1, "meets")


@pytest.mark.parametrize("token", [False, True])
def test_torch_has_master_port_and_poseidon_another(tmp_path, token):
    """As set by hand or by `poseidon run`, and where the launcher does not say that all are on one host."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    if token:
        poseidon.make_token_file(tmp_path / "job.token")
        variables |= {"POSEIDON_TOKEN_FILE": str(tmp_path / "job.token"), "LOCAL_WORLD_SIZE": None}
    succeed(tmp_path, 2, "meets", **variables)


@pytest.mark.parametrize("first", ["torch", "poseidon"])
def test_gloo_and_poseidon_share_a_port_that_was_set_by_hand(tmp_path, first):
    succeed(tmp_path, 2, f"beside_gloo_{first}_first", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))


@pytest.mark.long
def test_torchrun_starts_them(tmp_path):
    process, = programs.start(sys.executable, tmp_path, 1, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                              HERE / "groups.py", "meets", tmp_path / "x", RANK=None, WORLD_SIZE=None, LOCAL_WORLD_SIZE=None)
    said, = programs.ended([process], PATIENCE)
    assert process.returncode == 0, said[-3000:]


# ---- DDP's object

@pytest.mark.parametrize("workers, case", [(2, "attached"), (3, "attached"), (2, "attached_by_flag"),
                                           (2, "attached_with_factors")])
def test_an_attached_ddp_trains_what_one_process_does(tmp_path, workers, case):
    close(tmp_path, workers, case)


def test_what_attach_refuses(tmp_path):
    succeed(tmp_path, 2, "attach_refused")


# ---- join

@pytest.mark.parametrize("workers, case", [(2, "joins_of_all_kinds"), (3, "joins_of_all_kinds"), (3, "joins_with_factors")])
def test_workers_with_uneven_steps_train_what_one_process_does(tmp_path, workers, case):
    trained(tmp_path, workers, case)
