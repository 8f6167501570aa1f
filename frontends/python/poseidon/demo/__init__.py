# SPDX-License-Identifier: Apache-2.0
"""`poseidon demo`: half a minute of two workers on this machine. They train to equal weights; then one is killed, and named."""
from __future__ import annotations

import importlib.util
import subprocess
import sys
import time

WORKERS = 2


def start(program: str, *arguments: str) -> tuple[int, float]:
    """Runs the training script under `poseidon run` and shows it; the exit code and the seconds it took."""
    command = ["run", "-n", str(WORKERS), "python", "-m", "poseidon.demo.train", *arguments]
    print("$ poseidon " + " ".join(command), flush=True)
    began = time.monotonic()
    done = subprocess.run([program, *command[:3], sys.executable, *command[4:]], check=False)
    return done.returncode, time.monotonic() - began


def main(program: str) -> int:
    """The demonstration, on the console; 0 where it showed what it should. `program` is the poseidon command."""
    if importlib.util.find_spec("torch") is None:
        print("poseidon: the demonstration trains with PyTorch, which is not installed: "
              "pip install torch", file=sys.stderr)
        return 1
    print(f"1. {WORKERS} workers train one model; each draws its own samples, and their weights end equal, bit for bit.\n",
          flush=True)
    code, seconds = start(program)
    if code != 0:
        return code
    print(f"\n   {seconds:.1f} s, most of it for loading PyTorch.\n"
          "\n2. The same, but worker 1 is killed (SIGKILL) in step 60. The others learn who is gone, and the job ends.\n",
          flush=True)
    code, seconds = start(program, "--kill")
    print(f"\n   exit code {code} (137 is that of a process that was killed), after {seconds:.1f} s.")
    return 0 if code == 137 else 1
