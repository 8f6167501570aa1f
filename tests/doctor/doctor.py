# SPDX-License-Identifier: Apache-2.0
"""Runs of `python -m poseidon.doctor`, and hosts on which faults can be planted: namespaces with a real sshd each, in
which a host has its own name, its own /etc/hosts and its own environment."""
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import job as jobs
import machines

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "frontends" / "python"
LINK = "200mbit"  # of every host: what two busy cores carry beside everything else
BURST = "128k"    # below it, segmentation offload does not fit the bucket
ETHERNET = 14     # bytes of a frame's header


class Run:
    """A finished doctor. `findings` are those of its JSON file, where it wrote one."""

    def __init__(self, job, code, report):
        self.code, self.output, self.errors = code, job.out.text, job.err.text
        self.report = json.loads(report.read_text()) if report.exists() else None

    @property
    def findings(self):
        return self.report["findings"]

    @property
    def kinds(self):
        return {(finding["kind"], finding["where"]) for finding in self.findings}

    def sentence(self, kind):
        """The one sentence of this kind, which is printed too."""
        [finding] = [finding for finding in self.findings if finding["kind"] == kind]
        sentence = f"{finding['where']}: {finding['what']}: {finding['todo']}"
        assert sentence in self.output
        return sentence


def environment(library, **more):
    """The environment in which a process finds the package, with nothing that this one happens to have."""
    kept = {name: value for name, value in jobs.clean_environment().items() if not name.startswith(("POSEIDON_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(PACKAGE), "POSEIDON_LIBRARY": library, **more}


def start(folder, variables, *arguments, wrapper=()):
    """A doctor under way."""
    with contextlib.ExitStack() as stack:
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(variables)
        stack.callback(lambda: (os.environ.clear(), os.environ.update(before)))
        return jobs.Job(sys.executable, "-m", "poseidon.doctor", *arguments, cwd=folder, wrapper=wrapper)


def name_of(pid):
    """The name of the program that runs in a process; empty where the process is gone."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def agents_in(folder):
    """The agents that run in a folder, on whatever host."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            if b"poseidon.doctor.agent" in words and os.readlink(f"/proc/{entry}/cwd") == str(folder):
                found.append(int(entry))
    return found


class Clinic(machines.Machines):
    """The hosts a, b, c, ... A context; the doctor is started on a."""

    def __init__(self, scratch, folder, library, count):
        self.scratch, self.work, self.library = scratch, folder, library
        self.letters = "abcdefgh"[:count]
        self.cleanup = contextlib.ExitStack()
        self.started = {}
        keys = scratch / "ssh"
        keys.mkdir(mode=0o700)
        (scratch / "report.json").unlink(missing_ok=True)
        with contextlib.ExitStack() as cleanup:
            cleanup.enter_context(machines.place_for_sshd())
            super().__init__(keys, count, cleanup)
            for place in range(count):
                self.shape(place, LINK)
            self.cleanup = cleanup.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cleanup.close()

    def make_keys(self):
        super().make_keys()
        known = self.folder / "known_hosts"
        key = (self.folder / "host_key.pub").read_text()
        known.write_text(known.read_text() + "".join(f"{letter} {key}" for letter in self.letters))
        self.hosts_file = self.scratch / "hosts"
        self.write_hosts(self.hosts_file)

    def write_hosts(self, path, **meanings):
        """A file of /etc/hosts, with other meanings for some names."""
        lines = [f"{meanings.get(letter, address)} {letter}" for letter, address in zip(self.letters, self.addresses)]
        path.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        return path

    def start_sshd(self, name, address, cleanup, settings="", before=()):
        """As a machine has it, with its own name and environment."""
        place = self.addresses.index(address)
        settings = settings or self.settings()
        super().start_sshd(name, address, cleanup, settings, before or self.dressed(place))
        self.started[place] = self.daemons[-1]

    def settings(self, **variables):
        """sshd's words for the environment of a host."""
        values = {"PYTHONPATH": str(PACKAGE), "POSEIDON_LIBRARY": self.library, **variables}
        return "SetEnv " + " ".join(f'"{name}={value}"' for name, value in values.items())

    def dressed(self, place, hosts_file=None, first="true"):
        """The words that give a command the host's name and files; `first` runs before it, in its mounts."""
        script = (f"hostname {self.letters[place]} && mount --bind {shlex.quote(str(hosts_file or self.hosts_file))} /etc/hosts && "
                  f"{first} && exec \"$@\"")
        return "unshare", "--uts", "--mount", "sh", "-c", script, "sh"

    def restart(self, place, settings="", before=()):
        """A host's sshd again, with other settings or behind other words."""
        self.stop(self.started[place])
        self.start_sshd(self.name(str(place)), self.addresses[place], self.cleanup, settings, before)

    def shape(self, place, rate, burst=BURST):
        """Both directions of a host's link."""
        for namespace, interface in ((self.name(str(place)), "eth0"), (self.name("hub"), f"port{place}")):
            self.tbf(namespace, interface, rate, burst)

    def tbf(self, namespace, interface, rate, burst=BURST):
        subprocess.run([*machines.inside(namespace), "tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", rate,
                        "burst", str(burst), "latency", "50ms"], check=True, capture_output=True, text=True)

    def another_version(self, version):
        """A folder with the package as a distribution of that version, as in site-packages."""
        folder = self.scratch / "another"
        shutil.copytree(PACKAGE / "poseidon", folder / "poseidon")
        described = folder / f"poseidon_train-{version}.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: poseidon-train\nVersion: {version}\n")
        return folder

    def close_ports(self, place, first, last):
        """A firewall of rules: what others send to these TCP ports of a host is dropped, and nobody hears of it."""
        host = self.name(str(place))
        machines.ip_in(host, "rule", "add", "pref", "100", "lookup", "local")
        machines.ip_in(host, "rule", "delete", "pref", "0")  # which delivers before any other rule
        machines.ip_in(host, "rule", "add", "pref", "10", "iif", "eth0", "ipproto", "tcp", "dport", f"{first}-{last}", "blackhole")

    def route_apart(self, one, other, largest):
        """A router between two hosts, which passes packets of up to `largest` bytes and drops others silently."""
        router = self.make_namespace("router", self.cleanup)
        machines.ip_in(self.name("hub"), "link", "add", "port-router", "type", "veth", "peer", "name", "eth0", "netns", router)
        machines.ip_in(self.name("hub"), "link", "set", "port-router", "master", "bridge", "up")
        machines.ip_in(router, "address", "add", "10.209.0.254/24", "dev", "eth0")
        machines.ip_in(router, "link", "set", "eth0", "up")
        settings = ("ip_forward=1", "conf.all.send_redirects=0", "conf.eth0.send_redirects=0")
        script = "; ".join("echo {1} >/proc/sys/net/ipv4/{0}".format(*setting.replace(".", "/").split("=")) for setting in settings)
        subprocess.run([*machines.inside(router), "sh", "-c", script], check=True)
        self.tbf(router, "eth0", "100mbit", largest + ETHERNET)  # what does not fit its bucket is dropped
        for this, that in ((one, other), (other, one)):
            machines.ip_in(self.name(str(this)), "route", "add", self.addresses[that], "via", "10.209.0.254")

    def start_doctor(self, *arguments, hosts=None, hosts_file=None, **variables):
        """A doctor under way on host a."""
        return start(self.work, environment(self.library, **variables), "--hosts", hosts or ",".join(self.letters), "--ssh",
                     f"ssh -F {self.client}", "--json", self.scratch / "report.json", *arguments,
                     wrapper=(*machines.inside(self.name("0")), *self.dressed(0, hosts_file)))

    def examine(self, *arguments, **options):
        """A doctor's whole run on host a."""
        report = self.scratch / "report.json"
        report.unlink(missing_ok=True)
        with self.start_doctor(*arguments, **options) as job:
            run = Run(job, job.finish(), report)
        print(run.output, run.errors)
        assert "Traceback" not in run.output + run.errors
        return run
