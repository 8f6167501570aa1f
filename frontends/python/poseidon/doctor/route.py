# SPDX-License-Identifier: Apache-2.0
"""Which interface and route the kernel takes to an address, and why: its own answer, asked over netlink."""
from __future__ import annotations

import dataclasses
import fcntl
import os
import socket
import struct

# Of linux/rtnetlink.h, linux/netlink.h and linux/sockios.h.
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
NLM_F_REQUEST, NLMSG_ERROR = 1, 2
RTM_F_FIB_MATCH = 0x2000  # answer with the entry of the table that matched
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
RTN_LOCAL = 2
SIOCGIFMTU = 0x8921
HEADER, ROUTE, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBBBBBI"), struct.Struct("=HH")


def address_towards(peer: str) -> str:
    """The address of this machine from which `peer`, an address, is reached. Sends nothing. Raises OSError where no way
    leads there."""
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return str(probe.getsockname()[0])


@dataclasses.dataclass
class Route:
    """The way from this machine to an address."""
    interface: str = ""
    source: str = ""      # the address of this machine on that way
    why: str = ""         # "10.0.0.0/24 is on it", "default route by 10.0.0.1"
    mtu: int = 0          # bytes of the interface
    speed: int = 0        # Mbit/s that a real interface announces; 0 where it does not
    wireless: bool = False


def ask(address: str, flags: int) -> tuple[int, int, dict[int, bytes]]:
    """The kernel's route to `address`: its type, its length of prefix, and its attributes. Raises OSError."""
    wanted = ATTRIBUTE.pack(8, RTA_DST) + socket.inet_aton(address)
    body = ROUTE.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, flags) + wanted
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as kernel:
        kernel.settimeout(1.0)
        kernel.send(HEADER.pack(HEADER.size + len(body), RTM_GETROUTE, NLM_F_REQUEST, 1, 0) + body)
        answer = kernel.recv(8192)
    length, kind, _, _, _ = HEADER.unpack_from(answer)
    if kind == NLMSG_ERROR:
        code = -struct.unpack_from("=i", answer, HEADER.size)[0]
        raise OSError(code, os.strerror(code))
    if kind != RTM_NEWROUTE:
        raise OSError(0, "the kernel answers with something else")
    fields = ROUTE.unpack_from(answer, HEADER.size)
    attributes, at = {}, HEADER.size + ROUTE.size
    while at + ATTRIBUTE.size <= length:
        size, name = ATTRIBUTE.unpack_from(answer, at)
        if size < ATTRIBUTE.size:
            break
        attributes[name] = answer[at + ATTRIBUTE.size:at + size]
        at += (size + 3) & ~3
    return fields[7], fields[1], attributes


def why_of(kind: int, prefix: int, attributes: dict[int, bytes]) -> str:
    """Why the kernel takes an entry of its table, in words."""
    if kind == RTN_LOCAL:
        return "it is this machine"
    network = (socket.inet_ntoa(attributes[RTA_DST]) if RTA_DST in attributes else "0.0.0.0") + f"/{prefix}"
    by = " by " + socket.inet_ntoa(attributes[RTA_GATEWAY]) if len(attributes.get(RTA_GATEWAY, b"")) == 4 else ""
    if prefix == 0:
        return "default route" + by
    return f"route to {network}{by}" if by else f"{network} is on it"


def mtu_of(interface: str) -> int:
    """Bytes that a packet of this interface may have; 0 where it does not say."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, SIOCGIFMTU, struct.pack("=16si12x", interface.encode()[:15], 0))
        except OSError:
            return 0
    return int(struct.unpack_from("=16si", answer)[1])


def told_by_system(interface: str, index: int) -> tuple[int, bool]:
    """The speed in Mbit/s of a real interface (0: not known), and whether it is wireless."""
    folder = f"/sys/class/net/{interface}"
    try:
        with open(folder + "/ifindex", encoding="ascii") as file:
            if int(file.read()) != index:  # /sys of another network namespace
                return 0, False
        if not os.path.exists(folder + "/device"):  # virtual ones announce any number
            return 0, False
        wireless = os.path.exists(folder + "/wireless")
        with open(folder + "/speed", encoding="ascii") as file:
            return max(0, int(file.read())), wireless
    except (OSError, ValueError):
        return 0, False


def route_to(address: str) -> Route:
    """The way to `address`, as far as the kernel says it."""
    route = Route()
    try:
        route.source = address_towards(address)
        kind, _, attributes = ask(address, 0)
        index = struct.unpack("=I", attributes[RTA_OIF])[0]
        route.interface = socket.if_indextoname(index)
        route.mtu = mtu_of(route.interface)
        route.speed, route.wireless = told_by_system(route.interface, index)
        route.why = why_of(kind, *ask(address, RTM_F_FIB_MATCH)[1:])
    except (OSError, KeyError, struct.error) as error:
        route.why = route.why or f"no route ({error.strerror if isinstance(error, OSError) else 'not understood'})"
    return route
