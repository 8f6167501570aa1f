# SPDX-License-Identifier: Apache-2.0
"""The machine, versions and sources of a result. No host name and no path."""
import datetime
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The sources of the measured programs and of the network.
SOURCES = ("poseidon", "tools/profile", "benchmarks/replay", "benchmarks/cluster",
           "benchmarks/performance/measure.py", "scripts/dependencies.txt")


def machine():
    cpu = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M)
    return {"cpu": cpu[1] if cpu else platform.machine(), "cores": os.cpu_count(),
            "memory_gib": round(int(memory[1]) / 2**20), "kernel": platform.release()}


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions():
    compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=False)
    commit = git("rev-parse", "--short=12", "HEAD")
    return {"poseidon": (commit + ("+" if git("diff", "HEAD", "--", *SOURCES) else "")) if commit else None,
            "gcc": compiler.stdout.strip() or None, "python": platform.python_version(),
            "torch": version_of("torch"), "matplotlib": version_of("matplotlib"), "open_mpi": open_mpi()}


def open_mpi():
    """Its version, None where it is not installed."""
    try:
        told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return None
    found = re.search(r"\(Open MPI\) (\S+)", told)
    return found[1] if found else None


def today():
    return datetime.date.today().isoformat()


def git(*words):
    """What git says; empty where it fails, or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def sources(root=ROOT, folders=SOURCES):
    """A hash over what is built and run, as the working tree has it; tests and prose are left out."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in files(root / folder)):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def files(path):
    if path.is_file():
        return [path]
    return [file for file in path.rglob("*")
            if file.is_file() and file.suffix in (".h", ".cc", ".c", ".py", ".txt")
            and not re.search(r"_test\.|^test_|^conftest", file.name)]
