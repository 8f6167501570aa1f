# SPDX-License-Identifier: Apache-2.0
"""Names of hosts, and the addresses at which their members listen, by the rules of `poseidon run`
(tools/launch/hosts.h)."""
from __future__ import annotations

import dataclasses
import ipaddress
import socket

from .route import address_towards


class Refused(Exception):
    """Wrong flags; the message is one sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine and how many workers are to run there."""
    name: str  # as ssh knows it
    slots: int = 1
    port: int = 0  # where its first member listens; 0: any


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a host's members listen; `text` is empty and `trouble` says why where there is no such place."""
    text: str
    trouble: str = ""
    loopback: bool = False  # the trouble is that the name means this machine's loopback


def number(text: str) -> int | None:
    """`text` as a number of 16 bits, or None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= 65535 else None


def parse_host(entry: str) -> Host:
    """A host of "name" or "name:slots". A name never begins with '-': it would be an option of ssh. Raises Refused."""
    name, colon, count = entry.rpartition(":") if ":" in entry else (entry, "", "")
    if not name or name.startswith("-") or any(letter.isspace() or not letter.isprintable() for letter in name):
        raise Refused(f"host '{entry}' is not a name, expected NAME:SLOTS")
    if not colon:
        return Host(name)
    slots = number(count)
    if not slots:
        raise Refused(f"host '{entry}' has no number of workers behind the colon, expected NAME:SLOTS")
    return Host(name, slots)


def merged(hosts: list[Host]) -> list[Host]:
    """Each name once, with all its slots."""
    found: dict[str, Host] = {}
    for host in hosts:
        before = found.get(host.name)
        found[host.name] = host if before is None else dataclasses.replace(before, slots=before.slots + host.slots)
    return list(found.values())


def parse_hosts(text: str) -> list[Host]:
    """The hosts of "a:2,b:2". Raises Refused."""
    if not text:
        raise Refused("the list of hosts is empty, expected a:2,b:2")
    return merged([parse_host(entry) for entry in text.split(",")])


def parse_line(words: list[str], so_far: int) -> Host:
    """The host of one line of a host file, behind `so_far` others. Raises Refused."""
    if len(words) == 3 and number(words[0]) is not None and number(words[2]) is not None:
        if number(words[0]) != so_far:
            raise Refused(f"id {words[0]} is out of order, expected id {so_far}")
        return dataclasses.replace(parse_host(words[1]), port=number(words[2]) or 0)
    if len(words) == 2 and words[1].startswith("slots="):
        slots = number(words[1].removeprefix("slots="))
        if slots:
            return dataclasses.replace(parse_host(words[0]), slots=slots)
    if len(words) == 1:
        return parse_host(words[0])
    raise Refused("expected 'NAME', 'NAME:SLOTS', 'NAME slots=N' or 'ID IP PORT'")


def read_hostfile(path: str) -> list[Host]:
    """The hosts of a file with one a line; '#' begins a comment. Raises Refused, which names file and line."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Refused(f"host file {path} cannot be read ({why})") from None
    hosts: list[Host] = []
    for count, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            try:
                hosts.append(parse_line(words, len(hosts)))
            except Refused as refused:
                raise Refused(f"{path}:{count}: {refused}") from None
    if not hosts:
        raise Refused(f"host file {path} names no host")
    return merged(hosts)


def is_local(name: str, own_name: str) -> bool:
    """Whether `name` is one of this machine's, which needs no ssh."""
    return name in ("localhost", "127.0.0.1", "::1", own_name)


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def resolve(name: str) -> str:
    """The first IPv4 address of `name` here. Raises OSError where it has none."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except UnicodeError:  # a label that is empty or too long
        raise OSError("it cannot be a name") from None


def addresses_of(hosts: list[Host], own_name: str) -> list[Address]:
    """The addresses of each host's name on this machine. This machine, where its own name means loopback and other
    hosts are on the network, gets its address towards them."""
    found: list[Address] = []
    for host in hosts:
        try:
            found.append(Address(resolve(host.name)))
        except OSError as error:
            found.append(Address("", f"its name has no IPv4 address here ({error.strerror or error})"))
    network = [address.text for address in found if address.text and not is_loopback(address.text)]
    for i, host in enumerate(hosts):
        if not network or not found[i].text or not is_loopback(found[i].text):
            continue
        if is_local(host.name, own_name):
            try:
                found[i] = Address(address_towards(network[-1]))
            except OSError as error:
                found[i] = Address("", f"no way leads from this machine to host {network[-1]} ({error.strerror})")
        else:
            found[i] = Address("", f"its name means the loopback address {found[i].text} on the machine that starts "
                               "the job, which other hosts cannot reach", loopback=True)
    return found
