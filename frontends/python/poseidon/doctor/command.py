# SPDX-License-Identifier: Apache-2.0
"""The command: flags, the examination, what is printed, and the exit code."""
from __future__ import annotations

import argparse
import io
import os
import pathlib
import signal
import sys
import typing

from .examine import Examination, Options
from .findings import Level, findings
from .hosts import Refused, number, parse_hosts, read_hostfile
from .report import plain, text

WELL, FOUND, WRONG_FLAGS, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
LONGEST_TIMEOUT = 3600.0  # seconds


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> typing.NoReturn:
        raise Refused(message)


def port_of(words: str) -> int:
    port = number(words)
    if not port:
        raise argparse.ArgumentTypeError(f"'{words}' is no port, expected 1 to 65535")
    return port


def seconds_of(words: str) -> float:
    try:
        seconds = float(words)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise argparse.ArgumentTypeError(
            f"'{words}' is no time, expected seconds, more than 0 and at most {LONGEST_TIMEOUT:.0f}")
    return seconds


def words_of(text_of_flag: str) -> list[str]:
    words = text_of_flag.split()
    if not words:
        raise argparse.ArgumentTypeError("it is empty, expected a command such as 'ssh -F config'")
    return words


def python_of(path: str) -> str:
    if not path or "\n" in path or "\0" in path:
        raise argparse.ArgumentTypeError("it is no path, expected that of an interpreter")
    return path


def parser() -> Parser:
    made = Parser(prog="poseidon doctor", allow_abbrev=False,
                  description="Finds what keeps a job from running well on these hosts, or on this machine.",
                  epilog="Exit code: 0 nothing found, 1 something that will break or slow a job, 2 wrong flags.")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--hosts", help="hosts and workers on each: a:2,b:2")
    where.add_argument("--hostfile", help="file with a host a line: NAME, NAME:SLOTS, NAME slots=N or ID IP PORT")
    made.add_argument("--ssh", type=words_of, default=["ssh"], help="command that reaches another host (ssh)")
    made.add_argument("--python", type=python_of, default=sys.executable or "python3",
                      help="path of the interpreter on every host (this one's)")
    made.add_argument("--port", type=port_of, default=0, help="port for the measurements on every host (any)")
    made.add_argument("--timeout", type=seconds_of, default=30.0, help="seconds for a host to answer (30)")
    made.add_argument("--json", metavar="FILE", help="also write everything to this file")
    return made


def options_of(flags: argparse.Namespace) -> Options:
    """Raises Refused."""
    if flags.hosts is not None:
        hosts = parse_hosts(flags.hosts)
    else:
        hosts = [] if flags.hostfile is None else read_hostfile(flags.hostfile)
    try:
        folder = os.getcwd()
    except OSError:
        raise Refused("the working directory is gone, expected one that all hosts have") from None
    return Options(hosts, flags.ssh, flags.python, flags.port, flags.timeout, folder,
                   os.environ.get("POSEIDON_TOKEN_FILE", ""), told)


def told(line: str) -> None:
    """Writes what is under way, on a terminal alone, in one line that the next replaces."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


def check_writable(path: str) -> None:
    """Raises Refused where no file can be written at `path`, before anything is measured."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not path or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise Refused(f"file {path!r} of --json cannot be written, expected a file in a folder of yours")


class Terminated(Exception):
    """SIGTERM or SIGHUP came."""


def terminate(*_: object) -> None:
    raise Terminated


def run(arguments: list[str]) -> int:
    """The command with these flags; the exit code."""
    signals = {name: signal.signal(name, terminate) for name in (signal.SIGTERM, signal.SIGHUP)
               if signal.getsignal(name) != signal.SIG_IGN}  # nohup's
    try:
        return examined(arguments)
    except SystemExit as ended:  # after --help
        return int(ended.code or 0)
    except Refused as refused:
        sys.stderr.write(f"poseidon: {refused}\n")
        return WRONG_FLAGS
    except KeyboardInterrupt:
        told("")
        sys.stderr.write("poseidon: stopped\n")
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except BrokenPipeError:  # who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    finally:
        for name, before in signals.items():
            signal.signal(name, before)


def examined(arguments: list[str]) -> int:
    """Raises Refused for wrong flags, and what signals raise."""
    for stream in (sys.stdout, sys.stderr):  # names of files may be no text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    flags = parser().parse_args(arguments)
    options = options_of(flags)
    if flags.json is not None:
        check_writable(flags.json)
    with Examination(options) as examination:
        try:
            report = examination.run()
        except FileNotFoundError as error:
            raise Refused(f"there is no command {error.filename!r} here, expected one in --ssh and --python") from None
        except PermissionError as error:
            raise Refused(f"{error.filename!r} cannot be run here, expected a command in --ssh and --python") from None
    told("")
    found = findings(report)
    print(text(report, found), flush=True)
    if flags.json is not None:
        try:
            pathlib.Path(flags.json).write_text(plain(report, found), encoding="utf-8")
        except OSError as error:
            raise Refused(f"file {flags.json!r} of --json cannot be written ({error.strerror})") from None
    return FOUND if any(finding.level < Level.NOTE for finding in found) else WELL
