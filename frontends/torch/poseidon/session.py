# SPDX-License-Identifier: Apache-2.0
"""A worker's membership in a job: a session of the C header, and how a process finds its place.

`Place` says who this process is, from arguments or from the variables that torchrun and other launchers
set; `Session` joins and leaves. Neither knows of torch tensors.
"""
import contextlib
import ctypes
import dataclasses
import ipaddress
import os
import re
import socket

from . import library as c

ELSEWHERE = "192.0.2.1"  # of nobody (RFC 5737): the way there is the way to other machines

_library = None


def library():
    """libposeidon.so, loaded at its first use: importing the package needs no library."""
    global _library
    if _library is None:
        _library = c.Library()
    return _library


def make_token_file(path):
    """Writes a job's secret to `path`, readable by its owner alone; every member reads the same file."""
    library().make_token_file(os.fsencode(path))


def variable_number(name, otherwise=None):
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    if not text.isdecimal():
        raise c.PoseidonError(f"environment variable {name} is '{text}', expected a number", "INVALID_ARGUMENT")
    return int(text)


def numeric(host):
    """`host` as the address the core wants."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    try:
        return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise c.PoseidonError(f"host {host} has no address: {error.strerror}", "NOT_FOUND") from None


def own_address(towards):
    """The address of this machine from which `towards` is reached. Sends nothing."""
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
        except OSError as error:
            raise c.PoseidonError(f"rank 0's host {towards} cannot be reached: {error.strerror}",
                                  "UNAVAILABLE") from None
        return probe.getsockname()[0]


def reachable(host, workers):
    """Rank 0's address for all workers. A machine may know its own name as one of its loopback addresses (Debian
    writes 127.0.1.1), at which nothing listens and which other machines cannot call. What is an address already,
    and 127.0.0.1, is what its user wanted."""
    address = numeric(host)
    if address in (host, "127.0.0.1") or ":" in address or not ipaddress.ip_address(address).is_loopback:
        return address
    if variable_number("LOCAL_WORLD_SIZE", workers) == workers:
        return "127.0.0.1"
    try:
        return own_address(ELSEWHERE)
    except c.PoseidonError:  # without a network all workers are here
        return "127.0.0.1"


@dataclasses.dataclass
class Place:
    """Which process of the job this is, and where rank 0 listens."""
    rank: int
    workers: int
    coordinator: str  # numeric
    port: int
    listen: str  # numeric

    @staticmethod
    def find(rank=None, workers=None, coordinator=None, port=None, listen=None):
        """The arguments, and for those left out RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
        rank = variable_number("RANK", 0) if rank is None else rank
        workers = variable_number("WORLD_SIZE", 1) if workers is None else workers
        if not 0 <= rank < workers:
            raise c.PoseidonError(f"the rank is {rank}, expected 0 to {workers - 1}", "INVALID_ARGUMENT")
        coordinator = reachable(coordinator or os.environ.get("MASTER_ADDR") or "127.0.0.1", workers)
        port = variable_number("MASTER_PORT", 0) if port is None else port
        if workers > 1 and not port:
            raise c.PoseidonError("rank 0's port is not known, expected MASTER_PORT or port=", "INVALID_ARGUMENT")
        return Place(rank, workers, coordinator, port, listen or own_address(coordinator))


def escaped(name):
    """A layer's name as it stands in poseidon_options.schemes."""
    return re.sub(r"([\\;\n\r ])", r"\\\1", name)


def names_in(schemes):
    """The layers' names in such a text."""
    entries = re.findall(r"(?:\\.|[^\\;\n])+", schemes, re.DOTALL)
    return {re.sub(r"\\(.)", r"\1", entry.strip(" \r").rpartition("=")[0], flags=re.DOTALL) for entry in entries}


def open_options(place, token_file, wire="auto", threads=1, cores=0, schemes=None, plan_pin=None,
                 final_plan_step=0, policy="time", servers=0, join_timeout=120.0, dead_after=30.0, host=None,
                 log=None, levels="auto"):
    """The C struct of these words; None for final_plan_step keeps the first plan."""
    encode = lambda text: None if text is None else str(text).encode()
    for name, word, known in (("wire", wire, c.WIRE), ("policy", policy, c.POLICY),
                              ("levels", levels, c.LEVELS)):
        if word not in known:
            raise c.PoseidonError(f"{name} is '{word}', expected one of {', '.join(known)}", "INVALID_ARGUMENT")
    if isinstance(schemes, dict):
        schemes = "\n".join(f"{escaped(name)}={scheme}" for name, scheme in schemes.items())
    options = c.Options(
        hosts_coordinator=place.rank == 0, workers=place.workers, servers=servers, requested_rank=place.rank,
        listen_host=encode(place.listen), listen_port=place.port if place.rank == 0 else 0,
        coordinator_host=encode(place.coordinator), coordinator_port=place.port, wire=c.WIRE[wire],
        host=encode(host or socket.gethostname()), token_file=encode(token_file), threads=threads,
        cores=cores, join_timeout_seconds=join_timeout, dead_after_seconds=dead_after,
        policy=c.POLICY[policy], levels=c.LEVELS[levels], schemes=encode(schemes), plan_pin=encode(plan_pin),
        final_plan_step=c.NEVER if final_plan_step is None else final_plan_step)
    if log is not None:
        options.log = c.Log(lambda user, level, line: log(level, line.decode(errors="replace")))
    return options


class Session:
    """Joined from its making to `leave`. Not thread-safe, as the header says of its main thread."""

    def __init__(self, options):
        self.c = library()
        self.handle = ctypes.c_void_p()
        self.options = options  # the callbacks in it live as long as the session
        self.c.open(ctypes.byref(options), ctypes.byref(self.handle))
        self.rank = self.c.rank(self.handle)
        self.workers = self.c.workers(self.handle)
        self.final_plan_step = options.final_plan_step or 10

    @property
    def named_layers(self):
        """Layers for which the user forces a scheme."""
        return names_in((self.options.schemes or b"").decode())

    def member_name(self, member):
        name = ctypes.create_string_buffer(256)
        self.c.member_name(self.handle, member, name, len(name))
        return name.value.decode(errors="replace")

    def broadcast(self, view, root=0):
        self.c.broadcast(self.handle, ctypes.byref(view), root)

    def sum(self, view):
        self.c.sum(self.handle, ctypes.byref(view))

    def barrier(self):
        self.c.barrier(self.handle)

    def statistics(self):
        known = c.Statistics()
        self.c.get_statistics(self.handle, ctypes.byref(known))
        return known

    def leave(self):
        """The orderly end; blocks until all workers are there. Harmless when repeated."""
        if self.handle:
            try:
                self.c.leave(self.handle)
            finally:
                self.close()

    def abort(self, reason):
        if self.handle:
            self.c.abort(self.handle, reason.encode())

    def close(self):
        """Frees the session; without `leave` before it this ends the job for everybody."""
        if self.handle:
            self.c.close(self.handle)
            self.handle = ctypes.c_void_p()
