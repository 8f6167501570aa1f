# SPDX-License-Identifier: Apache-2.0
"""Measures the link between two hosts, over one TCP connection, as a job's would be.

A host listens at its own address (`Listener`); another connects and measures (`measure`). Each end proves that it has
the secret of this run before anything else is read: the one who listens sends a nonce, the one who connects answers
with its own and a hash keyed by the secret over both, and gets a hash back. Then come requests, a JSON line each:

    {"op": "echo"}                            every message of 32 bytes comes back, until one of zeros
    {"op": "rate", "seconds": s, "bytes": b}  bytes follow without end; the receiver says how many came in that time
    {"op": "size", "bytes": n}                n bytes follow; the receiver says so when it has them

The receiver decides when a measurement ends, because what the sender has handed to its kernel may stay there for long.
"""
from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import hmac
import json
import secrets
import select
import socket
import statistics
import struct
import threading
import time
import typing

NONCE = 32                   # bytes; as many as the hash, so that guessing either is as hard
MESSAGE = 32                 # bytes of an echo: a small frame's
STRANGERS_WITHIN = 5.0       # seconds to prove the secret, as a job's members have
STRANGERS = 16               # connections at a time, strangers included
CONNECT_WITHIN = 2.0         # seconds; one lost SYN is sent again after 1 s
ECHOES = 20                  # round trips, of which the median counts
ECHO_FOR = 0.1               # seconds after which no further echo begins, where a round trip is long
WARM_SHARE = 0.4             # of the time: TCP's slow start, and what a shaper lets through at once, come before
SILENCE = 1.2                # seconds without one of the many bytes: two retransmissions have failed
SIZE_WITHIN = 0.8            # seconds for a few packets of one size: with one retransmission
MOST_BYTES = 1 << 30         # of one measurement, however fast the link is
READ = 1 << 20               # bytes at a time
LINE = 4096                  # bytes of a request or an answer
HEADERS = 40                 # bytes of IPv4 and TCP in a packet, options apart
TIMESTAMPS = 12              # bytes of the option that most connections use
# Sizes of packets, in bytes: what tunnels, clouds and old links leave of 1500 and 9000.
SIZES = (576, 1000, 1200, 1280, 1340, 1380, 1400, 1420, 1440, 1450, 1460, 1480, 1492, 1500, 2000, 4000, 8000, 8500,
         8900, 9000, 16000, 65535)


@dataclasses.dataclass
class Link:
    """One direction of one pair, as its sender sees it. `trouble` is empty where everything was measured, else one of
    the kinds below, with `detail` in the system's words."""
    trouble: str = ""
    detail: str = ""
    rate: float = 0.0          # bytes a second of the stream
    round_trip: float = 0.0    # seconds
    mtu: int = 0               # bytes of the largest packet that arrives
    black_hole: bool = False   # larger packets than `mtu`, which the sender believes in, vanish


DROPPED, REJECTED, NO_ROUTE, STRANGER, BROKEN = "dropped", "rejected", "no route", "stranger", "broken"


class Refused(Exception):
    """The other end does not prove the secret."""


def proof(secret: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.new(secret, b"poseidon doctor " + role + nonces, hashlib.sha256).digest()


def read_exactly(stream: socket.socket, count: int) -> bytes:
    """`count` bytes. Raises ConnectionError where the stream ends before."""
    received = bytearray()
    while len(received) < count:
        part = stream.recv(count - len(received))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "the other end closed the connection")
        received += part
    return bytes(received)


def read_line(stream: socket.socket) -> dict[str, typing.Any]:
    """A JSON object of one line. Raises ValueError for anything else, ConnectionError at the end. A request is read
    byte by byte, so that nothing of what follows is taken."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if len(line) > LINE:
            raise ValueError("a line is too long")
        line += read_exactly(stream, 1)
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("a line is no object")
    return message


def write_line(stream: socket.socket, message: dict[str, typing.Any]) -> None:
    stream.sendall(json.dumps(message).encode() + b"\n")


def without_waiting(stream: socket.socket) -> None:
    """Closes at once and throws away what is in the buffers."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


# ---- who listens

class Listener:
    """Listens from its making to the end of the process, on threads of its own."""

    def __init__(self, address: str, port: int, secret: bytes) -> None:
        """Raises OSError where `address` is not this machine's or `port` is taken. Port 0: any."""
        self.secret = secret
        self.free = threading.Semaphore(STRANGERS)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((address, port))
            self.socket.listen(STRANGERS)
        except OSError:
            self.socket.close()
            raise
        self.port = int(self.socket.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            self.free.acquire()
            try:
                stream, _ = self.socket.accept()
            except OSError:  # no descriptor is free: later perhaps
                self.free.release()
                time.sleep(0.1)
                continue
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream: socket.socket) -> None:
        """One connection to its end; whoever does not prove the secret in time is dropped without an answer."""
        try:
            stream.settimeout(STRANGERS_WITHIN)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            admit(stream, self.secret, time.monotonic() + STRANGERS_WITHIN)
            while True:
                answer(stream, read_line(stream))
        except (OSError, ValueError, KeyError, TypeError, OverflowError, Refused):
            pass  # its own end says it all
        finally:
            without_waiting(stream)
            self.free.release()


def admit(stream: socket.socket, secret: bytes, deadline: float) -> None:
    """Lets the other end prove the secret, and proves it. Raises Refused or OSError."""
    ours = secrets.token_bytes(NONCE)
    stream.sendall(ours)
    received = b""
    while len(received) < 2 * NONCE:
        stream.settimeout(max(0.001, deadline - time.monotonic()))  # however slowly the bytes come
        received += read_exactly(stream, 1)
    theirs = received[:NONCE]
    if not hmac.compare_digest(received[NONCE:], proof(secret, b"connects", ours + theirs)):
        raise Refused
    stream.settimeout(STRANGERS_WITHIN)
    stream.sendall(proof(secret, b"listens", ours + theirs))


def answer(stream: socket.socket, request: dict[str, typing.Any]) -> None:
    """Serves one request. Raises ValueError for one that is none."""
    op = request.get("op")
    if op == "echo":
        while (message := read_exactly(stream, MESSAGE)).strip(b"\0"):
            stream.sendall(message)
    elif op == "rate":
        seconds, most = float(request["seconds"]), int(request["bytes"])
        if not 0 < seconds <= 10 or not 0 < most <= MOST_BYTES:
            raise ValueError("a measurement is out of bounds")
        write_line(stream, receive_for(stream, seconds, most))
    elif op == "size":
        count = int(request["bytes"])
        if not 0 < count <= READ:
            raise ValueError("a size is out of bounds")
        read_exactly(stream, count)
        write_line(stream, {"received": count})
    else:
        raise ValueError("a request is unknown")


def receive_for(stream: socket.socket, seconds: float, most: int) -> dict[str, float]:
    """Reads for `seconds` after the first byte and returns the bytes and seconds after the warm-up, and all bytes."""
    buffer = bytearray(READ)
    stream.settimeout(SILENCE)
    try:
        total = stream.recv_into(buffer)
    except TimeoutError:
        total = 0
    if total == 0:
        return {"bytes": 0, "seconds": 0.0, "total": 0}
    began = time.monotonic()
    counted, counted_from = total, began  # of the warm-up
    while (now := time.monotonic()) < began + seconds and total < most:
        if now < began + WARM_SHARE * seconds:
            counted, counted_from = total, now
        stream.settimeout(max(0.001, began + seconds - now))
        try:
            count = stream.recv_into(buffer)
        except TimeoutError:
            break
        if count == 0:
            break
        total += count
    return {"bytes": total - counted, "seconds": time.monotonic() - counted_from, "total": total}


# ---- who measures

@dataclasses.dataclass(frozen=True)
class Target:
    """Whom to measure, and for how long: `seconds` for the rate."""
    address: str
    port: int
    secret: bytes
    seconds: float
    hint: int = 0  # the size of packets that another pair found to arrive where larger ones vanish; 0: none


def connect(target: Target, size: int = 0) -> socket.socket:
    """A connection whose other end has proved the secret, with packets of at most `size` bytes where that is given.
    Raises OSError or Refused."""
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if size:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size - HEADERS)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(CONNECT_WITHIN)
        stream.connect((target.address, target.port))
        theirs, ours = read_exactly(stream, NONCE), secrets.token_bytes(NONCE)
        stream.sendall(ours + proof(target.secret, b"connects", theirs + ours))
        if not hmac.compare_digest(read_exactly(stream, NONCE), proof(target.secret, b"listens", theirs + ours)):
            raise Refused
    except BaseException:
        without_waiting(stream)
        raise
    return stream


def kind_of(error: OSError) -> str:
    """The kind of fault on the way that an error of `connect` shows."""
    if isinstance(error, TimeoutError) or error.errno in (errno.ETIMEDOUT, errno.EINVAL):  # EINVAL: a blackhole route
        return DROPPED
    if error.errno in (errno.ECONNREFUSED, errno.EACCES, errno.EPERM, errno.ENOPROTOOPT):
        return REJECTED
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return NO_ROUTE
    return BROKEN


def packet_size(stream: socket.socket) -> int:
    """Bytes of the packets that this connection sends, when it has much to send."""
    options = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 24)[5]
    segment = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    return segment + HEADERS + (TIMESTAMPS if options & 1 else 0)


def echo(stream: socket.socket) -> float:
    """Seconds of a round trip, the median of several."""
    write_line(stream, {"op": "echo"})
    times: list[float] = []
    until = time.monotonic() + ECHO_FOR
    while not times or (len(times) < ECHOES and time.monotonic() < until):
        began = time.monotonic()
        stream.sendall(b"\1" * MESSAGE)
        read_exactly(stream, MESSAGE)
        times.append(time.monotonic() - began)
    stream.sendall(b"\0" * MESSAGE)
    return statistics.median(times)


def send_for(stream: socket.socket, seconds: float) -> tuple[float, bool]:
    """Bytes a second that arrive, and whether any of the many did."""
    write_line(stream, {"op": "rate", "seconds": seconds, "bytes": MOST_BYTES})
    zeros = memoryview(bytes(READ))
    deadline = time.monotonic() + seconds + 2 * SILENCE
    stream.setblocking(False)
    poll = select.poll()
    poll.register(stream, select.POLLIN | select.POLLOUT)
    while time.monotonic() < deadline:
        events = dict(poll.poll(100))
        if events.get(stream.fileno(), 0) & ~select.POLLOUT:
            break
        if events:
            with contextlib.suppress(BlockingIOError):
                stream.send(zeros)
    stream.settimeout(SILENCE)
    said = read_line(stream)
    lasted, count, total = float(said["seconds"]), float(said["bytes"]), float(said["total"])
    # A link so slow that nothing came behind the warm-up still moved what came before.
    return (count / lasted if count > 0 and lasted > 0 else total / seconds), total > 0


def size_arrives(target: Target, size: int) -> bool:
    """Whether packets of `size` bytes arrive at the target."""
    try:
        stream = connect(target, size)
    except (OSError, Refused):
        return False
    try:
        stream.settimeout(SIZE_WITHIN)
        write_line(stream, {"op": "size", "bytes": 4 * size})
        stream.sendall(bytes(4 * size))
        return bool(read_line(stream))
    except (OSError, ValueError):
        return False
    finally:
        without_waiting(stream)


def largest_that_arrives(target: Target, below: int) -> int:
    """The largest of SIZES below `below` whose packets arrive; 0 where none does."""
    sizes = [size for size in SIZES if size < below]
    if target.hint in sizes:
        place = sizes.index(target.hint)
        if size_arrives(target, target.hint) and (
                place + 1 == len(sizes) or not size_arrives(target, sizes[place + 1])):
            return target.hint
    low, high = -1, len(sizes)  # sizes[low] arrives, sizes[high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if size_arrives(target, sizes[middle]):
            low = middle
        else:
            high = middle
    return sizes[low] if low >= 0 else 0


def measure(target: Target) -> Link:
    """The link towards the target. Takes `seconds` and a few round trips, some seconds where packets are lost."""
    link = Link()
    try:
        stream = connect(target)
        try:
            link.round_trip = echo(stream)
            link.rate, arrived = send_for(stream, target.seconds)
            link.mtu = packet_size(stream)  # after it: before, the peer's small window bounds the packets
        finally:
            without_waiting(stream)
        if not arrived:
            beyond_black_hole(target, link)
    except Refused:
        link.trouble = STRANGER
    except OSError as error:
        link.trouble, link.detail = kind_of(error), error.strerror or "timed out"
        if link.round_trip:  # it was reached
            link.trouble = BROKEN
    except (ValueError, KeyError, TypeError):
        link.trouble, link.detail = BROKEN, "the answer is not understood"
    return link


def beyond_black_hole(target: Target, link: Link) -> None:
    """Large packets vanish: finds the largest that arrives, and measures with that. Raises as `connect` does."""
    size = largest_that_arrives(target, link.mtu)
    if size == 0:
        link.trouble, link.detail = BROKEN, "nothing arrives after the first few bytes"
        return
    link.mtu, link.black_hole = size, True
    stream = connect(target, size)
    try:
        link.rate, _ = send_for(stream, target.seconds)
    finally:
        without_waiting(stream)


def next_size(size: int) -> int:
    """The size of packets that was tried above `size`."""
    return next((larger for larger in SIZES if larger > size), size)
