# SPDX-License-Identifier: Apache-2.0
"""One end of the links under calibration: sends, receives and echoes as calibration.py orders.

    link_check.py ADDRESS

Says {"listening": PORT}; then orders come as JSON lines on stdin, one answer each on stdout, until
stdin ends.
Times are CLOCK_MONOTONIC, which the nodes of an emulated cluster share.

{"do": "flow", "to": [ADDRESS...], "pace": bytes/s or null, "begin": t, "from": t, "until": t}
    sends to all of them from `begin` to a little after `until`, and counts what arrives meanwhile
    -> {"received_bytes": n}    of payload between `from` and `until`
{"do": "ping", "to": ADDRESS, "rounds": n}
    -> {"round_trips": [seconds...]}    of one byte on an open connection
"""
import json
import selectors
import socket
import sys
import time

PORT = 7077
PIECE = 128 * 1024    # read at once
MOST = 4096 * 1024    # offered at once: more than falls due between two ticks at 4 Gbit/s
TAIL = 0.05       # seconds that senders go on after the window, so that its end is like its middle
TICK = 0.004      # seconds between looks at what is due at a pace
CATCH_UP = 1.25   # of the pace, for a connection that has fallen behind
SO_MAX_PACING_RATE = 47
SINK, ECHO = b"s", b"e"


def connect(address, kind, pace=None):
    """A connection to another node's check, which treats it as `kind`; with a pace, in bytes per
    second, the kernel spreads what it sends."""
    connection = socket.create_connection((address, PORT), timeout=10)
    if pace:
        connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, int(CATCH_UP * pace))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(kind)
    return connection


class Check:
    """The work of one node, on one thread."""

    def __init__(self, address):
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server((address, PORT), backlog=128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self.hear)
        self.buffer = bytearray(PIECE)
        self.bytes = memoryview(bytes(MOST))
        self.window = (0.0, 0.0)
        self.received = 0
        self.line = None

    def loop(self):
        """Obeys until its stdin ends. Orders are carried out between turns, never within one."""
        print(json.dumps({"listening": PORT}), flush=True)
        while self.line != "":
            self.line = None
            self.turn(None)
            if self.line:
                self.obey(json.loads(self.line))

    def turn(self, patience):
        for key, _ in self.selector.select(patience):
            key.data(key.fileobj)

    def hear(self, stdin):
        self.line = stdin.readline()

    def obey(self, order):
        answer = {"flow": self.flow, "ping": self.ping}[order["do"]](order)
        print(json.dumps(answer), flush=True)

    # --- what others send

    def accept(self, listener):
        connection, _ = listener.accept()
        connection.settimeout(10)
        kind = connection.recv(1)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(connection, selectors.EVENT_READ,
                               self.take if kind == SINK else self.echo)

    def take(self, connection):
        count = self.read(connection)
        if self.window[0] <= time.monotonic() < self.window[1]:
            self.received += count

    def echo(self, connection):
        if count := self.read(connection):
            connection.send(self.buffer[:count])

    def read(self, connection):
        try:
            count = connection.recv_into(self.buffer)
        except ConnectionError:
            count = 0
        if count == 0:
            self.selector.unregister(connection)
            connection.close()
        return count

    # --- what is ordered

    def flow(self, order):
        self.received, self.window = 0, (order["from"], order["until"])
        pace, end = order["pace"], order["until"] + TAIL
        outgoing = [connect(address, SINK, pace) for address in order["to"]]
        self.turn_until(order["begin"])
        for connection in outgoing:
            connection.setblocking(False)
        if pace:
            self.give_at_pace(outgoing, pace, order["begin"], end)
        else:
            self.give_all(outgoing, end)
        for connection in outgoing:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()  # with a reset: what is queued must not reach into the next window
        return {"received_bytes": self.received}

    def give_all(self, outgoing, end):
        for connection in outgoing:
            self.selector.register(connection, selectors.EVENT_WRITE, self.give)
        self.turn_until(end)
        for connection in outgoing:
            self.selector.unregister(connection)

    def give_at_pace(self, outgoing, pace, begin, end):
        """Each connection has sent `pace` times the time since `begin`; one that lost time catches up."""
        sent = [0] * len(outgoing)
        while (now := time.monotonic()) < end:
            for i, connection in enumerate(outgoing):
                due = min(int(pace * (now - begin)) - sent[i], MOST)
                if due > 0:
                    sent[i] += self.give(connection, due)
            self.turn_until(min(now + TICK, end))

    def give(self, connection, count=MOST):
        try:
            return connection.send(self.bytes[:count])
        except BlockingIOError:
            return 0

    def turn_until(self, when):
        while (left := when - time.monotonic()) > 0:
            self.turn(left)

    def ping(self, order):
        with connect(order["to"], ECHO) as connection:
            return {"round_trips": [self.round_trip(connection) for _ in range(order["rounds"])]}

    @staticmethod
    def round_trip(connection):
        began = time.monotonic()
        connection.sendall(b"?")
        if not connection.recv(1):
            raise ConnectionError("the other end closed during a round trip")
        return time.monotonic() - began


if __name__ == "__main__":
    Check(sys.argv[1]).loop()
