# SPDX-License-Identifier: Apache-2.0
"""The last steps of docs/two-hosts.md, as its reader types them, on two hosts a and b: namespaces with a name, an /etc/hosts like Debian's, and a
real sshd each. The steps before have made what they need: keys, Poseidon, and the script at one path. Needs root, iproute2 and sshd."""
import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(HERE.parent / each) for each in ("process", "shared", "doctor")]

import doctor  # noqa: E402
import machines  # noqa: E402
from test_commands import PATIENCE, quoted, script  # noqa: E402

PAGE = (ROOT / "docs" / "two-hosts.md").read_text()
LIBRARY, PROGRAM = (os.environ.get(name) for name in ("POSEIDON_LIBRARY", "POSEIDON_PROGRAM"))

pytestmark = [pytest.mark.skipif(machines.missing() is not None, reason=str(machines.missing())),
              pytest.mark.skipif(not (LIBRARY and PROGRAM), reason="needs POSEIDON_LIBRARY and POSEIDON_PROGRAM")]


def written(file, text):
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def on_a(tmp_path):
    """Runs one of the page's commands on host a; the home folder, which both hosts see, is the test's."""
    first, programs = tmp_path / "first", tmp_path / "bin"
    first.mkdir()
    programs.mkdir()
    (first / "quickstart.py").write_text(script((ROOT / "docs" / "torch.md").read_text()))
    with doctor.Clinic(tmp_path, first, LIBRARY, 2) as hosts:
        files = []
        for place, name in enumerate("ab"):  # what step 1 adds is below what Debian has
            files.append(tmp_path / f"hosts_{name}")
            named = "".join(f"{address} {letter}\n" for letter, address in zip("ab", hosts.addresses))
            files[-1].write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n{named}")
        hosts.restart(1, before=hosts.dressed(1, files[1]))
        written(programs / "ssh", f'#!/bin/sh\nexec /usr/bin/ssh -F {hosts.client} "$@"\n')
        written(programs / "poseidon", f'#!/bin/sh\nexec {PROGRAM} "$@"\n')
        written(programs / "python", f'#!/bin/sh\nexec {sys.executable} -B "$@"\n')
        variables = doctor.environment(LIBRARY, HOME=str(tmp_path), PATH=f"{programs}:{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="")

        def run(command):
            assert command in [quote for quote, _ in quoted(PAGE)], f"docs/two-hosts.md does not quote `{command}`"
            return subprocess.run([*machines.inside(hosts.name(0)), *hosts.dressed(0, files[0]), "bash", "-c", command], cwd=tmp_path, env=variables,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        yield run


def test_both_machines_train(on_a):
    asked = on_a("poseidon doctor --hosts a,b")
    # A machine that others use may be slow; nothing breaks a job.
    assert re.search(r"^b +10\.209\.0\.2 ", asked.stdout, re.MULTILINE) and "breaks" not in asked.stdout, asked.stdout + asked.stderr
    trained = on_a("cd ~/first && poseidon run --hosts a,b python quickstart.py")
    assert trained.returncode == 0 and "worked alone" not in trained.stderr, trained.stdout + trained.stderr
    shown = re.search(r"```text\n(\[0\] epoch.*?)```", PAGE, re.DOTALL)[1]
    printed, expected = (re.findall(r"^\[0\] epoch (\d): (\d+)\.\d % right", text, re.MULTILINE) for text in (trained.stdout, shown))
    assert printed == expected and len(printed) == 3, trained.stdout
