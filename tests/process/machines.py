# SPDX-License-Identifier: Apache-2.0
"""Several machines on one: network namespaces joined by a bridge, with a real sshd in each. Needs root, iproute2 and
sshd."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import job as jobs


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


def inside(namespace):
    """The prefix of a command that runs in a namespace. Not `ip -n`: that remounts /sys, which a chroot
    does not allow."""
    return "nsenter", f"--net=/run/netns/{namespace}"


def ip_in(namespace, *arguments):
    subprocess.run([*inside(namespace), "ip", *arguments], capture_output=True, text=True, check=True)


def missing():
    """Why this machine cannot run these tests; None where it can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "nsenter", "ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"needs {program}"
    if sshd() is None:
        return "needs sshd"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "needs network namespaces"


def sshd():
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def place_for_sshd():
    """The folder on which sshd insists, for as long as the context lasts."""
    folder = pathlib.Path("/run/sshd")
    made = not folder.exists()
    if made:
        folder.mkdir(mode=0o755)
    try:
        yield
    finally:
        if made:
            folder.rmdir()


class Machines:
    """Namespaces with the addresses 10.209.0.1, .2, ... and an sshd each."""

    def __init__(self, folder, count, cleanup):
        self.folder = folder
        self.prefix = f"poseidon-{os.getpid()}"
        self.addresses = [f"10.209.0.{i + 1}" for i in range(count)]
        self.daemons = []
        hub = self.make_namespace("hub", cleanup)
        ip_in(hub, "link", "add", "bridge", "type", "bridge")
        ip_in(hub, "link", "set", "bridge", "up")
        self.make_keys()
        for i, address in enumerate(self.addresses):
            name = self.make_namespace(str(i), cleanup)
            ip_in(hub, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0",
               "netns", name)
            ip_in(hub, "link", "set", f"port{i}", "master", "bridge", "up")
            ip_in(name, "address", "add", f"{address}/24", "dev", "eth0")
            ip_in(name, "link", "set", "eth0", "up")
            self.start_sshd(name, address, cleanup)

    def name(self, which):
        return f"{self.prefix}-{which}"

    def make_namespace(self, which, cleanup):
        name = self.name(which)
        ip("netns", "add", name)
        cleanup.callback(ip, "netns", "delete", name, check=False)
        ip_in(name, "link", "set", "lo", "up")
        return name

    def make_keys(self):
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                            self.folder / key], check=True)
        host = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text("".join(f"{a} {host}" for a in self.addresses))
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized_keys")
        self.client = self.folder / "ssh_config"
        self.client.write_text(f"""
IdentityFile {self.folder}/user_key
IdentitiesOnly yes
UserKnownHostsFile {self.folder}/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
LogLevel ERROR
""")

    def start_sshd(self, name, address, cleanup, settings="", before=()):
        """A daemon with more `settings` in its configuration, behind the words `before` that run it."""
        config = self.folder / f"sshd_config_{address}"
        config.write_text(f"""
ListenAddress {address}:22
HostKey {self.folder}/host_key
AuthorizedKeysFile {self.folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
{settings}
""")
        daemon = subprocess.Popen([*inside(name), *before, sshd(), "-D", "-e", "-f", config],
                                  text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        cleanup.callback(self.stop, daemon)
        said = jobs.Lines(daemon.stderr)
        assert said.wait("Server listening on"), said.text
        self.daemons.append(daemon)

    @staticmethod
    def stop(daemon):
        """The daemon and what it started."""
        for pid in [*reversed(jobs.descendants_of(daemon.pid)), daemon.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.wait()

    def hosts(self, slots=1):
        return ",".join(f"{address}:{slots}" for address in self.addresses)
