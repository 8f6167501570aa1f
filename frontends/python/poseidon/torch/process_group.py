# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over Poseidon's session: the backend "poseidon".

A process group is all workers of the job. Its collectives run on one thread, in the order in which the program made them, while
it goes on (order.py). All are made of the session's sum, whose parts are summed by all workers, and of its broadcast.
"""
from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qs, urlparse

import torch
from torch._C._distributed_c10d import ProcessGroup, ReduceOp, Store, TCPStore
from torch.distributed import Backend
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers

from .. import launch
from ..errors import PoseidonError
from . import collectives, job
from .issued import Issued
from .staged import Staged
from .tensors import view_of

if TYPE_CHECKING:
    from ..session import Session

    Matrix = list[list[torch.Tensor]]

NAME = "poseidon"


# ---- what a collective does, on the session's thread

# How one worker's numbers are made of two workers', where that is not a sum: of any numbers, of whole ones, and of bool.
Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
NUMBERS: dict[Any, Combine] = {ReduceOp.MIN: torch.minimum, ReduceOp.MAX: torch.maximum, ReduceOp.PRODUCT: torch.mul}
INTEGERS: dict[Any, Combine] = {
    **NUMBERS, ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor}
BOOLS: dict[Any, Combine] = {**INTEGERS, ReduceOp.SUM: torch.logical_or, ReduceOp.PRODUCT: torch.logical_and}


def combining(op: Any, tensor: torch.Tensor) -> Combine | None:
    """The function for `op`, None where there is none: an `op` of a call equals one of torch's names, and has another hash."""
    known = BOOLS if tensor.dtype == torch.bool else NUMBERS if tensor.is_floating_point() else INTEGERS
    return next((function for one, function in known.items() if op == one), None)


def op_of(opts: Any) -> Any:
    return ReduceOp.SUM if opts is None else opts.reduceOp


def check_op(op: Any, tensor: torch.Tensor) -> None:
    if combining(op, tensor) is None and not (op == ReduceOp.SUM or op == ReduceOp.AVG and tensor.is_floating_point()):
        raise PoseidonError(f"a reduction of {tensor.dtype} by {op} was asked for, expected SUM, PRODUCT, MIN, MAX, of "
                            "whole numbers BAND, BOR and BXOR, and of others AVG", "UNIMPLEMENTED")


def reduce(session: Session, tensor: torch.Tensor, op: Any) -> None:
    """Leaves in `tensor` what all workers' together are, by `op`: the same bits everywhere, taken in the order of ranks."""
    combine = combining(op, tensor)
    if combine is not None:
        tensor.copy_(functools.reduce(combine, collectives.gather(session, tensor)))
        return
    total = tensor.to(collectives.EXACT.get(tensor.dtype, tensor.dtype)).contiguous()
    if total.numel():
        session.sum(view_of(total))
    if op == ReduceOp.AVG:
        total.div_(session.workers)
    if total is not tensor:
        tensor.copy_(total)


def scatter_sum(session: Session, output: torch.Tensor, total: torch.Tensor, op: Any) -> None:
    """This worker's part of `total`, whose first dimension the workers divide, and which is reduced for it."""
    reduce(session, total, op)
    output.copy_(total.reshape(session.workers, -1)[session.rank].view(output.shape))


def exchange(session: Session, output: torch.Tensor, given: torch.Tensor, takes: list[int], gives: list[int]) -> None:
    """Of every worker's `given`, cut along its first dimension as it says in `gives`, the piece for this worker."""
    cuts, wanted = collectives.gather(session, torch.tensor([gives, takes], device="cpu")).unbind(1)
    if not torch.equal(cuts, wanted.t()):  # on all workers, so that all raise
        raise PoseidonError(f"all_to_all was given pieces of {cuts.tolist()} by rank where {wanted.t().tolist()} are wanted, "
                            "expected the same splits on both sides", "INVALID_ARGUMENT")
    longest = int(cuts.sum(1).max())
    padded = given.new_zeros(longest, *given.shape[1:])
    padded[:len(given)] = given
    pieces = [row[:sum(cut)].split(cut)[session.rank] for row, cut in zip(collectives.gather(session, padded), cuts.tolist())]
    output.copy_(torch.cat(pieces).view(output.shape))


def even(tensor: torch.Tensor, parts: int, what: str) -> list[int]:
    if tensor.dim() == 0 or len(tensor) % parts:
        raise PoseidonError(f"{what} was given a tensor of shape {list(tensor.shape)}, expected a first dimension that the "
                            f"{parts} workers divide", "INVALID_ARGUMENT")
    return [len(tensor) // parts] * parts


def single(tensors: Sequence[Any]) -> Any:
    if len(tensors) != 1:
        raise PoseidonError(f"a collective was given {len(tensors)} tensors of one process, expected one", "UNIMPLEMENTED")
    return tensors[0]


def staged(method: Callable[..., Issued]) -> Callable[..., Issued]:
    """A collective of a Group, whose tensors on a device are replaced by memory of the host before it is made."""
    @functools.wraps(method)
    def call(self: Group, *arguments: Any, **named: Any) -> Issued:
        self.tensors = Staged()
        return method(self, *map(self.tensors.on_host, arguments), **{name: self.tensors.on_host(one) for name, one in named.items()})
    return call


class Group(ProcessGroup):
    """All workers of the job. Every method issues one collective and returns at once; tensors are lent until it is over. Calls
    come from one thread at a time, in the same order on all workers. Tensors are on the CPU or on a device with streams."""

    tensors: Staged  # the tensors of the call under way

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch declares only the constructor of its own groups
        self.named = ""

    # Methods that torch calls from C++, by the names that they have there; its own groups keep the last two in a C++ backend.

    def getBackendName(self) -> str:
        return NAME

    def setGroupName(self, name: str) -> None:
        self.named = name

    def getGroupName(self) -> str:
        return self.named

    def issue(self, results: list[torch.Tensor], given: Sequence[torch.Tensor], run: Callable[[Session], object]) -> Issued:
        """`given`: what is read; of a collective that gives none, its results."""
        tensors, self.tensors = self.tensors, Staged()  # no tensor is held longer than its collective takes
        session, work, call = job.joined(), Issued(tensors.originals(results)), sys._getframe(1).f_code.co_name
        tensors.bring(given or results)

        def task() -> None:
            tensors.wait()
            with torch.no_grad(), collectives.named(f"torch.distributed's {call}", given or results):
                run(session)
            tensors.leave(results)
        session.in_order.add(task, work.end)
        return work

    # ---- reductions

    @staged
    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Issued:
        tensor, op = single(tensors), op_of(opts)
        check_op(op, tensor)
        return self.issue(tensors, (), lambda session: reduce(session, tensor, op))

    @staged
    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Issued:
        op = op_of(opts)
        if len({tensor.dtype for tensor in tensors}) != 1:
            raise PoseidonError("allreduce_coalesced was given tensors of several dtypes, or none, expected one dtype",
                                "UNIMPLEMENTED")
        check_op(op, tensors[0])

        def run(session: Session) -> None:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            reduce(session, flat, op)
            spread(flat.split([tensor.numel() for tensor in tensors]), tensors)
        return self.issue(tensors, (), run)

    @staged
    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Issued:
        tensor, op, root = single(tensors), op_of(opts), opts.rootRank
        check_op(op, tensor)

        def run(session: Session) -> None:
            total = tensor.clone()
            reduce(session, total, op)
            if session.rank == root:
                tensor.copy_(total)
        return self.issue(tensors, (), run)

    @staged
    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: Matrix, opts: Any) -> Issued:
        output, given, op = single(outputs), single(inputs), op_of(opts)
        check_op(op, output)
        return self.issue(outputs, given, lambda session: scatter_sum(session, output, torch.stack(list(given)), op))

    @staged
    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Issued:
        op = op_of(opts)
        check_op(op, output)
        return self.issue([output], [given], lambda session: scatter_sum(session, output, given.clone(), op))

    @staged
    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                                        opts: Any = None) -> Issued:
        op = op_of(opts)
        for output in outputs:
            check_op(op, output)

        def run(session: Session) -> None:
            for output, given in zip(outputs, inputs):
                scatter_sum(session, output, given.clone(), op)
        return self.issue(outputs, inputs, run)

    # ---- copies

    @staged
    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Issued:
        tensor, root = single(tensors), opts.rootRank
        return self.issue(tensors, (), lambda session: collectives.broadcast(tensor, root))

    @staged
    def allgather(self, outputs: Matrix, inputs: list[torch.Tensor], opts: Any = None) -> Issued:
        into, own = single(outputs), single(inputs)
        return self.issue(into, [own], lambda session: spread(collectives.gather(session, own), into))

    @staged
    def allgather_coalesced(self, outputs: Matrix, inputs: list[torch.Tensor], opts: Any = None) -> Issued:
        """outputs[rank][i] of inputs[i]."""
        def run(session: Session) -> None:
            for number, own in enumerate(inputs):
                spread(collectives.gather(session, own), [each[number] for each in outputs])
        return self.issue([tensor for each in outputs for tensor in each], inputs, run)

    @staged
    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Issued:
        return self.issue([output], [given], lambda session: output.copy_(collectives.gather(session, given).view(output.shape)))

    @staged
    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Issued:
        def run(session: Session) -> None:
            for output, given in zip(outputs, inputs):
                output.copy_(collectives.gather(session, given).view(output.shape))
        return self.issue(outputs, inputs, run)

    @staged
    def gather(self, outputs: Matrix, inputs: list[torch.Tensor], opts: Any) -> Issued:
        own, into = single(inputs), outputs[0] if outputs else []
        return self.issue(into, [own], lambda session: spread(collectives.gather(session, own), into))

    @staged
    def scatter(self, outputs: list[torch.Tensor], inputs: Matrix, opts: Any) -> Issued:
        output, given, root = single(outputs), inputs[0] if inputs else [], opts.rootRank

        def run(session: Session) -> None:
            rows = torch.stack(list(given)) if session.rank == root else output.new_empty(session.workers, *output.shape)
            output.copy_(collectives.broadcast(rows, root)[session.rank])
        return self.issue(outputs, given, run)

    @staged
    def all_to_all_single(self, output: torch.Tensor, given: torch.Tensor,
                          takes: list[int], gives: list[int], opts: Any = None) -> Issued:
        takes = list(takes) or even(output, self.size(), "all_to_all")
        gives = list(gives) or even(given, self.size(), "all_to_all")
        return self.issue([output], [given], lambda session: exchange(session, output, given, takes, gives))

    @staged
    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Issued:
        takes, gives = ([tensor.numel() for tensor in tensors] for tensors in (outputs, inputs))

        def run(session: Session) -> None:
            output = torch.cat([tensor.reshape(-1) for tensor in outputs])
            exchange(session, output, torch.cat([tensor.reshape(-1) for tensor in inputs]), takes, gives)
            spread([piece.view(tensor.shape) for piece, tensor in zip(output.split(takes), outputs)], outputs)
        return self.issue(outputs, inputs, run)

    @staged
    def barrier(self, opts: Any = None) -> Issued:
        return self.issue([], (), lambda session: session.barrier())

    # ---- what there is none of

    def send(self, *_: object) -> NoReturn:
        refuse("send")

    def recv(self, *_: object) -> NoReturn:
        refuse("recv")

    def recv_anysource(self, *_: object) -> NoReturn:
        refuse("recv")

    # ---- the end

    def shutdown(self) -> None:
        """The job goes on, and is left by poseidon.torch.shutdown or at the end of the process."""

    def abort(self) -> None:
        if job.is_joined():
            job.joined().abort("aborted its process group")


def spread(rows: Sequence[torch.Tensor] | torch.Tensor, into: Sequence[torch.Tensor]) -> None:
    for row, tensor in zip(rows, into):
        tensor.copy_(row.view(tensor.shape))


def refuse(what: str) -> NoReturn:
    raise PoseidonError(f"{what} is not there in torch.distributed's backend poseidon, expected a collective of all workers",
                        "UNIMPLEMENTED")


# ---- how a process gets its group

def create(store: Store, rank: int, size: int, timeout: timedelta) -> Group:
    """Called by init_process_group and new_group. Joins the job where it has not been joined."""
    if not job.is_joined():
        join(store, rank, size)
    session = job.joined()
    if size != session.workers:
        raise PoseidonError(f"a process group of {size} of the job's {session.workers} workers was asked for, expected one of "
                            "all: Poseidon's collectives need every worker", "UNIMPLEMENTED")
    if rank != session.rank:
        raise PoseidonError(f"init_process_group was given rank {rank} in the process that is rank {session.rank} of "
                            "Poseidon's job, expected the same in both", "INVALID_ARGUMENT")
    return Group(rank, size)


def join(store: Store, rank: int, size: int) -> None:
    """As poseidon.torch.init does. At MASTER_PORT, where it would meet, torch's store listens already; the store hands on
    another port."""
    launched = launch.dialect(None, None) is not None
    words: dict[str, Any] = {} if launched else {"rank": rank, "workers": size}
    if size > 1 and launch.variable_number("POSEIDON_PORT") is None and (launch.master_port() or not launched):
        words["port"] = job.port_of(store, rank)
    job.init(**words)


def rendezvous(url: str, timeout: timedelta = default_pg_timeout, **words: Any) -> Iterator[tuple[Store, int, int]]:
    """torch's env://. Where a variable that it needs is not set, as under mpirun and srun or where the script runs by itself,
    torch refuses: then the workers meet as Poseidon's do, and rank 0 has the store for torch; so where they have met at MASTER_PORT."""
    said = {name.upper() for name in parse_qs(urlparse(url).query)}
    taken = job.is_joined() and job.joined().options.coordinator_port == launch.variable_number("MASTER_PORT")
    if not taken and all(name in said or os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        yield from _of_environment(url, timeout=timeout, **words)
        return
    job.init()
    session = job.joined()
    host, mine = session.options.coordinator_host.decode(), session.rank == 0
    store = TCPStore(host, 0, session.workers, True, timeout, wait_for_workers=False) if mine else None
    port = session.broadcast_number(store.port if store is not None else 0)
    yield store or TCPStore(host, port, session.workers, False, timeout), session.rank, session.workers


_of_environment = _rendezvous_handlers["env"]


def register() -> None:
    """Makes torch.distributed know the backend. Once, when poseidon.torch is imported."""
    Backend.register_backend(NAME, create, devices=["cpu", "cuda"])
    _rendezvous_handlers["env"] = rendezvous  # register_rendezvous_handler takes new schemes alone
