# SPDX-License-Identifier: Apache-2.0
"""The floor under an all-reduce: its bytes through plain TCP, neither summed nor checked.

  bare_stream.py --peers ADDRESS,ADDRESS --rank 0 --port 29500

Orders come on standard input, "SIZE REPEATS", and are answered as poseidon_allreduce does: seconds and CPU seconds
of one all-reduce. For each, a rank sends to every other one 2/P of the size over a connection of their own, and
receives as much, from and into memory that stays in the cache: what no way of summing that uses these sockets can be
cheaper than.
"""
import argparse
import json
import resource
import socket
import sys
import threading
import time

PIECE = 256 * 1024  # written or read at once, at most


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--peers", type=lambda text: text.split(","), required=True, help="all addresses, by rank")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args(arguments)


def connections_of(options):
    """One to every other rank: to lower ones called, from higher ones taken."""
    with socket.create_server((options.peers[options.rank], options.port)) as server:
        found = [called(address, options.port) for address in options.peers[:options.rank]]
        found += [server.accept()[0] for _ in options.peers[options.rank + 1:]]
    for connection in found:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def called(address, port, patience=30):
    """A connection to a rank that may not listen yet."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((address, port), timeout=patience)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def send(connection, count):
    piece = memoryview(bytes(PIECE))
    while count > 0:
        connection.sendall(piece[:min(count, PIECE)])
        count -= PIECE


def receive(connection, count):
    piece = memoryview(bytearray(PIECE))
    while count > 0:
        got = connection.recv_into(piece[:min(count, PIECE)])
        if got == 0:
            sys.exit("bare_stream: a peer has gone")
        count -= got


def exchange(connections, count):
    """Sends `count` bytes over each connection and receives as many."""
    threads = [threading.Thread(target=work, args=(connection, count))
               for connection in connections for work in (send, receive)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(arguments):
    options = parse(arguments)
    connections = connections_of(options)
    for line in sys.stdin:
        size, repeats = map(int, line.split())
        exchange(connections, 1)  # all begin together
        began, used = time.monotonic(), cpu_seconds()
        exchange(connections, repeats * max(1, 2 * size // len(options.peers)))
        took, burnt = time.monotonic() - began, cpu_seconds() - used
        print(json.dumps({"bytes": size, "repeats": repeats, "seconds": took / repeats,
                          "cpu_seconds": burnt / repeats}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
