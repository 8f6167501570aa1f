# SPDX-License-Identifier: Apache-2.0
"""What scripts and people make of a run: Caffe's log, tables, charts and pictures of it, and the flags of Poseidon-Caffe."""

import csv
import re
import shutil
import struct
import xml.etree.ElementTree as xml
import zlib

import pytest

import caffe_files
import job as jobs

SHORT = {"max_iter": 4, "display": 2, "test_interval": 2, "test_iter": 1}


@pytest.fixture(scope="module")
def run(poseidon, databases, tmp_path_factory):
    """A run of two workers, as scripts of Poseidon-Caffe start it; its log is all that it printed."""
    folder = tmp_path_factory.mktemp("logs")
    (folder / "net.prototxt").write_text(caffe_files.small_lenet(databases.train, databases.test))
    (folder / "solver.prototxt").write_text(
        caffe_files.solver("net.prototxt", snapshot=4, snapshot_prefix="net", **SHORT) + 'device_id: "0,1"\n')
    done = jobs.run(
        poseidon, "train", "--solver=solver.prototxt", "--run-dir", "run", "--threads", 1, "--num_clients", 2, "--client_id=0",
        "--num_table_threads=2", "--table_staleness=0", "--svb=false", "--svb_timeout_ms=10", "--consistency_model", "SSPPush",
        "--init_thread_access_table=true", "--net_outputs=out", "--snapshot=", cwd=folder)
    assert done.code == 0, done.err.text
    (folder / "train.log").write_text("\n".join(done.err.log) + "\n")
    done.folder = folder
    done.summary = jobs.summary_of(folder / "run")
    return done


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_standard_error_that_is_no_terminal_has_caffes_log(run):
    texts = [re.sub(r"^I\d{4} [\d:]{8}\.\d{6} +\d+ ", "", line) for line in run.err.log]
    assert texts[0].endswith("Starting Optimization")
    assert "solver.cpp:272] Solving SmallLeNet" in texts and "solver.cpp:273] Learning Rate Policy: fixed" in texts
    assert [t for t in texts if "Testing net" in t] == [f"solver.cpp:330] Iteration {i}, Testing net (#0)" for i in (0, 2, 4)]
    assert sum(bool(re.fullmatch(r"solver.cpp:218\] Iteration [02] \(\S+ iter/s, \S+s/2 iters\), loss = \S+", t)) for t in texts) == 2
    assert sum(bool(re.fullmatch(r"solver.cpp:237\]     Train net output #0: loss = (\S+) \(\* 1 = \1 loss\)", t)) for t in texts) == 2
    assert sum("Test net output #1: loss" in t for t in texts) == 3
    assert "sgd_solver.cpp:105] Iteration 2, lr = 0.02" in texts
    assert "solver.cpp:447] Snapshotting to binary proto file net_iter_4.caffemodel" in texts
    assert texts[-1].endswith("] Optimization Done.")
    # Our own lines stay on standard output.
    assert run.out.count(r"^iteration \d, loss ") == 3 and run.out.count(r"^test at iteration \d, accuracy = ") == 3


def test_our_own_lines_alone(poseidon, run):
    done = jobs.run(poseidon, "train", "--solver", "solver.prototxt", "--run-dir", "quiet", "--log", "poseidon", cwd=run.folder)
    assert done.code == 0 and not done.err.log and done.out.count(r"^iteration \d, loss ") == 3


def test_tables_of_the_log_and_of_the_metrics_are_the_same(poseidon, run):
    (run.folder / "tables").mkdir()
    for log in ("train.log", "run/metrics.jsonl"):
        done = jobs.run(poseidon, "parse_log", log, "tables", "--verbose", cwd=run.folder)
        name = log.split("/")[-1]
        assert done.code == 0 and done.out.lines == [f"Wrote tables/{name}.{kind}" for kind in ("train", "test")]
    for kind, iterations in (("train", [0, 2]), ("test", [0, 2, 4])):
        one, other = rows(run.folder / f"tables/train.log.{kind}"), rows(run.folder / f"tables/metrics.jsonl.{kind}")
        assert list(one[0]) == list(other[0]) == ["NumIters", "Seconds", "LearningRate"] + ["accuracy", "loss"][kind == "train":]
        assert [float(row["NumIters"]) for row in one] == [float(row["NumIters"]) for row in other] == iterations
        for a, b in zip(one, other):
            assert float(a["Seconds"]) == pytest.approx(float(b["Seconds"]), abs=0.5)
            for column in set(a) - {"Seconds"}:
                assert float(a[column]) == pytest.approx(float(b[column]), rel=1e-5)
    done = jobs.run(poseidon, "extract_seconds", "train.log", "seconds.txt", cwd=run.folder)
    seconds = [float(line) for line in (run.folder / "seconds.txt").read_text().splitlines()]
    assert done.code == 0 and seconds == sorted(seconds) and len(seconds) == 8


def picture(path):
    """The texts of an SVG document, which must be well-formed."""
    return ["".join(node.itertext()) for node in xml.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")]


def test_charts_are_drawn(poseidon, run):
    for kind, title in ((0, "Test accuracy vs. Iters"), (5, "Train learning rate vs. Seconds"), (6, "Train loss vs. Iters")):
        done = jobs.run(poseidon, "plot_training_log", kind, f"{kind}.svg", "train.log", "run/metrics.jsonl", cwd=run.folder)
        assert done.code == 0, done.err.text
        texts = picture(run.folder / f"{kind}.svg")
        assert title in texts and {"train", "run"} <= set(texts)
    refused = jobs.run(poseidon, "plot_training_log", 6, "6.pdf", "train.log", cwd=run.folder)
    assert refused.code == 2 and "6.pdf is no *.svg and no *.png" in refused.err.text


def pixels_of(path):
    """Size and decompressed rows of a PNG of 8 bits."""
    data, at, rows, size = path.read_bytes(), 8, b"", None
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + length]
        assert zlib.crc32(kind + chunk) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        if kind == b"IHDR":
            size = struct.unpack(">II", chunk[:8])
        rows += chunk if kind == b"IDAT" else b""
        at += 12 + length
    return size, zlib.decompress(rows)


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="needs rsvg-convert (librsvg2-bin)")
def test_pictures_are_png_too(poseidon, run):
    for command in (("plot_training_log", 6, "drawn{}", "train.log"), ("draw_net", "net.prototxt", "drawn{}", "--phase", "TRAIN")):
        for kind in (".svg", ".png"):
            done = jobs.run(poseidon, *(str(word).format(kind) for word in command), cwd=run.folder)
            assert done.code == 0, done.err.text
        root = xml.parse(run.folder / "drawn.svg").getroot()
        size, rows = pixels_of(run.folder / "drawn.png")
        assert [abs(got - float(root.get(side))) < 1 for got, side in zip(size, ("width", "height"))] == [True, True]
        assert len(set(rows)) > 50  # filtered rows: lines, letters and their edges


def test_a_png_needs_librsvg(poseidon, run):
    tools = run.folder / "tools"
    tools.mkdir()
    refused = jobs.run(poseidon, "plot_training_log", 6, "6.png", "train.log", cwd=run.folder, environment={"PATH": str(tools)})
    assert refused.code == 2 and "6.png is a PNG, which the program rsvg-convert draws" in refused.err.text
    assert "install librsvg2-bin" in refused.err.text
    for script, why in (("exit 3", "exited with code 3"), ("kill -9 $$", "was killed by signal 9"), ("echo no picture", "exited with code 0")):
        (tools / "rsvg-convert").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "rsvg-convert").chmod(0o755)
        failed = jobs.run(poseidon, "plot_training_log", 6, "6.png", "train.log", cwd=run.folder, environment={"PATH": str(tools)})
        assert failed.code == 1 and f"rsvg-convert made no PNG for 6.png: it {why}" in failed.err.text
        assert not (run.folder / "6.png").exists()


def test_a_net_is_drawn_with_its_schemes(poseidon, run):
    done = jobs.run(poseidon, "draw_net", "net.prototxt", "net.svg", "--phase", "TRAIN", "--plan", "run/plan.json", cwd=run.folder)
    assert done.code == 0, done.err.text
    texts = picture(run.folder / "net.svg")
    assert {"conv1 (Convolution)", "relu1 (ReLU)", "label", "TRAIN only"} <= set(texts) and "accuracy (Accuracy)" not in texts
    assert texts.count("goes by kv") == 3
    refused = jobs.run(poseidon, "draw_net", "net.prototxt", "net.gif", cwd=run.folder)
    assert refused.code == 2 and "net.gif is no *.svg" in refused.err.text


def test_flags_of_poseidon_caffe_are_followed_or_said(poseidon, run):
    assert run.summary["workers"] == 2
    assert {layer["scheme"] for layer in run.summary["plan"]} == {"kv"}
    assert any("without effect here: --svb_timeout_ms" in line for line in run.err.lines)
    blocks = (run.folder / "out.netoutputs").read_text().split("\n\n")
    assert blocks[0].splitlines()[0] == "Iteration,time,loss,loss," and blocks[1].splitlines()[0] == "Iteration,time,loss,accuracy,loss,"
    numbers = [[float(cell) for cell in line.split(",")[:-1]] for line in blocks[0].splitlines()[1:]]
    assert [row[0] for row in numbers] == [0, 2, 4] and all(row[2] == row[3] for row in numbers)
    # Worker 0's own loss is another one than the mean of both.
    own = [float(match[1]) for match in map(re.compile(r"Train net output #0: loss = (\S+)").search, run.err.log) if match]
    assert own[0] != numbers[0][2] and own[0] == pytest.approx(numbers[0][2], rel=0.5)
    other = jobs.run(poseidon, "train", "--solver=solver.prototxt", "--client_id=1", "--num_clients=2", cwd=run.folder)
    assert other.code == 0 and "client 1 is started by client 0" in other.out.text
    for flag, expected in (("--table_staleness=2", "synchronous and exact"), ("--consistency_model=SSPAggr", "SSP or SSPPush"),
                           ("--snapshot_clock=5", "snapshot_prefix"), ("--gpu=0,1", "leave the flag out")):
        refused = jobs.run(poseidon, "train", "--solver=solver.prototxt", flag, cwd=run.folder)
        assert refused.code == 2 and len(refused.err.lines) == 1 and expected in refused.err.text, flag


def test_every_worker_reads_its_part_where_the_source_was_divided(poseidon, databases, tmp_path):
    for k in range(2):
        shutil.copytree(databases.train, tmp_path / f"train_{k}")
    net = caffe_files.small_lenet("train", databases.test).replace("batch_size: 12", "batch_size: 12 shared_file_system: false")
    (tmp_path / "net.prototxt").write_text(net)
    solver = tmp_path / "solver.prototxt"
    solver.write_text(caffe_files.solver("net.prototxt", **SHORT))
    parts = jobs.run(poseidon, "train", "--solver", solver, "--workers", 2, "--threads", 1, "--run-dir", "parts", cwd=tmp_path)
    assert parts.code == 0, parts.err.text
    # Equal parts, so both workers read what one reads that has the whole.
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copytree(databases.train, alone / "train")
    shutil.copy(tmp_path / "net.prototxt", alone)
    shutil.copy(solver, alone)
    one = jobs.run(poseidon, "train", "--solver", "solver.prototxt", "--threads", 1, "--run-dir", "one", cwd=alone)
    assert one.code == 0, one.err.text
    losses = [[match[1] for match in map(re.compile(r"^iteration \d, loss (\S+),").search, done.out.lines) if match]
              for done in (parts, one)]
    assert len(losses[0]) == 2 and [float(x) for x in losses[0]] == pytest.approx([float(x) for x in losses[1]], rel=1e-4)
    three = jobs.run(poseidon, "train", "--solver", solver, "--workers", 3, "--run-dir", "three", cwd=tmp_path)
    assert three.code == 1 and "there is no train_2 for worker 2" in three.err.text
    (alone / "train").rename(alone / "elsewhere")
    assert jobs.run(poseidon, "train", "--solver", "solver.prototxt", cwd=alone).code == 1
