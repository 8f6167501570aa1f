# SPDX-License-Identifier: Apache-2.0
"""A process without the job's token cannot join a job, end it or learn its secret, whatever it sends
to the job's ports; and nothing listens beyond loopback."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import resource
import secrets
import signal
import socket
import struct
import subprocess
import time

import pytest

import job as jobs

ENDLESS = 10_000_000


def write_token(path, mode=0o600):
    token = secrets.token_hex(32)
    path.touch(mode=0o600)
    path.write_text(token + "\n")
    path.chmod(mode)
    return token


class Target:
    """A job of two workers under attack."""

    def __init__(self, bench, job, token, wire):
        self.bench = bench
        self.job = job
        self.token = token
        self.wire = wire
        self.pids = job.members(2)
        self.sockets = sorted(jobs.listening_sockets(self.pids))
        # The coordinator's port is that of the first member.
        (self.coordinator,) = jobs.listening_sockets(self.pids[:1])

    def progress(self, lines=2):
        """Waits for that many more lines of training."""
        def seen():
            return sum(line.startswith("iteration ") for line in self.job.out.lines)
        with self.job.out.changed:
            before = seen()
            assert self.job.out.changed.wait_for(
                lambda: seen() >= before + lines or not self.job.out.open, jobs.PATIENCE)
            assert self.job.out.open, self.job.err.text

    def rate(self):
        """Iterations per second of the job, over some lines of training."""
        path = self.bench.folder / "run/metrics.jsonl"
        first = json.loads(path.read_text().splitlines()[-1])["iteration"]
        began = time.monotonic()
        self.progress(4)
        last = json.loads(path.read_text().splitlines()[-1])["iteration"]
        return (last - first) / (time.monotonic() - began)

    def memory(self):
        """Resident bytes of all members; 0 under a sanitizer, which keeps what was freed."""
        if os.environ.get("POSEIDON_SANITIZE"):
            return 0
        pages = sum(int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
                    for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE")

    def check_unharmed(self):
        self.progress()
        assert jobs.children_of(self.job.pid) == self.pids
        assert sorted(jobs.listening_sockets(self.pids)) == self.sockets

    def end(self):
        os.kill(self.job.pid, signal.SIGTERM)
        assert self.job.finish() == 0, self.job.err.text
        summary = jobs.summary_of(self.bench.folder / "run")
        assert summary["replicas_equal"] is True
        return summary


@contextlib.contextmanager
def target_job(bench, wire="plain", token="token"):
    secret = write_token(bench.folder / token)
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, display=50,
                          snapshot=500, snapshot_prefix=bench.folder / "snap")
    with bench.start(solver, "--workers", 2, "--token-file", bench.folder / token,
                     "--wire", wire) as job:
        yield Target(bench, job, secret, wire)


# "auth" meets strangers with the hello of "plain".
@pytest.fixture(params=("plain", "tls"))
def target(bench, request):
    with target_job(bench, request.param) as under_attack:
        yield under_attack


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def frame_header(kind, length, total):
    """A header as wire/frame.h writes it, for a control message, push or probe."""
    header = struct.pack("<HBBI", 0x5350, 6, kind, length)
    header += struct.pack("<IIQ", 1, 0, 0)              # generation, words, step
    header += struct.pack("<HHI", 0, 1, 0)              # model, rank, layer
    header += struct.pack("<QQ", 0, total)              # offset, total
    header += struct.pack("<IBBHI", 0, 1, 0, 0, 0)      # weight, dtype, scheme, flags, reserved
    return header + struct.pack("<I", crc32c(header))


def ask(address, payload, wait=10):
    """Connects, sends, and reads until the other end closes; what it said."""
    answer = b""
    with socket.create_connection(address, timeout=wait) as peer:
        try:
            peer.sendall(payload)
            while data := peer.recv(65536):
                answer += data
        except (ConnectionError, BrokenPipeError):
            pass
    return answer


def ask_all(questions):
    """Asks all (address, payload) at once: half a hello is waited for, as long as a hello may take."""
    with concurrent.futures.ThreadPoolExecutor(len(questions)) as pool:
        for answer in [pool.submit(ask, *question) for question in questions]:
            answer.result()


def test_a_thousand_idle_connections(target):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    quiet = target.rate()
    memory = target.memory()
    with contextlib.ExitStack() as held:
        for i in range(1000):
            peer = held.enter_context(socket.socket())
            peer.setblocking(False)
            peer.connect_ex(target.sockets[i % len(target.sockets)])
        crowded = target.rate()
        target.check_unharmed()
    print(f"{quiet:.0f} iterations/s alone, {crowded:.0f} with a thousand idle connections")
    assert target.memory() - memory < 64 << 20
    target.check_unharmed()
    target.end()
    # A flood of strangers is not a flood of lines.
    assert len(target.job.err.lines) < 60, target.job.err.text


def test_random_bytes_and_scans(target):
    source = random.Random(11)
    # The far end closes, or gives up waiting for the rest of a hello.
    ask_all([(address, source.randbytes(size)) for address in target.sockets
             for size in (1, 2, 63, 64, 65, 128, 1000, 65536)])
    for address in target.sockets:
        for _ in range(100):
            with socket.socket() as probe:
                probe.connect(address)
    low = min(port for _, port in target.sockets)
    for port in range(low - 50, low + 50):
        with socket.socket() as probe:
            probe.settimeout(1)
            probe.connect_ex(("127.0.0.1", port))
    target.check_unharmed()
    target.end()


def test_frames_and_hellos_with_absurd_lengths(target):
    memory = target.memory()
    absurd = (0xffffffff, 1 << 20, (1 << 20) + 1, 0x7fffffff)
    hello = b"POSEIDON" + struct.pack("<BBHH", 1, 0, 2, 2) + bytes(18) + secrets.token_bytes(32)
    assert len(hello) == 64
    payloads = [frame_header(kind, length, 2**64 - 1) * 4
                for kind in (1, 3, 4, 5, 6) for length in absurd]
    # A hello as it must be, and then frames instead of the proof.
    payloads += [hello + frame_header(1, length, 2**64 - 1) * 4 for length in absurd]
    # A TLS record that promises more than a record may hold, and one that promises most.
    payloads += [b"\x16\x03\x01" + struct.pack(">H", length) + bytes(200)
                 for length in (0xffff, 0x4000)]
    # The first bytes of another protocol.
    payloads.append(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
    ask_all([(address, payload) for address in target.sockets for payload in payloads])
    target.check_unharmed()
    assert target.memory() - memory < 64 << 20
    target.end()


def member_task(target, token, rank=1, wire=None):
    """The task that a launcher writes to a member, from the job's own run: worker `rank` of this job."""
    return {
        "server": False, "rank": rank, "host": "intruder", "listen_host": "127.0.0.1",
        "listen_port": 0, "one_machine": True, "local_members": 1, "local_worker": 0, "tells_figures": False, "token": token,
        "coordinator": {"host": target.coordinator[0], "port": target.coordinator[1]},
        "options": {
            "solver": str(target.bench.folder / "solver.prototxt"), "snapshot": "", "weights": "",
            "iterations": 0, "level": 0, "stages": [], "workers": 2, "servers": 0, "sync": False,
            "global_batch": False, "policy": "time", "schemes": {}, "plan_file": "",
            "wire": wire or target.wire, "levels": "auto", "zero_compression": "auto", "strategy": "poseidon", "bandwidth": "", "lanes": 0, "machines": [], "dead_after": 30, "stuck_after": 60,
            "join_timeout": 120, "threads": 1, "run_dir": "",
            "sigint_effect": "stop", "sighup_effect": "snapshot", "dtype": "f32", "gpu": "", "tf32": False,
            "final_plan_step": 10, "on_nan": "stop", "caffe_log": False, "one_stream": False, "net_outputs": ""}}


def run_member(target, task):
    with subprocess.Popen([target.bench.poseidon, "member"], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as member:
        member.stdin.write(json.dumps(task) + "\n")
        member.stdin.flush()  # and stays open: its end would end the member
        events = [json.loads(line) for line in member.stdout]
        return member.wait(jobs.PATIENCE), events


def test_a_member_with_another_token_is_refused(target):
    for other in (secrets.token_hex(32), "0" * 64):
        for rank in (1, 2):
            code, events = run_member(target, member_task(target, other, rank=rank))
            assert code == 1
            assert not [event for event in events if event["event"] == "joined"]
            (failed,) = [event for event in events if event["event"] == "failed"]
            print(failed["message"])
            assert "token" in failed["message"]
    # Another way of talking is no way in either.
    for wire in {"plain", "auth", "tls"} - {target.wire}:
        code, events = run_member(target, member_task(target, target.token, wire=wire))
        assert code == 1 and events[-1]["event"] == "failed"
    target.check_unharmed()
    target.end()


def test_a_member_too_many_is_refused_even_with_the_token(target):
    code, events = run_member(target, member_task(target, target.token))
    assert code == 1 and not [event for event in events if event["event"] == "joined"]
    print(events[-1]["message"])
    target.check_unharmed()
    target.end()


def test_the_token_is_nowhere_to_be_read(target):
    needles = [target.token.encode(), target.token.upper().encode(), bytes.fromhex(target.token)]
    for pid in (target.job.pid, *target.pids):
        for name in ("cmdline", "environ", "comm"):
            content = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
            assert content or name == "environ"
            assert not any(needle in content for needle in needles), (pid, name)
    target.progress(4)
    target.end()
    assert target.token not in target.job.out.text + target.job.err.text
    files = [path for path in target.bench.folder.rglob("*")
             if path.is_file() and path.name != "token"]
    assert len(files) >= 7, files
    for path in files:
        content = path.read_bytes()
        assert not any(needle in content for needle in needles), path


def test_nothing_listens_beyond_loopback(bench):
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS)
    with bench.start(solver, "--workers", 2, "--servers", 2) as job:
        sockets = jobs.listening_sockets([job.pid, *job.members(4)])
        assert len(sockets) == 4
        assert {address for address, _ in sockets} == {"127.0.0.1"}


def test_one_worker_alone_opens_no_port(bench):
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS)
    with bench.start(solver) as job:
        assert job.out.wait(r"^iteration 10,")
        assert not jobs.listening_sockets([job.pid])


@pytest.mark.parametrize("mode", (0o644, 0o640, 0o604, 0o660))
def test_a_token_file_open_to_others_is_refused(bench, mode):
    token = write_token(bench.folder / "token", mode)
    done = jobs.run(bench.poseidon, *bench.arguments(
        bench.solver(), ("--workers", 2, "--token-file", bench.folder / "token"), "run"))
    assert done.code == 2
    assert len(done.err.lines) == 1 and "0600" in done.err.text
    assert token not in done.err.text


def test_two_jobs_do_not_mix(bench):
    """Side by side, each with its own token, with the same bits as alone."""
    solver = bench.solver()
    options = ("--workers", 2, "--scheme", "ip1=sfb")
    for name in ("token1", "token2"):
        write_token(bench.folder / name)
    with bench.start(solver, *options, "--token-file", bench.folder / "token1",
                     run_dir="one") as one, \
         bench.start(solver, *options, "--token-file", bench.folder / "token2",
                     run_dir="two") as two:
        assert one.finish() == 0 and two.finish() == 0
    hashes = {jobs.summary_of(bench.folder / name)["weights_hash"] for name in ("one", "two")}
    assert len(hashes) == 1
