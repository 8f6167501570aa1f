# SPDX-License-Identifier: Apache-2.0
"""The doctor on this machine alone, wrong flags, what it concludes, and who may talk to what listens. Needs no root."""
import os
import re
import socket
import subprocess
import sys
import threading

import pytest

import doctor
import job as jobs

sys.path.insert(0, str(doctor.PACKAGE))

import poseidon.doctor  # noqa: E402
from poseidon.doctor import examine, facts, findings, hosts, measure, report, route  # noqa: E402

SECRET = b"s" * 32
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def run(folder, library, *arguments, **variables):
    with doctor.start(folder, doctor.environment(library, **variables), *arguments) as job:
        made = doctor.Run(job, job.finish(), folder / "report.json")
    print(made.output, made.errors)
    assert doctor.agents_in(folder) == []
    return made


def test_this_machine_is_examined(folder, library):
    done = run(folder, library, "--json", folder / "report.json")
    serious = [finding for finding in done.findings if finding["level"] != "note"]
    assert done.code == (1 if serious else 0)  # whatever the machine that runs the tests has
    assert not {finding["kind"] for finding in done.findings} - {"disk", "memory", "descriptors", "foreign"}
    [host] = done.report["hosts"]
    assert host["facts"]["cores"] >= 1 and host["facts"]["python"] == sys.version.split()[0]
    assert re.fullmatch(r"\d+\.\d+\.\d+", host["facts"]["poseidon"])
    assert done.report["pairs"] == []
    assert done.output.splitlines()[-1].startswith("do this first" if serious else "all well on this machine")


def test_the_names_of_this_machine_need_no_ssh(folder, library):
    """Two names of one machine measure each other over loopback."""
    done = run(folder, library, "--hosts", "localhost,127.0.0.1", "--ssh", "/nowhere/ssh", "--json", folder / "report.json")
    assert [pair["trouble"] for pair in done.report["pairs"]] == ["", ""]
    assert all(pair["route"]["interface"] == "lo" for pair in done.report["pairs"])


@pytest.mark.parametrize("arguments,expected", [
    (["--hosts", ""], "the list of hosts is empty, expected a:2,b:2"),
    (["--hosts", "a,,b"], "host '' is not a name, expected NAME:SLOTS"),
    (["--hosts", "a:0"], "host 'a:0' has no number of workers behind the colon, expected NAME:SLOTS"),
    (["--hosts", "a:x"], "host 'a:x' has no number of workers behind the colon, expected NAME:SLOTS"),
    (["--hosts=-oProxyCommand=x"], "host '-oProxyCommand=x' is not a name, expected NAME:SLOTS"),
    (["--hosts", "a b"], "host 'a b' is not a name, expected NAME:SLOTS"),
    (["--hosts"], "argument --hosts: expected one argument"),
    (["--hosts", "a", "--hostfile", "file"], "argument --hostfile: not allowed with argument --hosts"),
    (["--hostfile", "nothing"], "host file nothing cannot be read (No such file or directory)"),
    (["--hostfile", "."], "host file . cannot be read (Is a directory)"),
    (["--hostfile", "file"], "file:2: expected 'NAME', 'NAME:SLOTS', 'NAME slots=N' or 'ID IP PORT'"),
    (["--hostfile", "/dev/null"], "host file /dev/null names no host"),
    (["--port", "0"], "argument --port: '0' is no port, expected 1 to 65535"),
    (["--port", "65536"], "argument --port: '65536' is no port, expected 1 to 65535"),
    (["--port", "ssh"], "argument --port: 'ssh' is no port, expected 1 to 65535"),
    (["--timeout", "0"], "argument --timeout: '0' is no time, expected seconds, more than 0 and at most 3600"),
    (["--timeout", "nan"], "argument --timeout: 'nan' is no time, expected seconds, more than 0 and at most 3600"),
    (["--timeout", "1e9"], "argument --timeout: '1e9' is no time, expected seconds, more than 0 and at most 3600"),
    (["--ssh", " "], "argument --ssh: it is empty, expected a command such as 'ssh -F config'"),
    (["--ssh", "/nowhere/ssh", "--hosts", "localhost,elsewhere"],
     "there is no command '/nowhere/ssh' here, expected one in --ssh and --python"),
    (["--ssh", "/", "--hosts", "elsewhere"], "'/' cannot be run here, expected a command in --ssh and --python"),
    (["--python", ""], "argument --python: it is no path, expected that of an interpreter"),
    (["--python", "/nowhere/python"], "there is no command '/nowhere/python' here, expected one in --ssh and --python"),
    (["--json", "/nowhere/report"], "file '/nowhere/report' of --json cannot be written, expected a file in a folder of yours"),
    (["--json", "."], "file '.' of --json cannot be written, expected a file in a folder of yours"),
    (["--json", ""], "file '' of --json cannot be written, expected a file in a folder of yours"),
    (["--colour"], "unrecognized arguments: --colour"),
    (["a"], "unrecognized arguments: a"),
    (["--por", "1"], "unrecognized arguments: --por 1"),
])
def test_wrong_flags_are_one_sentence(folder, monkeypatch, capsys, arguments, expected):
    (folder / "file").write_text("a slots=2 # comment\nb slots=none\n")
    monkeypatch.chdir(folder)
    code = poseidon.doctor.main(arguments)
    said = capsys.readouterr()
    assert (code, said.out, said.err) == (2, "", f"poseidon: {expected}\n")
    assert os.listdir(folder) == ["file"]
    assert jobs.children_of(os.getpid()) == []


def test_a_wrong_flag_is_the_exit_code_of_the_process(folder, library):
    done = run(folder, library, "--port", "x")
    assert (done.code, done.output, done.errors) == (2, "", "poseidon: argument --port: 'x' is no port, expected 1 to 65535")


def test_help_is_no_mistake(capsys):
    assert poseidon.doctor.main(["--help"]) == 0
    assert "--hostfile" in capsys.readouterr().out


def test_a_folder_that_is_gone_is_one_sentence(folder, library):
    words = f"cd {folder} && rmdir {folder} && exec {sys.executable} -c 'import sys; sys.path[0:1] = []; "
    words += "from poseidon.doctor import main; sys.exit(main([]))'"
    done = subprocess.run(["sh", "-c", words], env=doctor.environment(library), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "poseidon: the working directory is gone, expected one that all hosts have\n")


def test_an_interpreter_that_is_none_is_found(folder, library):
    """It starts, and is no Python."""
    done = run(folder, library, "--python", "/bin/true")
    assert done.code == 1
    assert "host localhost: the agent ended with code 0: try by hand: /bin/true -m poseidon.doctor.agent" in done.output


@pytest.mark.parametrize("words,expected", [
    ('echo \'{"poseidon": 1, "hello": "3.9.18"}\'; exec cat', "Python 3.9.18 is there, expected 3.10 or newer"),
    ('echo \'{"poseidon": 99}\'; exec cat', "the poseidon there has another doctor than this one"),
    ('echo \'{"poseidon": 1, "hello": "3.11.2"}\'; echo \'{"poseidon": 1, "facts": 5}\'; exec cat',
     "its agent cannot look round there"),
    ("echo welcome; echo SyntaxError: invalid syntax >&2; exit 1", "python there is too old, expected 3.10 or newer"),
])
def test_an_agent_of_another_kind_is_found(folder, library, words, expected):
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{words}\n")
    python.chmod(0o755)
    done = run(folder, library, "--python", python)
    assert done.code == 1 and done.errors == ""
    assert f"breaks  host localhost: {expected}" in done.output


def test_an_agent_that_says_nothing_is_waited_for_no_longer(folder, library):
    silent = folder / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)
    done = run(folder, library, "--python", silent, "--timeout", 1)
    assert done.code == 1 and "host localhost: it gives no answer in time: look whether it hangs there" in done.output


def test_who_reads_no_further_ends_nothing(folder, library):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "poseidon.doctor"], cwd=folder, env=doctor.environment(library),
                          stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode in (0, 1) and done.stderr == ""


def test_host_files_mean_what_they_mean_for_a_job(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# id ip port\n0 10.0.0.1 9000\n1 10.0.0.2 9001\n")
    assert hosts.read_hostfile(str(file)) == [hosts.Host("10.0.0.1", 1, 9000), hosts.Host("10.0.0.2", 1, 9001)]
    file.write_text("a\nb:2\nc slots=3 # with a comment\na\n")
    assert hosts.read_hostfile(str(file)) == [hosts.Host("a", 2), hosts.Host("b", 2), hosts.Host("c", 3)]


def test_a_port_that_is_taken_is_found(folder, library):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(folder, library, "--hosts", "localhost,127.0.0.1", "--port", port, "--json", folder / "report.json")
    assert done.code == 1 and ("port-taken", "hosts localhost and 127.0.0.1") in done.kinds
    assert f"port {port} is taken there: choose another with --port" in done.output


# ---- what is concluded, from reports made by hand

def healthy(count=3, rate=100e6):
    """A report of hosts a, b, ... without a fault."""
    made = [examine.HostReport(name, 1, f"10.0.0.{i}", port=9000 + i, clock_offset=0.0, facts=facts.Facts(
        python="3.11.2", poseidon="1.0.0", frameworks={"torch": "2.13.0+cpu"}, cores=8, memory_bytes=64 << 30,
        available_bytes=32 << 30, descriptors=1024, descriptors_hard=4096, first_port=32768, last_port=60999,
        places=[facts.Place("working directory", "/work", 1 << 40)])) for i, name in enumerate("abcdef"[:count])]
    pairs = [examine.PairReport(sender, receiver, measure.Link(rate=rate, round_trip=0.0002, mtu=1500),
                                route.Route("eth0", mtu=1500)) for sender in range(count) for receiver in range(count)
             if sender != receiver]
    return examine.Report(made, pairs)


def found(report):
    return {(finding.kind, finding.where) for finding in findings.findings(report)}


def change_pairs(report, *which, **fields):
    for pair in report.pairs:
        if (pair.sender, pair.receiver) in which:
            for name, value in fields.items():
                setattr(pair.link if hasattr(pair.link, name) else pair.route, name, value)


EVERY_WAY_OF_B = [(0, 1), (2, 1), (1, 0), (1, 2)]


@pytest.mark.parametrize("change,expected", [
    (lambda report: None, set()),
    (lambda report: change_pairs(report, *EVERY_WAY_OF_B, rate=40e6), {("slow-link", "host b")}),
    (lambda report: change_pairs(report, *EVERY_WAY_OF_B, rate=60e6), set()),
    (lambda report: change_pairs(report, (1, 0), (1, 2), rate=40e6), {("slow-link", "host b")}),
    (lambda report: change_pairs(report, (1, 0), rate=40e6), {("slow-link", "host b to host a")}),
    (lambda report: change_pairs(report, *EVERY_WAY_OF_B, rate=2e9),
     {("slow-link", "host a to host c"), ("slow-link", "host c to host a")}),
    (lambda report: change_pairs(report, (0, 1), (2, 1), rate=0.0, trouble=measure.DROPPED), {("closed-port", "host b")}),
    (lambda report: change_pairs(report, (0, 1), rate=0.0, trouble=measure.REJECTED),
     {("closed-port", "host b, from host a")}),
    (lambda report: change_pairs(report, *EVERY_WAY_OF_B, rate=0.0, trouble=measure.NO_ROUTE), {("no-route", "host b")}),
    (lambda report: change_pairs(report, (0, 1), (2, 1), rate=0.0, trouble=measure.STRANGER), {("stranger", "host b")}),
    (lambda report: change_pairs(report, *EVERY_WAY_OF_B, mtu=1400, black_hole=True), {("black-hole", "host b")}),
    (lambda report: change_pairs(report, (0, 1), (1, 0), round_trip=0.05), {("round-trip", "hosts a and b")}),
    (lambda report: change_pairs(report, (1, 0), (1, 2), wireless=True), {("wireless", "host b")}),
    (lambda report: change_pairs(report, (1, 0), (1, 2), speed=10000), {("below-speed", "host b")}),
    (lambda report: change_pairs(report, (1, 0), (1, 2), speed=1000), set()),
    (lambda report: setattr(report.hosts[1], "clock_offset", -5.0), {("clock", "host b")}),
    (lambda report: setattr(report.hosts[1], "slots", 9), {("cores", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "poseidon", "0.9.0"), {("version", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "python", "3.12.1"), {("python", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "foreign", "4.2"), {("foreign", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "library_trouble", "it cannot be loaded"), {("library", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "available_bytes", 1 << 20), {("memory", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "descriptors", 200), {("descriptors", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "frameworks", {}), {("framework", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "frameworks", {"torch": "2.12.0"}), {("framework", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "frameworks", {"torch": "2.13.0+cu130"}), set()),
    (lambda report: setattr(report.hosts[1].facts, "names", {"a": "127.0.1.1"}), {("loopback-name", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "names", {"a": "10.9.9.9"}), {("name", "host b")}),
    (lambda report: setattr(report.hosts[1].facts, "names", {"b": "127.0.1.1"}), set()),
    (lambda report: setattr(report.hosts[1], "narrow", True), set()),
])
def test_what_is_found(change, expected):
    report = healthy()
    change(report)
    assert found(report) == expected


def test_of_two_hosts_the_slower_way_is_named():
    report = healthy(2)
    change_pairs(report, (0, 1), rate=10e6)
    assert found(report) == {("slow-link", "host a to host b")}


def test_rates_that_the_processor_decides_are_alike():
    report = healthy(rate=4e9)
    change_pairs(report, *EVERY_WAY_OF_B, rate=1.5e9)
    assert found(report) == set()


@pytest.mark.parametrize("rate,cores,slots,expected", [
    (100e6, 8, 1, "one thread of the network busy on each host; 1 lane a worker"),
    (1.25e9, 8, 1, "2 threads of the network busy on each host; 2 lanes a worker"),
    (3.1e9, 4, 1, "5 threads of the network busy on each host; 3 lanes a worker"),
    (3.1e9, 4, 2, "5 threads of the network busy on each host; 1 lane a worker"),
])
def test_it_says_how_many_lanes_a_worker_gets(rate, cores, slots, expected):
    made = healthy(rate=rate)
    for host in made.hosts:
        host.slots, host.facts.cores = slots, cores
    assert expected in report.text(made, [])


def test_the_worst_comes_first():
    report = healthy()
    report.hosts[0].clock_offset = 9.0
    change_pairs(report, *EVERY_WAY_OF_B, rate=40e6)
    report.hosts[2].facts.frameworks = {}
    assert [finding.level.name for finding in findings.findings(report)] == ["BREAKS", "SLOWS", "NOTE"]


def test_an_agent_of_another_version_may_say_anything():
    said = {"python": 3, "cores": "many", "places": [1, {"path": 2, "free_bytes": "x"}], "names": {"a": 1}, "frameworks": [],
            "token_mark": None, "new": {}}
    assert facts.facts_from(said) == facts.Facts(places=[facts.Place("", ""), facts.Place("", "2")], names={"a": "1"})
    assert examine.taken(measure.Link, {"rate": 5, "mtu": 1.5, "black_hole": "yes"}) == measure.Link(rate=5)


# ---- what listens

@pytest.fixture(scope="module")
def listener():
    return measure.Listener("127.0.0.1", 0, SECRET)


def target(listener, secret=SECRET, **more):
    return measure.Target("127.0.0.1", listener.port, secret, 0.1, **more)


def test_who_has_the_secret_measures(listener):
    link = measure.measure(target(listener))
    assert (link.trouble, link.black_hole) == ("", False) and link.rate > 1e6 and link.round_trip > 0


def test_who_has_another_secret_gets_nothing(listener):
    assert measure.measure(target(listener, b"t" * 32)).trouble == measure.BROKEN


def test_who_guesses_a_hash_or_sends_anything_is_dropped(listener):
    for sent in (b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n" + b"\0" * 64, measure.proof(SECRET, b"connects", b"") * 2):
        with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
            stranger.settimeout(jobs.PATIENCE)
            assert len(measure.read_exactly(stranger, measure.NONCE)) == measure.NONCE
            stranger.sendall(sent)
            with pytest.raises(OSError):
                while stranger.recv(1):
                    pytest.fail("a stranger is answered")
                raise OSError


def test_an_answer_from_the_past_proves_nothing(listener):
    """The nonces of one connection are no use for another."""
    first = socket.create_connection(("127.0.0.1", listener.port))
    nonce = measure.read_exactly(first, measure.NONCE)
    ours = b"n" * measure.NONCE
    answer = ours + measure.proof(SECRET, b"connects", nonce + ours)
    with socket.create_connection(("127.0.0.1", listener.port)) as second:
        measure.read_exactly(second, measure.NONCE)
        second.sendall(answer)
        with pytest.raises(OSError):
            measure.read_exactly(second, measure.NONCE)
    first.sendall(answer)
    assert measure.read_exactly(first, measure.NONCE) == measure.proof(SECRET, b"listens", nonce + ours)
    first.close()


def test_who_listens_without_the_secret_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        def pretend():
            stream, _ = server.accept()
            with stream:
                stream.sendall(b"n" * measure.NONCE)
                measure.read_exactly(stream, 2 * measure.NONCE)
                stream.sendall(b"p" * measure.NONCE)
        thread = threading.Thread(target=pretend)
        thread.start()
        link = measure.measure(measure.Target("127.0.0.1", server.getsockname()[1], SECRET, 0.1))
        thread.join()
    assert (link.trouble, link.rate) == (measure.STRANGER, 0.0)


@pytest.mark.parametrize("request_line", [b"{}\n", b"[]\n", b"rate\n", b'{"op": "rate", "seconds": 1e9, "bytes": 1}\n',
                                          b'{"op": "rate", "seconds": "x", "bytes": 1}\n', b'{"op": "size", "bytes": -1}\n',
                                          b'{"op": "size", "bytes": 99999999999}\n', b'{"op": "rate"}\n',
                                          b'{"op": "size", "bytes": [1]}\n', b"x" * 5000])
def test_bad_requests_end_their_connection(listener, request_line):
    stream = measure.connect(target(listener))
    stream.settimeout(jobs.PATIENCE)
    stream.sendall(request_line)
    with pytest.raises(OSError):
        measure.read_exactly(stream, 1)
    stream.close()
    assert measure.measure(target(listener)).trouble == ""  # and no more than that
