# SPDX-License-Identifier: Apache-2.0
"""Ports for tests that have to know one before anybody listens at it."""
import socket


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
