# SPDX-License-Identifier: Apache-2.0
"""A job of processes of this program on loopback, for programs that measure one layer or one net."""
import multiprocessing
import socket
import sys
import tempfile

CONTEXT = multiprocessing.get_context("spawn")


def run(what, target, workers, *arguments):
    """Calls target(*arguments, rank, port, token file) in a process for each rank, and waits. Ends this one, naming `what`, where
    one of them failed."""
    from poseidon import make_token_file
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        token = folder + "/job.token"
        make_token_file(token)
        processes = [CONTEXT.Process(target=target, args=(*arguments, rank, port, token)) for rank in range(workers)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode != 0 for process in processes):
            sys.exit(f"{what} failed")
