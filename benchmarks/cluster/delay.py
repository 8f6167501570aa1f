# SPDX-License-Identifier: Apache-2.0
"""The delay stage of an emulated cluster: a wire in user space, because many kernels come without
sch_netem.

    delay.py SECONDS HUB NODE NODE ...     (names of network namespaces)

Makes eth0 in every node and port<i> in the hub, both TAP devices, and carries frames between the two:
at once towards the node, after SECONDS towards the hub, so that every frame between two nodes is
delayed exactly once. Frames keep their offload header, hence 64 kB at a time. Prints "ready" when the
devices exist; they live as long as this program.
"""
import collections
import ctypes
import fcntl
import os
import select
import signal
import struct
import sys
import time

TUNSETIFF = 0x400454CA
TUNSETOFFLOAD = 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
OFFLOADS = 0x01 | 0x02 | 0x04  # checksum, TSO4, TSO6
CLONE_NEWNET = 0x40000000
PR_SET_TIMERSLACK = 29
FRAME = 10 + 14 + 65536
AT_ONCE = 64                   # frames per device and turn: no device starves another

libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace):
    """Moves this thread into a network namespace. Raises OSError."""
    with open(f"/run/netns/{namespace}") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def make_tap(namespace, name):
    """A TAP device in a namespace, as a descriptor to read and write frames. Raises OSError."""
    enter(namespace)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(tap, TUNSETOFFLOAD, OFFLOADS)
    return tap


def frames_from(tap):
    """The frames that wait in a device now, up to AT_ONCE."""
    for _ in range(AT_ONCE):
        try:
            yield os.read(tap, FRAME)
        except BlockingIOError:
            return


def put(tap, frame):
    """Hands a frame to a device; one that is not up loses it, as a wire would."""
    try:
        os.write(tap, frame)
    except OSError:
        pass


def carry(delay, to_node, to_hub):
    """Carries frames until it is ended. `to_node` maps a hub's device to its node's, `to_hub` back."""
    waiting = collections.deque()  # (due, device, frame), in order because the delay is one number
    devices = [*to_node, *to_hub]
    while True:
        patience = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for tap in select.select(devices, [], [], patience)[0]:
            if tap in to_node:
                for frame in frames_from(tap):
                    put(to_node[tap], frame)
            else:
                due = time.monotonic() + delay
                waiting.extend((due, to_hub[tap], frame) for frame in frames_from(tap))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, tap, frame = waiting.popleft()
            put(tap, frame)


def main():
    delay, hub, *nodes = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # held while the cluster was being made
    libc.prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
    inner = [make_tap(node, "eth0") for node in nodes]
    outer = [make_tap(hub, f"port{i}") for i in range(len(nodes))]
    print("ready", flush=True)
    carry(float(delay), dict(zip(outer, inner)), dict(zip(inner, outer)))


if __name__ == "__main__":
    main()
