# SPDX-License-Identifier: Apache-2.0
"""A cluster on one machine: network namespaces joined by a bridge, every link shaped at both ends.

    with emulation.Cluster(4, emulation.Link(rate=1e9, queue=0.050)) as cluster:
        process = cluster.run(0, ["my_program", cluster.addresses[0]])

A node is a namespace with one interface, eth0, at 10.77.0.<index + 1>; the bridge lives in a namespace
of its own, so nothing of the machine itself is touched. A frame passes two queues as it would in a
real network: eth0 of the sender and the bridge's port towards the receiver, both tbf; the second one
is where incast shows. Where latency is asked for, delay.py forwards the frames between the two.

Needs root and iproute2. Everything disappears with the context, also after an exception, SIGINT,
SIGTERM or SIGHUP; what a killed owner left behind is removed by clean(), which every new cluster calls.
"""
import atexit
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

SUBNET = "10.77.0"
MOST_NODES = 64
LEAST_BURST = 128_000          # below it, 64 kB segmentation offload does not fit the bucket
LATENCY_NODES = 4              # what the delay stage carries on two cores
LATENCY_RATE = 200e6
PATIENCE = 3.0                 # seconds between SIGTERM and SIGKILL
FOLDER = pathlib.Path(__file__).resolve().parent
NAME = re.compile(r"^cluster-(\d+)-(\d+)-(\d+)-(hub|\d+)$")


class Refused(Exception):
    """The network asked for cannot be emulated here; the message is one sentence for the user."""


def parse_rate(text):
    """Bits per second of '1Gbit', '200Mbit', '2.5gbit' or a plain number; None for 'unshaped'.
    Raises Refused."""
    if text == "unshaped":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m|g)?(bit)?", text.strip().lower())
    if not match:
        raise Refused(f"rate is '{text}', expected a number with kbit, Mbit or Gbit, or 'unshaped'")
    return float(match[1]) * {None: 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]]


def parse_time(text):
    """Seconds of '50ms', '200us', '1s' or '0'. Raises Refused."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)?", text.strip().lower())
    if not match or (match[2] is None and float(match[1]) != 0):
        raise Refused(f"time is '{text}', expected a number with us, ms or s")
    return float(match[1]) * {None: 0, "us": 1e-6, "ms": 1e-3, "s": 1}[match[2]]


@dataclasses.dataclass(frozen=True)
class Link:
    """The link between a node and the bridge, the same in both directions.

    rate     bits per second on the wire, headers included; None leaves the link unshaped
    queue    seconds of rate that may wait beyond the bucket (tbf's `latency`)
    burst    bytes of the bucket, at least 128 kB
    latency  seconds one way between two nodes, in the delay stage; 0 without one
    """
    rate: float | None
    queue: float = 0.050
    burst: int = 128 * 1024
    latency: float = 0.0

    def queue_bytes(self):
        """The most that waits in one tbf, as tc computes it: rate x queue + burst."""
        return None if self.rate is None else int(self.rate / 8 * self.queue) + self.burst

    def described(self):
        return {"rate_bits": self.rate, "queue_seconds": self.queue, "burst_bytes": self.burst,
                "queue_bytes": self.queue_bytes(), "latency_seconds": self.latency}

    def check(self, nodes):
        """Raises Refused where this link between that many nodes is outside what is emulated."""
        if not 1 <= nodes <= MOST_NODES:
            raise Refused(f"{nodes} nodes were asked for, expected 1 to {MOST_NODES}")
        if self.rate is not None and self.rate < 1e6:
            raise Refused(f"the rate is {self.rate:g} bit/s, expected at least 1 Mbit")
        if self.burst < LEAST_BURST:
            raise Refused(f"the burst is {self.burst} bytes, expected at least {LEAST_BURST}: "
                          "smaller buckets break segmentation offload")
        if self.queue <= 0:
            raise Refused(f"the queue is {self.queue:g} s, expected more than 0")
        if self.latency < 0:
            raise Refused(f"the latency is {self.latency:g} s, expected 0 or more")
        if self.latency and (nodes > LATENCY_NODES or self.rate is None or self.rate > LATENCY_RATE):
            raise Refused(f"latency is emulated for up to {LATENCY_NODES} nodes at up to "
                          f"{LATENCY_RATE / 1e6:.0f} Mbit/s, asked for are {nodes} nodes at "
                          + ("an unshaped link" if self.rate is None
                             else f"{self.rate / 1e6:.0f} Mbit/s"))


def missing():
    """Why this machine cannot emulate a cluster, as a sentence; None where it can."""
    if os.geteuid() != 0:
        return "an emulated cluster needs root"
    for program in ("ip", "tc", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"an emulated cluster needs the program {program}"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "this machine does not allow network namespaces"


def inside(namespace):
    """The prefix of a command that is to run in a namespace. Not ip's own -n: that remounts /sys, which
    a chroot does not allow."""
    return "nsenter", f"--net=/run/netns/{namespace}"


def command(*words, check=True):
    """Runs ip or tc apart from the terminal's signals; its output. Raises Refused with its words."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, start_new_session=True)
    if check and done.returncode != 0:
        raise Refused(f"'{' '.join(map(str, words))}' failed: {done.stderr.strip()}")
    return done.stdout


def started(pid):
    """When a process started, in clock ticks since boot; None if there is none. A number that is used
    again therefore does not pass for its predecessor."""
    try:
        after_name = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


def namespaces():
    with contextlib.suppress(FileNotFoundError):
        return [name for name in os.listdir("/run/netns") if NAME.match(name)]
    return []


def pids_in(namespace):
    return [int(pid) for pid in command("ip", "netns", "pids", namespace, check=False).split()]


def remove(namespace):
    """Ends what runs in a namespace and deletes it; nothing if it is already gone."""
    pids = pids_in(namespace)
    while pids:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # for the kernel; there is no event for the end of a stranger's child
        pids = [pid for pid in pids_in(namespace) if started(pid) is not None]
    command("ip", "netns", "delete", namespace, check=False)


def clean():
    """Removes the namespaces whose owner is dead, with all that still runs in them; their names."""
    dead = []
    for name in sorted(namespaces()):
        pid, start = NAME.match(name).group(1, 2)
        if started(int(pid)) != int(start):
            remove(name)
            dead.append(name)
    return dead


@contextlib.contextmanager
def signals_held():
    """Signals that would end us wait until the block is over: no half-made and half-removed cluster."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK,
                                    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Cluster:
    """`nodes` namespaces joined by `link`; a context manager. Raises Refused.

    addresses    of the nodes, by index; routable only among them
    congestion   TCP's congestion control in every node, unless a socket asks for another
    """
    serial = itertools.count()

    def __init__(self, nodes, link, congestion="cubic"):
        reason = missing()
        if reason:
            raise Refused(reason)
        link.check(nodes)
        self.nodes = nodes
        self.link = link
        self.congestion = congestion
        self.addresses = [f"{SUBNET}.{i + 1}" for i in range(nodes)]
        self.owner = os.getpid()
        self.prefix = f"cluster-{self.owner}-{started(self.owner)}-{next(self.serial)}"
        self.hub = self.name("hub")
        self.processes = []
        self.undo = contextlib.ExitStack()

    def name(self, which):
        """The namespace of a node."""
        return f"{self.prefix}-{which}"

    # --- its life

    def __enter__(self):
        try:
            with signals_held():
                clean()
                self.catch_signals()
                atexit.register(self.close)
                self.undo.callback(atexit.unregister, self.close)
                self.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends every program and removes every namespace; may be called again."""
        if os.getpid() == self.owner:
            with signals_held():
                self.undo.close()

    def catch_signals(self):
        """SIGTERM and SIGHUP unwind the stack as SIGINT does already."""
        if threading.current_thread() is not threading.main_thread():
            return

        def end(number, _):
            raise SystemExit(128 + number)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self.undo.callback(signal.signal, number, signal.signal(number, end))

    def make(self):
        self.make_namespace(self.hub)
        command(*inside(self.hub), "ip", "link", "add", "bridge", "type", "bridge", "stp_state", 0,
                "forward_delay", 0, "mcast_snooping", 0)
        for i in range(self.nodes):
            self.make_namespace(self.name(i))
        self.undo.callback(self.end_programs)  # before their namespaces go
        if self.link.latency:
            self.start_delay_stage()
        for i in range(self.nodes):
            self.join(i)
        command(*inside(self.hub), "ip", "link", "set", "bridge", "up")

    def make_namespace(self, name):
        self.undo.callback(remove, name)
        command("ip", "netns", "add", name)
        command(*inside(name), "ip", "link", "set", "lo", "up")
        net = "/proc/sys/net"
        command(*inside(name), "sh", "-c",
                f"echo 1 > {net}/ipv6/conf/default/disable_ipv6;"
                f"echo 1 > {net}/ipv4/tcp_no_metrics_save")  # no run learns from the one before

    def start_delay_stage(self):
        """delay.py makes both interfaces of every link itself."""
        stage = subprocess.Popen(
            [sys.executable, "-B", FOLDER / "delay.py", str(self.link.latency), self.hub,
             *(self.name(i) for i in range(self.nodes))],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, process_group=0)
        self.processes.append(stage)
        if stage.stdout.readline() != "ready\n":
            raise Refused("the delay stage did not start: it needs /dev/net/tun")

    def join(self, i):
        name, port = self.name(i), f"port{i}"
        if not self.link.latency:
            command(*inside(self.hub), "ip", "link", "add", port, "type", "veth", "peer", "name",
                    "eth0", "netns", name)
        command(*inside(name), "ip", "address", "add", f"{self.addresses[i]}/24", "dev", "eth0")
        self.shape(name, "eth0")
        self.shape(self.hub, port)
        command(*inside(self.hub), "ip", "link", "set", port, "master", "bridge", "up")
        command(*inside(name), "ip", "link", "set", "eth0", "up")
        # By route: as a namespace's default, a kernel may refuse what it allows here.
        command(*inside(name), "ip", "route", "replace", f"{SUBNET}.0/24", "dev", "eth0", "src",
                self.addresses[i], "congctl", self.congestion)

    def shape(self, namespace, device):
        link = self.link
        if link.rate is not None:
            command(*inside(namespace), "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                    f"{int(link.rate)}bit", "burst", link.burst, "latency",
                    f"{max(1, round(link.queue * 1e6))}us")

    # --- what runs in it

    def run(self, index, argv, *, hostname=None, **options):
        """Starts a program in a node's namespace, in a process group of its own. The process, which
        end() or the end of the cluster ends. Options are subprocess.Popen's; `hostname` gives the
        program a host name of its own."""
        if hostname is not None:
            argv = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', hostname, *argv]
        return self.spawn(self.name(index), argv, **options)

    def spawn(self, namespace, argv, **options):
        words = [*inside(namespace), *(str(word) for word in argv)]
        process = subprocess.Popen(words, **{"stdin": subprocess.DEVNULL, "process_group": 0,
                                             **options})
        self.processes.append(process)
        return process

    def end(self, *processes):
        """Ends programs and their process groups: asked first, then killed."""
        for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, None)):
            for process in processes:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
            deadline = time.monotonic() + (patience or 0)
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(None if patience is None
                                 else max(0, deadline - time.monotonic()))
        for process in processes:
            self.processes.remove(process)

    def end_programs(self):
        self.end(*list(self.processes))

    # --- what it has counted

    def counters(self):
        """Per node, since the cluster was made: bytes and packets on its link in both directions, TCP
        segments sent again, packets that its two queues dropped."""
        return [self.counters_of(i) for i in range(self.nodes)]

    def counters_of(self, i):
        text = command(*inside(self.name(i)), "cat", "/proc/net/dev", "/proc/net/snmp")
        eth0 = re.search(r"eth0:(.*)", text)[1].split()
        head, values = re.findall(r"^Tcp: (.*)$", text, re.MULTILINE)
        tcp = dict(zip(head.split(), map(int, values.split())))
        return {"received_bytes": int(eth0[0]), "sent_bytes": int(eth0[8]),
                "received_packets": int(eth0[1]), "sent_packets": int(eth0[9]),
                "retransmits": tcp["RetransSegs"], "segments": tcp["OutSegs"],
                "dropped_at_sender": self.drops(self.name(i), "eth0"),
                "dropped_at_port": self.drops(self.hub, f"port{i}")}

    @staticmethod
    def drops(namespace, device):
        queues = json.loads(command(*inside(namespace), "tc", "-s", "-j", "qdisc", "show", "dev", device))
        return sum(queue.get("drops", 0) for queue in queues)


def difference(after, before):
    """The difference of two readings of counters(), node by node."""
    return [{key: a[key] - b[key] for key in a} for a, b in zip(after, before)]
