# SPDX-License-Identifier: Apache-2.0
"""Programs that are forked from an interpreter with their slow imports made: torch alone takes seconds, longer than most tests.

  prepared.py serve FOLDER/NUMBER MODULE...   imports the modules, then forks a program for each `run` that connects
  prepared.py run FOLDER FILE ARGUMENT...     has FILE run so, and ends as it ends

A program has the folder, the environment, the standard streams and the arguments of its `run`. It is killed where its `run` is,
and is otherwise a program like any: it runs in __main__, and its interpreter shuts down at its end. But what a module reads from
the environment when it is imported is the server's. A folder has two servers, 0 and 1, which neighbouring ranks take by turns:
programs of one server hash strings by one seed, so a set's order that differs between ranks would show nowhere.
"""
import os
import signal
import socket
import sys


def serve(path, modules):
    """Returns in every program, with its arguments. The server ends when its standard input does, at the latest with its owner."""
    import importlib
    import select
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("listens", flush=True)
        for module in modules:
            importlib.import_module(module)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that fork programs
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(listener, select.POLLIN)
        while not any(fd == 0 for fd, _ in poll.poll()):
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return fork(connection)
            connection.close()
    sys.exit()


def fork(connection):
    """Returns in the program, with its arguments. Its parent stays until the program or its `run` has ended."""
    import json
    import select
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    received, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not received.endswith(b"\n"):
        received += connection.recv(1 << 20) or os._exit(1)
    program = os.fork()
    if program > 0:
        for stream in streams:
            os.close(stream)
        poll = select.poll()
        poll.register(connection, select.POLLIN)  # its end: `run` says no more
        poll.register(os.pidfd_open(program), select.POLLIN)
        if any(fd == connection.fileno() for fd, _ in poll.poll()):
            os.kill(program, signal.SIGKILL)
        _, status = os.waitpid(program, 0)
        try:
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        finally:
            os._exit(0)
    connection.close()
    asked = json.loads(received)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    return asked["arguments"]


def run(folder, arguments):
    """Ends as the program does."""
    import json
    asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"{folder}/{int(os.environ.get('RANK', os.getpid())) % 2}")
        line = json.dumps(asked).encode() + b"\n"
        sent = socket.send_fds(server, [line], [0, 1, 2])
        server.sendall(line[sent:])
        status = int(server.recv(16) or sys.exit("prepared: the server has ended"))
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3:])
sys.argv = serve(sys.argv[2], sys.argv[3:])
__file__ = os.path.abspath(sys.argv[0])
sys.path[0] = os.path.dirname(__file__)
sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
with open(__file__) as source:
    exec(compile(source.read(), __file__, "exec"))
