# SPDX-License-Identifier: Apache-2.0
"""ssh's ProxyCommand to reach a host with small packets: `python -m poseidon.doctor.narrow HOST PORT`."""
from __future__ import annotations

import os
import select
import socket
import sys

from .measure import HEADERS, SIZES

CONNECT_WITHIN = 3.0  # seconds; a doctor with little time has no more
READ = 64 * 1024  # bytes at a time


def main(host: str, port: str) -> int:
    """Relays standard input and output until the host closes; the exit code."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SIZES[0] - HEADERS)
            stream.settimeout(CONNECT_WITHIN)
            stream.connect(address)
            stream.settimeout(None)
            relay(stream)
    except OSError as error:
        sys.stderr.write(f"port {port}: {error.strerror or error}\n")
        return 1
    return 0


def relay(stream: socket.socket) -> None:
    """Raises OSError where the connection breaks."""
    sources = [sys.stdin.fileno(), stream.fileno()]
    while True:
        for ready in select.select(sources, [], [])[0]:
            if ready == stream.fileno():
                received = stream.recv(READ)
                if not received:
                    return
                os.write(sys.stdout.fileno(), received)
            elif sent := os.read(ready, READ):
                stream.sendall(sent)
            else:
                return


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
