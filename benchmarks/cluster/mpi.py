#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Open MPI in an emulated cluster: mpirun in node 0, one process per node, TCP over eth0 only.

As a program this is mpirun's remote shell: `mpi.py PREFIX ADDRESS WORDS...` runs the words in the
namespace that has the address.
"""
import os
import pathlib
import shlex
import shutil
import sys

import emulation

SELF = pathlib.Path(__file__).resolve()


def run(cluster, program, **options):
    """Starts mpirun with a program on every node; the process, which prints what all of them print. Raises Refused
    without Open MPI. Options are subprocess.Popen's. Every node has a host name of its own: by one name MPI would
    take them for one host and pass its messages through memory."""
    if shutil.which("mpirun") is None:
        raise emulation.Refused("mpirun is not installed, expected Open MPI (openmpi-bin)")
    agent = shlex.join([sys.executable, "-B", str(SELF), cluster.prefix])
    eth0 = [word for part in ("oob_tcp_if_include", "btl_tcp_if_include")
            for word in ("--mca", part, "eth0")]
    return cluster.run(0, ["mpirun", "--allow-run-as-root", "-np", cluster.nodes, "--host",
                           ",".join(cluster.addresses), "--map-by", "node", "--bind-to", "none",
                           "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self",
                           "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1", *eth0,
                           *program], hostname="node0", **options)


def shell(prefix, *words):
    """Becomes the words in the namespace of the address before them."""
    words = [word for word in words if not word.startswith("-")] if words[0].startswith("-") else words
    address, *rest = words
    index = int(address.rpartition(".")[2]) - 1
    os.execvp("nsenter", ["nsenter", f"--net=/run/netns/{prefix}-{index}", "unshare", "--uts", "sh", "-c",
                     f"hostname node{index} && {' '.join(rest)}"])


if __name__ == "__main__":
    shell(*sys.argv[1:])
