# SPDX-License-Identifier: Apache-2.0
"""Other people's traffic on an emulated cluster: every node sends to the next one at a bounded rate.

    with background.Background(cluster, share=0.2) as others:
        ...
    others.summary()

As a program (in a node, `background.py ADDRESS NEXT BITS`) it sends to NEXT until SIGTERM and counts
what came from the node before. Tokens fall due with time and the kernel spreads what they let go, so
that the stream is even; what could not be sent within SLACK is lost, so that it never catches up beyond
its rate. It is TCP and yields like TCP: how much of its rate arrived is in the summary.
"""
import json
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time

PORT = 7078
PIECE = 64 * 1024
TICK = 0.002         # seconds between looks at what is due
SLACK = 0.050        # seconds of the rate that may be owed
FRAMING = 1514 / 1448  # bytes on the wire per byte of payload in full frames
SO_MAX_PACING_RATE = 47
PATIENCE = 5.0       # seconds until all are connected
SELF = pathlib.Path(__file__).resolve()


class Background:
    """A stream from every node to the next one during a block; a context manager. `share` of the
    link's rate, headers included; 0 starts nothing. Raises emulation.Refused on a link without a rate,
    or if the streams do not start."""

    def __init__(self, cluster, share):
        import emulation
        self.refused = emulation.Refused
        self.cluster = cluster
        self.share = share
        self.programs = []
        self.counts = []
        if share and cluster.link.rate is None:
            raise emulation.Refused("background traffic is a share of the rate, and the link has none")
        if share and not 0 < share < 1:
            raise emulation.Refused(f"the background's share is {share:g}, expected between 0 and 1")

    def __enter__(self):
        if not self.share:
            return self
        self.bits = self.share * self.cluster.link.rate
        for i, address in enumerate(self.cluster.addresses):
            after = self.cluster.addresses[(i + 1) % self.cluster.nodes]
            self.programs.append(self.cluster.run(
                i, [sys.executable, "-B", SELF, address, after, self.bits], text=True,
                stdout=subprocess.PIPE))
        if any(program.stdout.readline() != "sending\n" for program in self.programs):
            raise self.refused("the background traffic did not start")
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.terminate()
        for program in self.programs:
            text = program.stdout.read()
            self.counts.append(json.loads(text) if text else {"seconds": 0, "received_bytes": 0})
            program.stdout.close()
        self.cluster.end(*self.programs)

    def summary(self):
        """The traffic asked for and the traffic that arrived, on the wire, as shares of the rate; None without streams."""
        if not self.counts:
            return None
        arrived = [count["received_bytes"] * 8 * FRAMING / max(count["seconds"], 1e-9)
                   for count in self.counts]
        rate = self.cluster.link.rate
        return {"share": self.share, "arrived_share": round(sum(arrived) / len(arrived) / rate, 4),
                "least_arrived_share": round(min(arrived) / rate, 4),
                "received_bytes": [count["received_bytes"] for count in self.counts]}


class Stream:
    """One node's part: it sends to the next node and counts what comes from the one before."""

    def __init__(self, address, after, bits):
        self.pace = bits / 8 / FRAMING
        self.ended = False
        signal.signal(signal.SIGTERM, self.end)
        self.listener = socket.create_server((address, PORT))
        self.outgoing = self.connect(after)
        self.incoming, _ = self.listener.accept()
        self.received = 0

    def end(self, *_):
        self.ended = True

    def connect(self, after):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection = socket.create_connection((after, PORT), timeout=PATIENCE)
                break
            except ConnectionRefusedError:  # it does not listen yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, int(1.1 * self.pace))
        connection.setblocking(False)
        return connection

    def run(self):
        print("sending", flush=True)
        self.incoming.setblocking(False)
        buffer, piece = bytearray(PIECE), memoryview(bytes(PIECE))
        began = last = time.monotonic()
        owed = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self.incoming, selectors.EVENT_READ)
            while not self.ended:
                time.sleep(TICK)
                now = time.monotonic()
                owed = min(owed + self.pace * (now - last), self.pace * SLACK)
                last = now
                owed -= self.send(piece, int(owed))
                if selector.select(0):
                    self.receive(buffer)
        print(json.dumps({"seconds": time.monotonic() - began, "received_bytes": self.received}))

    def send(self, piece, due):
        sent = 0
        try:
            while sent < due:
                sent += self.outgoing.send(piece[:min(due - sent, len(piece))])
        except BlockingIOError:
            pass
        except ConnectionError:
            self.ended = True
        return sent

    def receive(self, buffer):
        try:
            while count := self.incoming.recv_into(buffer):
                self.received += count
            self.ended = True  # the node before has ended
        except BlockingIOError:
            pass
        except ConnectionError:
            self.ended = True


if __name__ == "__main__":
    Stream(sys.argv[1], sys.argv[2], float(sys.argv[3])).run()
