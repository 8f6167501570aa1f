# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine. Every function looks at this machine only, sends nothing, and leaves nothing behind.

`Facts` crosses from an agent to the doctor as JSON; an agent of another version may send other fields, so that the
reader takes what it knows and what has the right type.
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import hmac
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import resource
import socket
import stat
import sys
import tempfile
import time
import typing

from .. import distribution, library

FRAMEWORKS = {"torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly"), "jax": ("jax",)}
WRITTEN = 64 * 1024        # bytes written for a try, more than a file system keeps beside its free blocks
NAMES_WITHIN = 3.0         # seconds for the names of all hosts; a dead name server takes 5 s and more for each


@dataclasses.dataclass
class Place:
    """A folder in which a job writes."""
    use: str  # "working directory"
    path: str
    free_bytes: int = 0
    trouble: str = ""  # why nothing can be written there


@dataclasses.dataclass
class Facts:
    """One machine. Empty or zero is what could not be learnt."""
    hostname: str = ""
    python: str = ""
    executable: str = ""
    poseidon: str = ""          # version
    package: str = ""           # folder
    foreign: str = ""           # version of the unrelated distribution named poseidon, where that is installed
    library_trouble: str = ""   # why libposeidon.so cannot be loaded
    frameworks: dict[str, str] = dataclasses.field(default_factory=dict)
    cores: int = 0
    memory_bytes: int = 0
    available_bytes: int = 0
    descriptors: int = 0        # that a process may have open
    descriptors_hard: int = 0   # up to which its user may raise that
    first_port: int = 0         # of those that the system chooses from
    last_port: int = 0
    token_file: str = ""
    token_trouble: str = ""
    token_mark: str = ""        # a keyed hash of the token
    places: list[Place] = dataclasses.field(default_factory=list)
    names: dict[str, str] = dataclasses.field(default_factory=dict)  # of hosts, with what they mean there


def taken(kind: type[typing.Any], message: object) -> typing.Any:
    """A dataclass of plain fields from an agent's answer; what is missing or of another type keeps its default."""
    made = kind()
    for field in dataclasses.fields(made):
        value = message.get(field.name) if isinstance(message, dict) else None
        default = getattr(made, field.name)
        if type(value) is type(default) or (isinstance(default, float) and type(value) is int):
            setattr(made, field.name, value)
    return made


def facts_from(message: dict[str, typing.Any]) -> Facts:
    """The facts of an agent's message."""
    facts: Facts = taken(Facts, message)
    facts.places = [place_from(entry) for entry in facts.places]
    for texts in facts.frameworks, facts.names:
        for key, entry in list(texts.items()):
            texts[key] = str(entry)
    return facts


def place_from(entry: object) -> Place:
    if not isinstance(entry, dict):
        return Place("", "")
    free = entry.get("free_bytes")
    return Place(str(entry.get("use", "")), str(entry.get("path", "")), free if isinstance(free, int) else 0,
                 str(entry.get("trouble", "")))


def text_of(path: str) -> str:
    """The text of a small file; empty where it cannot be read."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def poseidon_version(package: pathlib.Path) -> str:
    """The version of the installed distribution that this package is of, else that of the checkout that has
    `package`, else empty."""
    if installed := distribution.version():
        return installed
    with contextlib.suppress(IndexError):
        build = text_of(str(package.parents[2] / "CMakeLists.txt"))
        declared = re.search(r"project\(poseidon VERSION ([0-9.]+)", build)
        if declared:
            return declared[1]
    return ""


def foreign_version() -> str:
    """The version of the index's other `poseidon`, which takes the same folder; empty where it is not installed."""
    other = distribution.find(distribution.NAMESAKE)
    return "" if other is None else other.version


def library_trouble() -> str:
    """Why libposeidon.so cannot be loaded; empty where it can."""
    try:
        library.load()
    except ImportError as error:
        return str(error)
    return ""


def framework_versions() -> dict[str, str]:
    """The versions of the frameworks that an import would find; imports none of them."""
    found = {}
    for module, distributions in FRAMEWORKS.items():
        try:
            if importlib.util.find_spec(module) is None:
                continue
        except (ImportError, ValueError):
            continue
        found[module] = "of unknown version"
        for name in distributions:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[module] = importlib.metadata.version(name)
                break
    return found


def groups_of_control() -> list[str]:
    """The folders of this process's cgroup and of those above it."""
    own = re.search(r"^0::(/.*)$", text_of("/proc/self/cgroup"), re.M)
    path = pathlib.PurePosixPath(own[1] if own else "/")
    return ["/sys/fs/cgroup" + str(folder).rstrip("/") for folder in (path, *path.parents)]


def usable_cores() -> int:
    """The processors on which this process may run, as far as a container's quota of time allows."""
    cores = float(len(os.sched_getaffinity(0)))
    for group in groups_of_control():
        quota = text_of(group + "/cpu.max").split()
        if len(quota) == 2 and quota[0].isdecimal() and quota[1].isdecimal() and int(quota[1]) > 0:
            cores = min(cores, int(quota[0]) / int(quota[1]))
    return max(1, int(cores))


def memory() -> tuple[int, int]:
    """Bytes of memory and of what is available, as far as a container's limit allows."""
    known = {name: int(kilobytes) * 1024
             for name, kilobytes in re.findall(r"^(\w+):\s+(\d+) kB$", text_of("/proc/meminfo"), re.M)}
    total, available = known.get("MemTotal", 0), known.get("MemAvailable", 0)
    for group in groups_of_control():
        limit, used = text_of(group + "/memory.max").strip(), text_of(group + "/memory.current").strip()
        if limit.isdecimal() and used.isdecimal():
            # The system gives back the pages of cached files when a program asks for memory.
            cached = re.search(r"^inactive_file (\d+)$", text_of(group + "/memory.stat"), re.M)
            total = min(total, int(limit))
            available = min(available, max(0, int(limit) - int(used) + (int(cached[1]) if cached else 0)))
    return total, available


def port_range() -> tuple[int, int]:
    """The ports from which the system chooses; Linux's default where it does not say."""
    words = text_of("/proc/sys/net/ipv4/ip_local_port_range").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (32768, 60999)


def look_at(use: str, path: str) -> Place:
    """How much room there is, and whether a file can be written there; the file has no name that outlives the try."""
    place = Place(use, path)
    try:
        space = os.statvfs(path)
        place.free_bytes = space.f_bavail * space.f_frsize
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"\0" * WRITTEN)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        place.trouble = error.strerror or str(error)
    return place


def temporary_folder() -> str:
    """Where programs put temporary files, full or not. (Python's own choice passes over a full one.)"""
    return os.environ.get("TMPDIR") or "/tmp"


def token_of(path: str) -> bytes:
    """The 32 bytes of a token file. Raises ValueError with what is wrong."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:
                raise ValueError("others can read it, expected mode 0600")
            text = file.read(66)
    except OSError as error:
        raise ValueError(f"it cannot be read ({error.strerror})") from None
    if not re.fullmatch(rb"[0-9a-fA-F]{64}(\n.?)?", text, re.S):
        raise ValueError("it holds no token, expected 64 hexadecimal digits")
    return bytes.fromhex(text[:64].decode())


def mark_of(token: bytes, secret: bytes) -> str:
    """A mark that two hosts compare: it does not disclose the token, and differs in every run."""
    return hmac.new(secret, b"poseidon doctor token" + token, hashlib.sha256).hexdigest()


def meanings(names: list[str]) -> dict[str, str]:
    """The addresses of each name on this machine; names without an answer in time are left out."""
    from .hosts import resolve
    found: dict[str, str] = {}

    def look_up(name: str) -> None:
        with contextlib.suppress(OSError):
            found[name] = resolve(name)

    pool = concurrent.futures.ThreadPoolExecutor(max_workers=16)
    concurrent.futures.wait([pool.submit(look_up, name) for name in names], NAMES_WITHIN)
    pool.shutdown(wait=False, cancel_futures=True)
    return dict(found)


def gather(names: list[str], token_file: str, secret: bytes) -> Facts:
    """The facts of this machine, in the working directory and the environment that a job's processes would have.

    `token_file` is the one that the doctor's own environment names, for where this one names none.
    """
    package = pathlib.Path(__file__).resolve().parents[1]
    facts = Facts(hostname=socket.gethostname(), python=platform.python_version(), executable=sys.executable,
                  poseidon=poseidon_version(package), package=str(package), foreign=foreign_version(),
                  library_trouble=library_trouble(), frameworks=framework_versions(), cores=usable_cores(),
                  names=meanings(names))
    facts.memory_bytes, facts.available_bytes = memory()
    facts.descriptors, facts.descriptors_hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit
                                                 for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    facts.first_port, facts.last_port = port_range()
    facts.token_file = os.environ.get("POSEIDON_TOKEN_FILE") or token_file
    if facts.token_file:
        try:
            facts.token_mark = mark_of(token_of(facts.token_file), secret)
        except ValueError as error:
            facts.token_trouble = str(error)
    facts.places = [look_at("working directory", os.getcwd()), look_at("temporary folder", temporary_folder())]
    return facts


def now() -> float:
    """Seconds since 1970 by this machine's clock."""
    return time.time()
