# SPDX-License-Identifier: Apache-2.0
"""This process' place in the job, and what it has wrapped: joined once, left once."""
from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import launch
from ..errors import PoseidonError
from ..membership import Membership
from .exchange import Exchange

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
    from typing_extensions import Unpack

    from ..launch import Place
    from ..session import Options, Path, Session

_wrapped: list[Exchange] = []
measured: list[Exchange] = []  # of sessions that nobody else joins (profiling.py)


def _detach() -> None:
    while _wrapped:
        _wrapped.pop().detach()


def _abandon(session: Session) -> None:
    for exchange in _wrapped:
        exchange.stop()
    session.close()  # from here on it reads nothing that exchanges have lent
    while _wrapped:
        _wrapped.pop().abandon()


_member = Membership("poseidon.torch", _detach, _abandon)


def init(rank: int | None = None, workers: int | None = None, coordinator: str | None = None, port: int | None = None,
         listen: str | None = None, token_file: Path | None = None, threads: int | None = None,
         cores: int | None = None, **options: Unpack[Options]) -> None:
    """Joins the job; returns when all workers are there. distribute, loader and the collectives do so where it has not been
    called; called again without arguments it does nothing, and with arguments it raises.

    This process is worker `rank` of `workers`. Rank 0 listens at `coordinator`, a host or address, and `port`, which the others
    call; `listen` is the address at which this process itself listens. `token_file` is what make_token_file wrote, the same for
    all. `threads` multiply factors: as many as torch has, the same on all workers. `cores`: how many this worker may use, which
    the plan reckons with.

    What is left out comes from what the launcher sets (torchrun's RANK and WORLD_SIZE, the ranks of Open MPI, Slurm and
    Hydra), MASTER_ADDR, POSEIDON_PORT or MASTER_PORT, and POSEIDON_TOKEN_FILE; processes of a launcher that are all on one host
    need none of these three (meeting.py). Further options, by name:

    - schemes: {"fc1": "sfb"} or lines of name=scheme, how layers go whatever the plan would choose; plan_pin: the same from
      Exchange.plan_text(), over which schemes win; policy: what the plan makes least, the "time" of a step (default) or "bytes";
      final_plan_step: the step from which the plan of what was measured holds (10), or None, with which the first plan stays
    - wire: "tls" (encrypted), "auth" (authenticated), "plain" (neither) or "auto" (default: "tls" unless this worker listens on loopback); levels: whether workers of a
      host combine first, "host", "flat" (not) or "auto" (where there are several hosts and one of them has several workers)
    - zero_compression: whether factors leave without their zeros, from which the others make the same bits: "auto" (default:
      each for which that takes less time than sending them), "off" or "always" (for tests)
    - strategy: "poseidon" (default, unless POSEIDON_STRATEGY has another), or the way of a published system, to compare with: "wfbp",
      "p3", "dear", "ps-2017", "dense"; the same on all workers. With "wfbp" and "ps-2017" overlap="forward" is overlap="backward"
    - bandwidth: what this worker may use of its link each way, headers included, as in "400Mbit" or "2.5Gbps" (default: all of it,
      unless POSEIDON_BANDWIDTH says it); a job keeps to the least that one of its workers says
    - run_dir: a folder into which worker 0 writes what it knows of the run when it leaves, for `poseidon report` (default: none, unless
      POSEIDON_RUN_DIR names one); keeps spans, as trace_spans does
    - lanes: threads of the network of every worker, each with connections of its own (default 0: as many as the links need and
      the cores have to spare); worker 0's counts
    - join_timeout (120): seconds to wait for all workers; dead_after (30): seconds after which a silent worker is lost;
      stuck_after (60): seconds after which a worker that is alive but keeps the others waiting ends the job; ten times as long
      where it or a process that it started uses a processor, or it is `busy`
    - host: this machine's name; log: a function of level (0 debug to 3 error) and line, called on any thread, without which
      warnings go to standard error; trace_spans: see report; servers: how many dedicated servers the job has (0)
    - blas: a library's file, else POSEIDON_BLAS: what multiplies factors instead of torch's own or the system's OpenBLAS
    """
    given = {**{name: value for name, value in (("rank", rank), ("workers", workers), ("coordinator", coordinator),
                                                ("port", port), ("listen", listen), ("token_file", token_file),
                                                ("threads", threads), ("cores", cores)) if value is not None}, **options}
    if is_joined():
        if given:
            raise PoseidonError(f"poseidon.torch.init was given {', '.join(given)} after this process has joined, expected it "
                                "before distribute, loader and any collective")
        return
    if port is None and is_beside_torch():
        port = port_of(torch.distributed.distributed_c10d._get_default_store(), torch.distributed.get_rank())
    _member.join(rank, workers, coordinator, port, listen, token_file, threads=threads or torch.get_num_threads(), cores=cores,
                 meet=meet_at_agent, **options)


def is_beside_torch() -> bool:
    """Whether torch.distributed listens where this process would meet the others, at a MASTER_PORT that was set by hand."""
    return (torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
            and launch.variable_number("POSEIDON_PORT") is None and launch.master_port() != 0)


def port_of(store: Store, rank: int) -> int:
    """One that is free at rank 0, which it hands on through torch's store. All workers call it."""
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            store.set("poseidon/port", str(probe.getsockname()[1]))
    return int(store.get("poseidon/port"))


def meet_at_agent(place: Place) -> Callable[[str, int], None] | None:
    """The agents of torchrun have a store. Rank 0 leaves the port that it has found free there; the others read it."""
    port = launch.variable_number("MASTER_PORT") or 0
    # torch names in no __all__ what it has from C++.
    store = torch.distributed.TCPStore(place.coordinator, port, is_master=False)  # type: ignore[attr-defined]
    key = "poseidon/port/" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if place.rank == 0:
        return lambda host, own: store.set(key, str(own))
    place.meets_at(place.coordinator, int(store.get(key)))
    return None


def is_joined() -> bool:
    return _member.session is not None


def joined() -> Session:
    return _member.joined()


def rank() -> int:
    """Of this process, from 0. Joins the job where init has not been called."""
    init()
    return joined().rank


def workers() -> int:
    """How many there are. Joins the job where init has not been called."""
    init()
    return joined().workers


def local_rank() -> int:
    """This worker's number among those of its host, from 0: the number of the GPU that is its own. Hosts have the
    names that init was given, or POSEIDON_HOST, or the system's. All workers call it the first time."""
    init()
    return joined().local_rank


def busy(what: str) -> contextlib.AbstractContextManager[None]:
    """Around what keeps this worker from its steps while the others go on to wait for it, as an evaluation, a sampling or a slow save
    on rank 0: `with poseidon.busy("evaluates"):`. They wait ten times `stuck_after` (600 s) instead of once, also where this
    process uses no processor, and the line about it says `what` it does. It may stand in another. Any thread calls it."""
    return _member.busy(what)


def record(*, step: int | None = None, test: bool = False, **numbers: float | torch.Tensor) -> None:
    """Notes numbers of this step for `poseidon report`, where the job has a run_dir: `poseidon.record(loss=loss)`, and behind an evaluation
    `poseidon.record(test=True, loss=..., accuracy=...)`. `loss` and `accuracy` are drawn. Rank 0's count; on others, on one worker
    and without a run_dir it does nothing, and looks at no tensor. `step`: whose they are (default: how many have been exchanged).
    `test`: they are of an evaluation. Raises PoseidonError for what is no number."""
    exchanged = max((exchange.step for exchange in _wrapped), default=0)
    _member.record(numbers, exchanged if step is None else step, test)


def wrap(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, overlap: bool = False,
         factors: bool = True, buffers: bool = True, check_every: int | None = None, tf32: bool = False) -> Exchange:
    """Synchronises the gradients of `model` from now on; all workers call it and start from rank 0's parameters. What distribute
    is made of: it does so also where there is one worker, and returns the Exchange, with synchronize() and plan().

    After backward(), `.grad` holds the mean over all workers. With `overlap` backward() returns at once and the `optimizer`'s
    step() only notes that it was called: each layer is updated right before it runs in the next forward pass (SGD, Adam, AdamW;
    one backward per step; nothing may look at `.grad` before step()). `factors=False` keeps all gradients whole; `buffers=False`
    leaves each worker its own; `check_every`, `tf32`: see distribute. The model may be compiled before or after.
    DistributedDataParallel and fully sharded models around, inside or beside it are refused: they average the same gradients.
    """
    _wrapped.append(Exchange(joined(), model, optimizer, overlap and not joined().waits_for_all, factors, buffers, check_every, tf32))
    return _wrapped[-1]


def exchanges() -> list[Exchange]:
    """Of what has been wrapped, in that order."""
    return list(_wrapped)


def exchange_of(model: torch.nn.Module) -> Exchange | None:
    """The newest of `model`, or of what it is around; None where it is not exchanged: on one worker."""
    return newest_of(model, _wrapped)


def newest_of(model: torch.nn.Module, exchanges: list[Exchange]) -> Exchange | None:
    inside = set(model.modules())
    return next((exchange for exchange in reversed(exchanges) if exchange.root in inside), None)


def no_sync(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """Backward passes inside leave their gradients to add up on each worker; the first one behind it exchanges all. Does nothing
    where `model` is not exchanged."""
    exchange = newest_of(model, [*measured, *_wrapped])
    return contextlib.nullcontext() if exchange is None else exchange.no_sync()


def release(model: torch.nn.Module) -> None:
    """Gives `model` back as it was before distribute, with its last weights: it trains on this worker alone from here on, or may
    be given to distribute again. Waits for gradients that are under way. Does nothing where it is not exchanged."""
    while (exchange := exchange_of(model)) is not None:
        _wrapped.remove(exchange)
        exchange.detach()


def shutdown() -> None:
    """Leaves the job in order; blocks until all workers have come here. Models are given back as they were before, with their
    last weights. Implied at the end of the process. While an exception is under way (in a finally, or where it is caught) the
    job ends for everybody: the others wait for gradients that will not come."""
    _member.shutdown()
