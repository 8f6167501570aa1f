# SPDX-License-Identifier: Apache-2.0
"""How a process finds its place in a job: from arguments, or from the variables that its launcher sets."""
import contextlib
import dataclasses
import ipaddress
import os
import socket

from .errors import PoseidonError

ELSEWHERE = "192.0.2.1"  # of nobody (RFC 5737): the way there is the way to other machines


def variable_number(name, otherwise=None):
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    if not text.isdecimal():
        raise PoseidonError(f"environment variable {name} is '{text}', expected a number", "INVALID_ARGUMENT")
    return int(text)


def numeric(host):
    """`host` as the address the core wants."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    try:
        return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise PoseidonError(f"host {host} has no address: {error.strerror}", "NOT_FOUND") from None


def own_address(towards):
    """The address of this machine from which `towards` is reached. Sends nothing."""
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
        except OSError as error:
            raise PoseidonError(f"rank 0's host {towards} cannot be reached: {error.strerror}",
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
    except PoseidonError:  # without a network all workers are here
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
            raise PoseidonError(f"the rank is {rank}, expected 0 to {workers - 1}", "INVALID_ARGUMENT")
        coordinator = reachable(coordinator or os.environ.get("MASTER_ADDR") or "127.0.0.1", workers)
        port = variable_number("MASTER_PORT", 0) if port is None else port
        if workers > 1 and not port:
            raise PoseidonError("rank 0's port is not known, expected MASTER_PORT or port=", "INVALID_ARGUMENT")
        return Place(rank, workers, coordinator, port, listen or own_address(coordinator))
