# SPDX-License-Identifier: Apache-2.0
"""A worker's membership in a job: a session of the C header.

`join` opens a session at the place that launch.py finds. It knows no framework: what travels in its collectives
is any writable buffer of numbers.
"""
from __future__ import annotations

import array
import contextlib
import ctypes
import difflib
import functools
import hashlib
import inspect
import itertools
import numbers
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsFloat, TypedDict

from . import interruption, launch, load, meeting, step_account
from . import library as c
from .errors import PoseidonError
from .launch import Place
from .order import Order
from .step_account import StepAccount

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack  # of the type checker's own

    Path = str | os.PathLike[str]

    class Options(TypedDict, total=False):
        """The keywords of open_options but for a place, as poseidon.torch.init explains them."""

        wire: Literal["auto", "tls", "auth", "plain"]
        schemes: dict[str, str] | str | None
        plan_pin: str | None
        final_plan_step: int | None
        policy: Literal["time", "bytes"]
        servers: int
        join_timeout: float
        dead_after: float
        host: str | None
        log: Callable[[int, str], object] | None
        levels: Literal["flat", "host", "auto"]
        zero_compression: Literal["auto", "off", "always"]
        lanes: int
        strategy: Literal["poseidon", "wfbp", "p3", "dear", "ps-2017", "dense"] | None
        bandwidth: str | None
        run_dir: Path | None
        stuck_after: float
        blas: Path | None
        trace_spans: int

    class Joining(Options, total=False):
        """The keywords of join."""

        rank: int | None
        workers: int | None
        coordinator: str | None
        port: int | None
        listen: str | None
        token_file: Path | None
        threads: int | None
        cores: int | None

JOIN_TIMEOUT = 120.0  # seconds

library = c.library


def make_token_file(path: Path | bytes) -> None:
    """Writes a job's secret to `path`, readable by its owner alone; every member reads the same file."""
    library().make_token_file(os.fsencode(path))


def escaped(name: str) -> str:
    """A layer's name as poseidon_options.schemes has it."""
    return re.sub(r"([\\;\n\r ])", r"\\\1", name)


def open_options(place: Place, token_file: Path | None, wire: str = "auto", threads: int = 1, cores: int = 0,
                 schemes: dict[str, str] | str | None = None, plan_pin: str | None = None,
                 final_plan_step: int | None = 0, policy: str = "time", servers: int = 0, join_timeout: float = JOIN_TIMEOUT,
                 dead_after: float = 30.0, host: str | None = None, log: Callable[[int, str], object] | None = None,
                 levels: str = "auto", stuck_after: float = 60.0, blas: Path | None = None, trace_spans: int = 0,
                 zero_compression: str = "auto", lanes: int = 0, strategy: str | None = None, bandwidth: str | None = None,
                 run_dir: Path | None = None) -> c.Options:
    """The C struct of these keywords; None for final_plan_step keeps the first plan. `trace_spans`: how many spans are kept
    for take_trace, of 64 bytes each; 0: none. Whole steps are kept, the first three and as many of the last as fit."""
    encode: Callable[[object], bytes | None] = lambda text: None if text is None else str(text).encode()
    for name, word, known in (("wire", wire, c.WIRE), ("policy", policy, c.POLICY),
                              ("levels", levels, c.LEVELS), ("zero_compression", zero_compression, c.ZERO_COMPRESSION)):
        if word not in known:
            raise PoseidonError(f"{name} is '{word}', expected one of {', '.join(known)}", "INVALID_ARGUMENT")
    counts = {"threads": threads, "cores": cores, "servers": servers, "lanes": lanes, "trace_spans": trace_spans, "final_plan_step": final_plan_step or 0}
    for name, count in counts.items():
        if not isinstance(count, numbers.Integral) or count < 0:
            raise PoseidonError(f"{name} is {count!r}, expected a whole number from 0", "INVALID_ARGUMENT")
    for name, seconds in ("join_timeout", join_timeout), ("dead_after", dead_after), ("stuck_after", stuck_after):
        if not isinstance(seconds, numbers.Real) or not seconds >= 0:
            raise PoseidonError(f"{name} is {seconds!r}, expected a number of seconds from 0", "INVALID_ARGUMENT")
    run_dir = run_dir or os.environ.get("POSEIDON_RUN_DIR") or None
    if isinstance(schemes, dict):
        schemes = "\n".join(f"{escaped(name)}={scheme}" for name, scheme in schemes.items())
    options = c.Options(
        hosts_coordinator=place.rank == 0, workers=place.workers, servers=servers, requested_rank=place.rank,
        listen_host=encode(place.listen), listen_port=place.port if place.rank == 0 else 0,
        coordinator_host=encode(place.coordinator), coordinator_port=place.port, wire=c.WIRE[wire],
        host=encode(host or os.environ.get("POSEIDON_HOST") or socket.gethostname()), token_file=meeting.encoded(token_file), threads=threads,
        cores=cores, join_timeout_seconds=join_timeout, dead_after_seconds=dead_after,
        stuck_after_seconds=stuck_after, trace_spans=trace_spans, interrupted=interruption.asked,
        blas=encode(blas or os.environ.get("POSEIDON_BLAS") or None), policy=c.POLICY[policy],
        levels=c.LEVELS[levels], zero_compression=c.ZERO_COMPRESSION[zero_compression], lanes=lanes, schemes=encode(schemes), plan_pin=encode(plan_pin),
        strategy=encode(strategy or os.environ.get("POSEIDON_STRATEGY") or None),
        bandwidth=encode(bandwidth or os.environ.get("POSEIDON_BANDWIDTH") or None),
        final_plan_step=c.NEVER if final_plan_step is None else final_plan_step,
        verdict_file=encode(os.environ.get("POSEIDON_VERDICT_FILE") or None),
        figures_file=encode(os.environ.get("POSEIDON_FIGURES_FILE") or None),
        run_dir=None if run_dir is None else os.path.abspath(os.fsencode(run_dir)))
    if log is not None:
        options.log = c.Log(lambda user, level, line: log(level, line.decode(errors="replace")))
    else:  # not in Python: the core must not wait until the interpreter is free
        to_stderr: Any = library().log_to_stderr
        options.log = ctypes.cast(to_stderr, c.Log)
    return options


def check_options(options: Mapping[str, object]) -> None:
    """Refuses a name that is none of open_options' keywords, and says which one is like it."""
    taken = [name for name in inspect.signature(open_options).parameters if name != "place"] + ["rank", "workers", "coordinator", "port", "listen"]
    for name in options:
        if name not in taken:
            near = difflib.get_close_matches(name, taken, 1)
            raise PoseidonError(f"init was given {name}, which is no option, expected " + (near[0] if near else
                                f"one of {', '.join(sorted(taken))}"), "INVALID_ARGUMENT")


NUMBERS = {"f": c.F32, "d": c.F64, "q": c.I64, "l": c.I64}  # of the buffer protocol


def view_of(buffer: Buffer | c.View) -> c.View:
    """The header's view of a writable buffer of float32, float64 or int64 numbers (array.array, a ctypes array, a
    memoryview). The view keeps the buffer alive."""
    if isinstance(buffer, c.View):
        return buffer
    memory = memoryview(buffer)
    letter = memory.format.lstrip("<@=")
    if letter not in NUMBERS or memory.itemsize not in (4, 8) or memory.readonly or not memory.c_contiguous:
        raise PoseidonError(f"a buffer of format '{memory.format}' was given, expected a writable, contiguous one of "
                            "float32 (f), float64 (d) or int64 (q)", "INVALID_ARGUMENT")
    bytes_of = (ctypes.c_char * memory.nbytes).from_buffer(memory.cast("B") if memory.nbytes else memory)
    view = c.View(memory=ctypes.addressof(bytes_of), elements=memory.nbytes // memory.itemsize, dtype=NUMBERS[letter])
    view.keeps = bytes_of
    return view


def listening(announce: Callable[[str, int], None]) -> Callable[[object, bytes, int], None]:
    """The core's callback that hands on where rank 0 listens."""
    def tell(user: object, host: bytes, port: int) -> None:
        try:
            announce(host.decode(), port)
        except BaseException as failure:  # nothing can be raised through the core
            interruption.put(failure)
    return tell


def join(rank: int | None = None, workers: int | None = None, coordinator: str | None = None, port: int | None = None,
         listen: str | None = None, token_file: Path | None = None, threads: int | None = None, cores: int | None = None,
         meet: Callable[[Place], Callable[[str, int], None] | None] | None = None, **options: Unpack[Options]) -> Session:
    """A session of worker `rank` of `workers`; returns when all workers are there, or raises PoseidonError. Rank 0 listens at
    `coordinator`, a host or address, and `port`, which the others call; `listen` is the address at which this process itself
    listens. `token_file` is what make_token_file wrote, the same for all. `threads` multiply factors, by default as many as
    `cores`, which this worker may use. What is left out launch.py finds in what the launcher sets. Where the launcher does not
    say where workers meet, they do by files (meeting.py), or, on several hosts with torchrun's agents, by `meet`: it makes that
    known to the place, and returns what rank 0 has to call when it listens. Options: those of poseidon.torch.init."""
    check_options(options)
    place = Place.find(rank, workers, coordinator, port, listen)
    token_file = token_file or os.environ.get("POSEIDON_TOKEN_FILE")
    if cores is None:
        cores = max(1, load.cores() // (place.local or 1))

    def opened(token: Path | None, announce: Callable[[str, int], None] | None = None,
               met: ctypes.c_void_p | None = None) -> Session:
        words = open_options(place, token, threads=threads or cores, cores=cores, **options)
        if announce is not None:
            words.listening = c.Listening(listening(announce))
        words.meeting = met
        return Session(words)

    if not meeting.is_left_open(place, token_file):
        return opened(token_file)
    if meet is not None and launch.has_agent() and not place.one_host:
        return opened(token_file, meet(place))
    with meeting.by_files(place, token_file, options.get("join_timeout", JOIN_TIMEOUT)) as (token, met):
        return opened(os.fsdecode(token), met=met)


class Span(NamedTuple):
    """One activity of a member between two moments of `Session.now`. `model` counts from 0 in the order of `declare`."""

    lane: str  # one of library.LANES
    label: str  # push, result, factor, sum, rebuild, ...
    model: int
    layer: int  # -1: none
    step: int
    begin: int  # nanoseconds
    end: int
    bytes: int  # of payload moved


class Declared(NamedTuple):
    """A model, and how many layers it has."""

    model: ctypes.c_void_p
    layers: int


class Session:
    """Joined from its making to `leave`. This worker is `rank`, from 0, of `workers`. Not thread-safe, as the header says of its
    main thread; what is added to `in_order` runs on another thread before the calls that follow."""

    def __init__(self, options: c.Options) -> None:
        self.c = library()
        self.handle = ctypes.c_void_p()
        self.order: Order | None = None
        self.models = 0  # declared so far: their numbers in spans
        self.declared: list[Declared] = []
        self.account: StepAccount | None = None
        self.numbers_shared = 0  # that collectives have had so far
        self.busy_with: list[str] = []
        self.options = options  # the callbacks in it live as long as the session
        try:
            self.c.open(ctypes.byref(options), ctypes.byref(self.handle))
        except BaseException:  # interrupted as it opened
            self.close()
            raise
        self.rank: int = self.c.rank(self.handle)
        self.workers: int = self.c.workers(self.handle)
        self.waits_for_all = bool(self.c.waits_for_all(self.handle))  # before the next forward pass
        self.final_plan_step: int = options.final_plan_step or 10
        if self.rank == 0 and (steps := step_account.asked()):
            self.account = StepAccount(self, steps)

    @property
    def in_order(self) -> Order:
        """The collectives that run while the program goes on; its thread lives until the session is left or closed."""
        if self.order is None:
            self.order = Order()
        return self.order

    @functools.cached_property
    def hosts(self) -> list[str]:
        """The host of every worker, in the order of ranks, as options name it. All workers ask the first time."""
        own = self.options.host or b""
        return [self.broadcast_bytes(own, rank).decode(errors="replace") for rank in range(self.workers)]

    @property
    def local_rank(self) -> int:
        """This worker's number among those of its host, from 0. All workers ask the first time."""
        return self.hosts[:self.rank].count(self.hosts[self.rank])

    def settle(self) -> None:
        """The calling thread is the session's one thread now: what was added to `in_order` before is over."""
        if self.order is not None:
            self.order.settle()

    def end_order(self) -> None:
        if self.order is not None:
            self.order.end()
            self.order = None

    def member_name(self, member: int) -> str:
        """As messages name a `member`, the number of a worker: "worker 2 on host b". Any thread calls it."""
        name = ctypes.create_string_buffer(256)
        self.c.member_name(self.handle, member, name, len(name))
        return name.value.decode(errors="replace")

    def broadcast(self, buffer: Buffer | c.View, root: int = 0) -> None:
        """Leaves the numbers of rank `root` in everybody's `buffer`, a writable one of float32, float64 or int64 numbers, of one
        length on all."""
        self.settle()
        view = view_of(buffer)
        self.c.broadcast(self.handle, ctypes.byref(view), root)
        self.numbers_shared += view.elements

    def broadcast_number(self, own: int, root: int = 0) -> int:
        """Rank `root`'s `own`, a whole number of 64 bits."""
        number = array.array("q", [own])
        self.broadcast(number, root)
        return number[0]

    def broadcast_bytes(self, own: bytes, root: int = 0) -> bytes:
        """Rank `root`'s `own`, of any length; what the others give is not looked at."""
        size = self.broadcast_number(len(own), root)
        padded = -(-size // 8) * 8  # whole numbers
        words = array.array("q", own.ljust(padded, b"\0")[:padded])
        if words:
            self.broadcast(words, root)
        return words.tobytes()[:size]

    def sum(self, buffer: Buffer | c.View) -> None:
        """Leaves the sum over all workers in everybody's `buffer`, as of broadcast; the same bits everywhere."""
        self.settle()
        view = view_of(buffer)
        self.c.sum(self.handle, ctypes.byref(view))
        self.numbers_shared += view.elements

    def differing(self, contents: Sequence[bytes]) -> list[bool]:
        """Which of `contents`, as many on all workers, are not the same on all, bit for bit; every worker gets the answer."""
        if not contents:
            return []
        hashes = array.array("q", b"".join(hashlib.blake2b(content, digest_size=8).digest() for content in contents))
        of_root = array.array("q", hashes)
        self.broadcast(of_root)
        differs = array.array("q", [int(mine != first) for mine, first in zip(hashes, of_root)])
        self.sum(differs)
        return [count > 0 for count in differs]

    def compare_models(self, variables: Sequence[str]) -> None:
        """Raises PoseidonError on a worker whose variables, each described in a line, are not rank 0's, which ends the job."""
        self.compare("models", variables, "no variable")

    def compare(self, what: str, lines: Sequence[str], none: str, expected: str = "") -> None:
        """Raises PoseidonError on a worker whose lines are not rank 0's, which ends the job; `none`: how a missing one is called."""
        own = "\n".join(lines)
        first = self.broadcast_bytes(own.encode()).decode(errors="replace")
        if first != own:
            pairs = itertools.zip_longest(*(text.split("\n") if text else [] for text in (own, first)), fillvalue=none)
            here, there = next((here, there) for here, there in pairs if here != there)
            raise PoseidonError(f"the {what} differ: rank {self.rank} has {here} where rank 0 has {there}{expected}",
                                "INVALID_ARGUMENT")

    def join_small(self, declared: Sequence[c.Layer]) -> list[int]:
        """For each of these layers, in forward order, the index of the first of those that it goes with; its own where it
        stays alone. See poseidon_join_small."""
        pointers = (ctypes.POINTER(c.Layer) * len(declared))(*map(ctypes.pointer, declared))
        first = (ctypes.c_uint32 * len(declared))()
        self.c.join_small(self.handle, pointers, len(declared), first)
        return list(first)

    def declare(self, declared: Sequence[c.Layer]) -> tuple[ctypes.c_void_p, list[int]]:
        """A new model of these layers, and their numbers in it. Blocks until all workers have declared the same."""
        self.settle()
        model = ctypes.c_void_p()
        self.c.model_new(self.handle, ctypes.byref(model))
        self.models += 1
        numbers = []
        for layer in declared:
            number = ctypes.c_uint32()
            self.c.declare(model, ctypes.byref(layer), ctypes.byref(number))
            numbers.append(number.value)
        self.c.commit(model)
        self.declared.append(Declared(model, len(numbers)))
        return model, numbers

    def plan_of(self, model: ctypes.c_void_p, layer: int) -> tuple[str, str]:
        """How a layer goes in the newest plan (kv, sfb, ...), and the reason in words."""
        known = self.layer_plan(model, layer)
        return known.scheme_name.decode(), known.reason.decode(errors="replace")

    def layer_plan(self, model: ctypes.c_void_p, layer: int) -> c.LayerPlan:
        """How a layer goes in the newest plan, and what that is predicted to take."""
        known = c.LayerPlan()
        self.c.get_layer_plan(model, layer, ctypes.byref(known))
        return known

    def model_plan(self, model: ctypes.c_void_p) -> c.Plan:
        """The newest plan as a whole."""
        known = c.Plan()
        self.c.get_plan(model, ctypes.byref(known))
        return known

    def layer_statistics(self, model: ctypes.c_void_p, layer: int) -> c.LayerStatistics:
        """A layer's bytes and times so far, on this member; counted also without spans."""
        known = c.LayerStatistics()
        self.c.get_layer_statistics(model, layer, ctypes.byref(known))
        return known

    def bytes_of_plan(self, model: ctypes.c_void_p, layers: Sequence[int]) -> tuple[int, int]:
        """Of payload that the busiest worker sends in a step: were all gradients sent whole, and as the newest plan has these
        layers, which are all of the model's."""
        planned = sum(int(self.layer_plan(model, layer).bytes_sent) for layer in layers)
        return int(self.model_plan(model).dense_bytes_sent), planned

    def barrier(self) -> None:
        """Returns when all workers have called it."""
        self.settle()
        self.c.barrier(self.handle)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Around what keeps this worker from its steps while the others go on to wait for it: `what` it does, as in "evaluates",
        stands in the line about that, and they wait ten times `stuck_after` (600 s) instead of once, also where this process uses
        no processor. In another `busy` it stands in the place of that one. Any thread calls it."""
        self.busy_with.append(what)
        self.say_busy()
        try:
            yield
        finally:
            self.busy_with.remove(what)
            self.say_busy()

    def say_busy(self) -> None:
        if self.handle:  # it may have been left inside
            self.c.say_busy(self.handle, self.busy_with[-1].encode() if self.busy_with else None)

    def statistics(self) -> c.Statistics:
        known = c.Statistics()
        self.c.get_statistics(self.handle, ctypes.byref(known))
        return known

    def reset_timings(self) -> None:
        """Seconds and shares of `statistics` begin anew; bytes go on."""
        self.c.reset_timings(self.handle)

    def now(self) -> int:
        """Steady time of this machine in nanoseconds, as spans have it."""
        return self.c.now(self.handle)  # type: ignore[no-any-return]  # as ctypes gives it

    def take_trace(self) -> list[Span]:
        """The spans that were kept since the last call, in the order they ended; none without trace_spans."""
        taken: list[Span] = []

        def take(_: object, span: Any) -> None:
            one = span.contents
            taken.append(Span(c.LANES[one.lane], one.label.decode(), one.model, one.layer, one.step, one.begin_nanoseconds,
                              one.end_nanoseconds, one.bytes))
        self.c.take_trace(self.handle, c.TakeSpan(take), None)
        return taken

    def record(self, noted: Mapping[str, SupportsFloat], step: int | None = None, test: bool = False) -> None:
        """Notes losses and the like of this worker, `noted` by name, for `poseidon report`: of training or of a `test`, at `step` (default: as
        many as have landed). Does nothing but on rank 0 of a job with a run_dir. Raises PoseidonError for what is no number."""
        if self.rank != 0 or self.options.run_dir is None:
            return
        values = []
        for name, value in noted.items():
            try:
                values.append(c.Number(name.encode(), float(value)))
            except (TypeError, ValueError, RuntimeError):  # the last of a tensor of several numbers
                raise PoseidonError(f"{name} is {value!r}, expected a number", "INVALID_ARGUMENT") from None
        if step is None:
            step = max((self.layer_statistics(one.model, 0).steps for one in self.declared), default=0)
        self.c.note(self.handle, step, test, (c.Number * len(values))(*values), len(values))

    def leave(self) -> None:
        """The orderly end; blocks until all workers are there. Harmless when repeated."""
        if self.handle:
            try:
                self.end_order()
                self.end_account()
                self.c.leave(self.handle)
            finally:
                self.close()

    def end_account(self) -> None:
        if self.account is not None:
            self.account.finish()
            self.account = None

    def abort(self, reason: str) -> None:
        """Ends the job for everybody, now; the others get `reason`, a sentence without a full stop. Any thread calls it."""
        if self.handle:
            self.c.abort(self.handle, reason.encode())

    def close(self) -> None:
        """Frees the session; without `leave` before it this ends the job for everybody."""
        if self.handle:
            if self.order is not None:  # its calls return with the end of the job, before the session goes
                self.abort("closed its session without leaving")
                self.end_order()
            self.end_account()
            self.c.close(self.handle)
            self.handle = ctypes.c_void_p()
