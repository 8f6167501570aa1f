# SPDX-License-Identifier: Apache-2.0
"""How a process finds its place in a job: from arguments, or from the variables that its launcher sets."""
from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import re
import socket

from .errors import PoseidonError

ELSEWHERE = "192.0.2.1"  # of nobody (RFC 5737): the way there is the way to other machines


def variable_number(name: str) -> int | None:
    text = os.environ.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise PoseidonError(f"environment variable {name} is '{text}', expected a number", "INVALID_ARGUMENT")
    return int(text)


@dataclasses.dataclass
class Dialect:
    """The variables in which one launcher says who a process is; the trainer reads the same (tools/launch)."""
    launcher: str
    rank: str
    size: str
    local_size: str  # of the processes on this host
    job: tuple[str, ...] = ()  # differs between two jobs of this launcher

    def speaks(self, rank: int | None, workers: int | None) -> bool:
        """Whether it says what the arguments leave open."""
        return bool((rank is not None or os.environ.get(self.rank))
                    and (workers is not None or os.environ.get(self.size)))


# The innermost first: torchrun and mpirun run under srun, not the other way round. What a step of Slurm has wins over
# what its allocation has.
DIALECTS = (
    Dialect("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
            ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")),
    Dialect("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
            ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    Dialect("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
    Dialect("srun", "SLURM_PROCID", "SLURM_NTASKS", "", ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
    Dialect("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_JOBID",)),
)


def is_batch_script() -> bool:
    """The one process of a Slurm batch script inherits numbers that are meant for the steps it will start."""
    return (os.environ.get("ENVIRONMENT") == "BATCH"
            and not (os.environ.get("SLURM_STEP_ID") or os.environ.get("SLURM_STEPID")))


def dialect(rank: int | None, workers: int | None) -> Dialect | None:
    """The launcher's, or None where this process was started by itself or the arguments say everything."""
    if rank is not None and workers is not None:
        return None
    for known in DIALECTS:
        if known.speaks(rank, workers) and not (known.launcher == "srun" and is_batch_script()):
            return known
    for one, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if os.environ.get(one):
            raise PoseidonError(f"environment variable {one} is set and {other} is not, expected both or neither",
                                "INVALID_ARGUMENT")
    if os.environ.get("PMIX_RANK"):
        raise PoseidonError("environment variable PMIX_RANK is set and nothing says how many processes there are, "
                            "expected RANK and WORLD_SIZE, or rank= and workers=", "INVALID_ARGUMENT")
    return None


def slurm_local_size(size: int) -> int:
    """How many tasks of this step are on this host, of Slurm's "4(x2),3"; 1 where Slurm does not say."""
    nodes = (os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
             or os.environ.get("SLURM_NODELIST") or "")
    if nodes and not re.search(r"[,\[]", nodes):
        return size
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE") or os.environ.get("SLURM_TASKS_PER_NODE") or ""
    counts = [int(count) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks) for _ in range(int(times or 1))]
    node = os.environ.get("SLURM_NODEID", "0")
    return counts[int(node)] if node.isdecimal() and int(node) < len(counts) else 1


def local_size(launcher: Dialect | None, size: int) -> int | None:
    """How many of a job's `size` processes the launcher put on this host; None where it does not say."""
    if launcher is None:
        return variable_number("LOCAL_WORLD_SIZE")
    return slurm_local_size(size) if launcher.launcher == "srun" else variable_number(launcher.local_size)


def numeric(host: str) -> str:
    """`host` as the address the core wants."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise PoseidonError(f"host {host} has no address: {error.strerror}", "NOT_FOUND") from None


def address_towards(peer: str) -> str:
    """The address of this machine from which `peer`, an address, is reached. Sends nothing. Raises OSError where no way
    leads there."""
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return str(probe.getsockname()[0])


def own_address(towards: str) -> str:
    """The address of this machine from which rank 0's host is reached."""
    try:
        return address_towards(towards)
    except OSError as error:
        raise PoseidonError(f"rank 0's host {towards} cannot be reached: {error.strerror}", "UNAVAILABLE") from None


def reachable(host: str, all_here: bool) -> str:
    """Rank 0's address for all workers, who are `all_here` on this host. A machine may know its own name as one of its loopback addresses (Debian
    writes 127.0.1.1), at which nothing listens and which other machines cannot call. What is an address already,
    and 127.0.0.1, is what its user wanted."""
    address = numeric(host)
    if address in (host, "127.0.0.1") or ":" in address or not ipaddress.ip_address(address).is_loopback:
        return address
    if all_here:
        return "127.0.0.1"
    try:
        return own_address(ELSEWHERE)
    except PoseidonError:  # without a network all workers are here
        return "127.0.0.1"


def network_address() -> str:
    """The address at which other machines may call this one."""
    try:
        address = numeric(socket.gethostname())
        return address if not ipaddress.ip_address(address).is_loopback else address_towards(ELSEWHERE)
    except (OSError, PoseidonError):
        raise PoseidonError("this machine has no address at which others can call it, expected MASTER_ADDR or "
                            "coordinator= to name one", "UNAVAILABLE") from None


@dataclasses.dataclass
class Place:
    """Which process of the job this is, and where rank 0 listens, as far as that is known before the processes meet."""
    rank: int
    workers: int
    coordinator: str  # numeric; empty where it is not known
    port: int  # 0 where it is not known
    listen: str  # numeric; empty where rank 0's address has to be known for it
    local: int | None = None  # processes of the job on this host, where that is known
    launcher: Dialect | None = None  # who started it, unless the arguments said everything

    @property
    def one_host(self) -> bool:
        """Whether all processes are known to be on this host."""
        return self.local == self.workers

    def meets_at(self, coordinator: str, port: int) -> None:
        """Rank 0's numeric address becomes known."""
        self.coordinator, self.port = coordinator, port
        self.listen = self.listen or own_address(coordinator)

    @staticmethod
    def find(rank: int | None = None, workers: int | None = None, coordinator: str | None = None,
             port: int | None = None, listen: str | None = None) -> Place:
        """The arguments, and for those left out what the launcher says (see DIALECTS), MASTER_ADDR, and POSEIDON_PORT or
        MASTER_PORT."""
        launcher = dialect(rank, workers)
        if launcher is not None:
            rank = variable_number(launcher.rank) if rank is None else rank
            workers = variable_number(launcher.size) if workers is None else workers
        rank, workers = rank or 0, 1 if workers is None else workers
        if not 0 <= rank < workers:
            raise PoseidonError(f"the rank is {rank}, expected 0 to {workers - 1}", "INVALID_ARGUMENT")
        place = Place(rank, workers, "", port or master_port(), listen or "", local_size(launcher, workers), launcher)
        address = coordinator or os.environ.get("MASTER_ADDR")
        if address or place.local in (None, workers):
            place.meets_at(reachable(address or "127.0.0.1", place.local in (None, workers)), place.port)
        return place


def master_port() -> int:
    """Where rank 0 listens, as the launcher says it; 0 where it does not, or something else listens there."""
    port = variable_number("POSEIDON_PORT")  # `poseidon run` keeps MASTER_PORT for the framework's own process group
    if port is None and not has_agent():
        port = variable_number("MASTER_PORT")
    return port or 0


def has_agent() -> bool:
    """Whether an agent of torchrun listens at MASTER_PORT, with a store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
