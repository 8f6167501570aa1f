# SPDX-License-Identifier: Apache-2.0
"""libposeidon.so as Python sees it: the structs and functions of poseidon/c/poseidon.h, by ctypes.

Nothing here decides anything. A call that fails raises PoseidonError with the core's own sentence; one that was
interrupted raises what the signal handler raised. ctypes lets go of the interpreter lock for as long as a call lasts.
"""
from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from ctypes import (CFUNCTYPE, POINTER, byref, c_char, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint8,
                    c_uint32, c_uint64, c_void_p)
from typing import TYPE_CHECKING, Any

from . import distribution, interruption
from .errors import PoseidonError
from .interruption import Interrupted

OK = 0
NO_CULPRIT = -1
F64, F32, I64 = 1, 2, 5
NEVER = 2 ** 64 - 1
GRADIENT, FACTORS, GATHERED = 1, 2, 3
GIVEN_RANK, GIVEN_WORKERS = 1, 2
FORWARD, BACKWARD = 0, 1
NOTICE = 1
WARNING = 2
WIRE = {"auto": 0, "tls": 1, "auth": 2, "plain": 3}
POLICY = {"time": 1, "bytes": 2}
LEVELS = {"flat": 0, "host": 1, "auto": 2}
# Of a byte that is sent and one that is received, encrypted, both ends together (session/tcp_session.h).
CPU_SECONDS_PER_WIRE_BYTE = 1.5e-9
ZERO_COMPRESSION = {"auto": 0, "off": 1, "always": 2}


class Struct(ctypes.Structure):
    """A struct of the header: begins with its size, everything else is zero unless given."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Status(Struct):
    _fields_ = [("struct_size", c_size_t), ("code", c_int32), ("scope", c_int32), ("culprit", c_int32),
                ("reserved", c_uint32), ("message", c_char * 1000)]


class View(Struct):
    _fields_ = [("struct_size", c_size_t), ("memory", c_void_p), ("elements", c_uint64), ("dtype", c_int32),
                ("device_type", c_int32), ("device_id", c_int32), ("reserved", c_uint32), ("ready", c_void_p),
                ("reserved2", c_void_p)]


Listening = CFUNCTYPE(None, c_void_p, c_char_p, c_uint32)
Log = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class Options(Struct):
    _fields_ = [("struct_size", c_size_t), ("role", c_int32), ("hosts_coordinator", c_int32),
                ("workers", c_uint32), ("servers", c_uint32), ("requested_rank", c_int32),
                ("listen_port", c_uint32), ("listen_host", c_char_p), ("advertise_host", c_char_p),
                ("coordinator_host", c_char_p), ("coordinator_port", c_uint32), ("wire", c_int32),
                ("host", c_char_p), ("listening", Listening), ("listening_user", c_void_p),
                ("token_file", c_char_p), ("token_bytes", POINTER(c_uint8)), ("token_fd", c_int32),
                ("threads", c_uint32), ("cores", c_uint32), ("reserved", c_uint32),
                ("join_timeout_seconds", c_double), ("dead_after_seconds", c_double), ("policy", c_int32),
                ("reserved2", c_uint32), ("schemes", c_char_p), ("plan_pin", c_char_p),
                ("final_plan_step", c_uint64), ("engine", c_void_p), ("log", Log), ("log_user", c_void_p),
                ("trace_spans", c_uint64), ("memory_limit_bytes", c_uint64), ("probe_bytes", c_uint64),
                ("levels", c_int32), ("reserved3", c_uint32), ("machine", c_char_p),
                ("interrupted", Interrupted), ("interrupted_user", c_void_p),
                ("device", c_void_p), ("stuck_after_seconds", c_double), ("blas", c_char_p), ("meeting", c_void_p),
                ("verdict_file", c_char_p), ("zero_compression", c_int32), ("lanes", c_uint32),
                ("strategy", c_char_p), ("bandwidth", c_char_p), ("figures_file", c_char_p), ("run_dir", c_char_p)]


class PlaceWanted(Struct):
    _fields_ = [("struct_size", c_size_t), ("given", c_uint32), ("rank", c_int32), ("workers", c_int32), ("port", c_uint32),
                ("coordinator", c_char_p), ("listen", c_char_p)]


class Place(Struct):
    _fields_ = [("struct_size", c_size_t), ("rank", c_uint32), ("workers", c_uint32), ("port", c_uint32), ("local", c_uint32),
                ("coordinator", c_char * 256), ("listen", c_char * 256), ("launcher", c_char * 16), ("job", c_char * 256)]


class MeetingOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("token_file", c_char_p), ("temporary_folder", c_char_p), ("program", c_char_p),
                ("timeout_seconds", c_double), ("interrupted", Interrupted), ("interrupted_user", c_void_p)]


class Layer(Struct):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("shape", c_char_p), ("elements", c_uint64),
                ("dtype", c_int32), ("forward_position", c_uint32), ("outputs", c_uint64),
                ("inputs", c_uint64), ("bias", c_int32), ("reserved", c_uint32), ("table", c_int32),
                ("on_device", c_int32), ("product_rows", c_uint64), ("product_hash", c_uint64), ("product_seconds", c_double)]


class Plan(Struct):
    _fields_ = [("struct_size", c_size_t), ("switch_step", c_uint64), ("final_plan", c_int32), ("policy", c_int32),
                ("layers", c_uint32), ("reserved", c_uint32), ("step_seconds", c_double), ("compute_seconds", c_double),
                ("single_worker_seconds", c_double), ("speedup", c_double), ("wfbp_seconds", c_double),
                ("dense_step_seconds", c_double), ("dense_bytes_sent", c_uint64)]


class LayerPlan(Struct):
    _fields_ = [("struct_size", c_size_t), ("scheme", c_int32), ("forced", c_int32), ("bytes_sent", c_uint64),
                ("bytes_received", c_uint64), ("transfer_seconds", c_double), ("rebuild_seconds", c_double),
                ("reason", c_char * 512), ("scheme_name", c_char * 16), ("takes", c_int32), ("reserved", c_uint32)]


class Push(Struct):
    _fields_ = [("struct_size", c_size_t), ("absent", c_int32), ("weight", c_uint32), ("landed", c_void_p),
                ("landed_user", c_void_p), ("rows", c_uint32), ("reserved", c_uint32), ("in_parts", c_int32),
                ("reserved2", c_uint32)]


class Factors(Struct):
    _fields_ = [("struct_size", c_size_t), ("u", POINTER(View)), ("v", POINTER(View)), ("rows", c_uint32),
                ("reserved", c_uint32)]


class Rows(Struct):
    _fields_ = [("struct_size", c_size_t), ("indices", c_void_p), ("values", POINTER(View)), ("count", c_uint32),
                ("reserved", c_uint32)]


class Gathered(Struct):
    _fields_ = [("struct_size", c_size_t), ("indices", c_void_p), ("values", c_void_p), ("count", c_uint64),
                ("u", c_void_p)]


class Memory(Struct):
    _fields_ = [("struct_size", c_size_t), ("brought", c_void_p), ("mean", c_void_p), ("bytes", c_uint64)]


class Traffic(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in
                ("frames_sent", "header_bytes_sent", "payload_bytes_sent", "frames_received",
                 "header_bytes_received", "payload_bytes_received")]

    @property
    def sent(self) -> int:
        """Bytes, with the headers of frames."""
        return int(self.header_bytes_sent + self.payload_bytes_sent)

    @property
    def received(self) -> int:
        return int(self.header_bytes_received + self.payload_bytes_received)


class LayerStatistics(Struct):
    _fields_ = [("struct_size", c_size_t), ("key_value", Traffic), ("factors", Traffic), ("steps", c_uint64),
                ("seconds", c_double), ("local_bytes", c_uint64), ("factor_bytes_sent", c_uint64),
                ("factor_bytes_received", c_uint64)]


class Statistics(Struct):
    _fields_ = [("struct_size", c_size_t), ("control", Traffic), ("collectives", Traffic),
                ("wire_bytes_sent", c_uint64), ("wire_bytes_received", c_uint64), ("busy_seconds", c_double),
                ("waited_seconds", c_double), ("hidden_share", c_double), ("allocated_bytes", c_uint64),
                ("link_bytes_per_second", c_double), ("link_latency_seconds", c_double),
                ("slower_workers_seconds", c_double), ("measured_seconds", c_double), ("measured_steps", c_uint64),
                ("bandwidth", c_double)]


class Span(Struct):
    _fields_ = [("struct_size", c_size_t), ("lane", c_int32), ("layer", c_int32), ("step", c_uint64),
                ("begin_nanoseconds", c_int64), ("end_nanoseconds", c_int64), ("bytes", c_uint64), ("label", c_char_p),
                ("model", c_uint32), ("reserved", c_uint32)]


class Number(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


TakeSpan = CFUNCTYPE(None, c_void_p, POINTER(Span))
LANES = ("compute", "send", "receive", "sum", "rebuild", "wait", "to host", "to device")  # by number


# Arguments of the functions used, without the status that comes last in all of those that can fail.
SESSION = MODEL = MEETING = c_void_p
FALLIBLE: dict[str, list[Any]] = {
    "make_token_file": [c_char_p],
    "open": [POINTER(Options), POINTER(SESSION)],
    "leave": [SESSION],
    "failure": [SESSION],
    "join_small": [SESSION, POINTER(POINTER(Layer)), c_uint32, POINTER(c_uint32)],
    "model_new": [SESSION, POINTER(MODEL)],
    "declare": [MODEL, POINTER(Layer), POINTER(c_uint32)],
    "commit": [MODEL],
    "get_plan": [MODEL, POINTER(Plan)],
    "get_layer_plan": [MODEL, c_uint32, POINTER(LayerPlan)],
    "begin_step": [MODEL, c_uint64],
    "takes": [MODEL, c_uint32, c_uint64, POINTER(c_int32)],
    "push_dense": [MODEL, c_uint32, c_uint64, POINTER(View), POINTER(Push)],
    "arrived": [MODEL, c_uint32, c_uint64],
    "push_factors": [MODEL, c_uint32, c_uint64, POINTER(Factors), POINTER(View), POINTER(Push)],
    "push_rows": [MODEL, c_uint32, c_uint64, POINTER(Rows), POINTER(Push)],
    "get_gathered": [MODEL, c_uint32, POINTER(Gathered)],
    "get_memory": [MODEL, c_uint32, POINTER(Memory)],
    "wait": [MODEL, c_uint32],
    "wait_any": [MODEL, POINTER(c_uint32), c_uint32, POINTER(c_uint32)],
    "timed": [MODEL, c_uint32, c_uint64, c_int32, c_int64, c_int64],
    "sum": [SESSION, POINTER(View)],
    "broadcast": [SESSION, POINTER(View), c_uint32],
    "barrier": [SESSION],
    "get_statistics": [SESSION, POINTER(Statistics)],
    "get_layer_statistics": [MODEL, c_uint32, POINTER(LayerStatistics)],
    "take_trace": [SESSION, TakeSpan, c_void_p],
    "note": [SESSION, c_uint64, c_int32, POINTER(Number), c_uint32],
    "find_place": [POINTER(PlaceWanted), POINTER(c_char_p), POINTER(Place)],
    "is_left_open": [POINTER(Place), c_char_p, POINTER(c_int32)],
    "meet": [POINTER(MeetingOptions), POINTER(Place), POINTER(MEETING)],
}
PLAIN: dict[str, tuple[Any, list[Any]]] = {  # with what they return
    "version_text": (c_char_p, []),
    "code_name": (c_char_p, [c_int32]),
    "rank": (c_uint32, [SESSION]),
    "workers": (c_uint32, [SESSION]),
    "waits_for_all": (c_int32, [SESSION]),
    "member_name": (c_size_t, [SESSION, c_int32, c_char_p, c_size_t]),
    "reset_timings": (None, [SESSION]),
    "abort": (None, [SESSION, c_char_p]),
    "close": (None, [SESSION]),
    "now": (c_int64, [SESSION]),
    "say_busy": (None, [SESSION, c_char_p]),
    "log_to_stderr": (None, [c_void_p, c_int32, c_char_p]),
    "plan_text": (c_size_t, [MODEL, c_char_p, c_size_t]),
    "landed": (c_int32, [MODEL, c_uint32]),
    "meeting_token_file": (c_char_p, [MEETING]),
    "end_meeting": (None, [MEETING]),
}


def candidates() -> list[str]:
    """The paths at which the library may be, the user's own first."""
    places = distribution.places("POSEIDON_LIBRARY", "libposeidon.so", "poseidon/c/libposeidon.so")
    # Only the user's own may be a name that the loader knows.
    return [path for path in places if len(places) == 1 or os.path.exists(path)] + ["libposeidon.so.0"]


def load() -> ctypes.CDLL:
    tried = candidates()
    try:
        library = ctypes.CDLL(tried[0])
    except OSError as error:
        raise ImportError(f"libposeidon.so cannot be loaded ({error}), expected POSEIDON_LIBRARY to name it, "
                          "a build in build/release, or the library where the loader looks") from None
    try:
        declare(library)
    except AttributeError as error:
        raise ImportError(f"{tried[0]} is older than the package poseidon ({error}), expected a library of the same "
                          "version") from None
    expected, found = distribution.version(), library.poseidon_version_text().decode()
    if expected not in (None, found):
        raise ImportError(f"{tried[0]} has version {found} and the package poseidon {expected}, expected the same "
                          "version of both")
    return library


def declare(library: ctypes.CDLL) -> None:
    """Says what the functions take and give."""
    for name, arguments in FALLIBLE.items():
        function = getattr(library, "poseidon_" + name)
        function.argtypes, function.restype = [*arguments, POINTER(Status)], c_int32
    for name, (result, arguments) in PLAIN.items():
        function = getattr(library, "poseidon_" + name)
        function.argtypes, function.restype = arguments, result


class Library:
    """The functions, without their prefix; those that can fail raise instead of taking a status."""

    if TYPE_CHECKING:  # attributes are made of the tables above, whose types ctypes checks when a function is called
        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def __init__(self) -> None:
        self.loaded = library = load()
        for name in FALLIBLE:
            setattr(self, name, self.raising(library, getattr(library, "poseidon_" + name)))
        for name in PLAIN:
            setattr(self, name, getattr(library, "poseidon_" + name))

    def address_of(self, name: str) -> int:
        """Where a function is, for native code that calls it."""
        return ctypes.cast(getattr(self.loaded, "poseidon_" + name), c_void_p).value or 0

    @staticmethod
    def raising(library: ctypes.CDLL, function: Callable[..., int]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            status = Status()
            Library.check(library, function(*arguments, byref(status)), status)
        return call

    def often(self, name: str) -> Callable[..., None]:
        """The function `name`, which can fail, for one thread that calls it many times a step: its status is made once."""
        library, function, status = self.loaded, getattr(self.loaded, "poseidon_" + name), Status()
        to, raised = byref(status), interruption.raised

        def call(*arguments: Any) -> None:
            code = function(*arguments, to)
            if code or raised:
                Library.check(library, code, status)
        return call

    @staticmethod
    def check(library: ctypes.CDLL, code: int, status: Status) -> None:
        raised = interruption.take()
        if raised is not None:
            raise raised
        if code != OK:
            raise PoseidonError(status.message.decode(errors="replace"), library.poseidon_code_name(status.code).decode(),
                                None if status.culprit == NO_CULPRIT else status.culprit)


@functools.cache
def library() -> Library:
    """libposeidon.so, loaded at its first use: importing the package needs no library."""
    return Library()
