# SPDX-License-Identifier: Apache-2.0
"""A terminal, with what it shows, around a command: a real pty, and as much of a terminal as `poseidon --watch` uses."""
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time

import job as jobs

ORDER = re.compile(r"\x1b\[([0-9;?]*)([@-~])")


class Screen:
    """The rows that a terminal shows or has shown, the oldest first, and its cursor. Fails at what it does not know. A terminal that becomes
    narrower breaks what is too long into several rows, and the cursor stays where it was in the text."""

    def __init__(self, columns, rows):
        self.columns, self.height = columns, rows
        self.rows, self.row, self.column = [""], 0, 0
        self.colours = []
        self.partial = ""

    def take(self, text):
        text, self.partial = self.partial + text, ""
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\x1b":
                order = ORDER.match(text, at)
                if order is None:
                    assert len(text) - at < 16, repr(text[at:at + 32])
                    self.partial = text[at:]
                    return
                self.obey(order[1], order[2])
                at = order.end()
                continue
            if char == "\r":
                self.column = 0
            elif char == "\n":
                self.down()
            else:
                assert char >= " ", repr(char)
                if self.column == self.columns:
                    self.column = 0
                    self.down()
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[:self.column] + char + row[self.column + 1:]
                self.column += 1
            at += 1

    def down(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def obey(self, numbers, order):
        if order == "m":
            self.colours.append(numbers)
        elif order == "J" and numbers == "":
            del self.rows[self.row + 1:]
            self.rows[self.row] = self.rows[self.row][:self.column]
        elif order == "K" and numbers == "":
            self.rows[self.row] = self.rows[self.row][:self.column]
        elif order == "A":
            self.row -= int(numbers)
            assert self.row >= max(0, len(self.rows) - self.height), "the cursor went up into what has scrolled away"
        else:
            raise AssertionError(f"the terminal got ESC [ {numbers} {order}")

    def resize(self, columns, rows):
        broken, row = [], 0
        for index, text in enumerate(self.rows):
            if index == self.row:
                row = len(broken) + self.column // columns
            broken += [text[at:at + columns] for at in range(0, max(1, len(text)), columns)]
        self.rows, self.row, self.column = broken, row, self.column % columns
        self.columns, self.height = columns, rows

    @property
    def text(self):
        return "\n".join(self.rows)


class TerminalJob:
    """`poseidon ...` on a terminal of that size, whose session it leads as a shell's would. Ends with all its processes when it is closed."""

    def __init__(self, binary, *arguments, columns=100, rows=30, cwd=None, environment=None):
        self.lock = threading.Lock()
        self.screen = Screen(columns, rows)
        self.bytes = b""
        self.main, terminal = pty.openpty()
        self.tell_size()
        self.before = termios.tcgetattr(terminal)
        inherited = {name: value for name, value in jobs.clean_environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen([binary, *map(str, arguments)], cwd=cwd, stdin=terminal, stdout=terminal, stderr=terminal,
                                        env={**inherited, **(environment or {})}, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.pid = self.process.pid
        self.terminal = terminal
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in jobs.descendants_of(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.close()

    def tell_size(self):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", self.screen.height, self.screen.columns, 0, 0))

    def read(self):
        with contextlib.suppress(OSError):  # at the end of all that has it open
            while part := os.read(self.main, 65536):
                with self.lock:
                    self.bytes += part
                    self.screen.take(part.decode())

    def close(self):
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None
            self.reader.join(jobs.PATIENCE)
            os.close(self.main)

    def resize(self, columns, rows):
        with self.lock:
            self.screen.resize(columns, rows)
        self.tell_size()

    def press(self, key):
        os.write(self.main, key)

    def rows(self):
        with self.lock:
            return list(self.screen.rows)

    def wait_for(self, pattern):
        """Waits until the terminal shows it; returns the match."""
        deadline = time.monotonic() + jobs.PATIENCE
        while True:
            found = re.search(pattern, "\n".join(self.rows()), re.MULTILINE)
            if found:
                return found
            assert time.monotonic() < deadline, f"never shown: {pattern}\n" + "\n".join(self.rows()[-40:])
            assert self.process.poll() is None, f"ended without {pattern}:\n" + "\n".join(self.rows()[-40:])
            time.sleep(0.02)

    def finish(self):
        """Waits for the end. Returns the exit code; the rows are then all that the terminal has shown."""
        code = self.process.wait(jobs.PATIENCE)
        assert termios.tcgetattr(self.terminal) == self.before
        self.close()
        return code
