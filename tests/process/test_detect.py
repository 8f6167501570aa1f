# SPDX-License-Identifier: Apache-2.0
"""`poseidon detect`, compared with pycaffe's arithmetic in window_models.py. tests/pycaffe compares it with our Detector."""

import csv
import io
import json

import numpy
import pytest

import job as jobs
import messages
import window_models
from tool_files import caffemodel, png

SIDE = 12
CLASSES = 4
WINDOWS = {"a, b.png": [(0, 0, 20, 15), (5, 7, 30, 40), (3, 2, 9, 30)], "c.png": [(10, 3, 25, 24), (0, 0, 1, 1), (17, 0, 26, 25), (1, 1, 24, 24)]}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """A folder with a net that sums up its square input in four ways, its weights, a mean image and two images; the weights, the mean of
    each channel and the images, red first."""
    folder = tmp_path_factory.mktemp("detect")
    draw = numpy.random.default_rng(8)
    (folder / "deploy.prototxt").write_text(f"""
name: "sums" input: "data" input_dim: 3 input_dim: 3 input_dim: {SIDE} input_dim: {SIDE}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: {CLASSES} }} }}
layer {{ name: "prob" type: "Softmax" bottom: "ip" top: "prob" }}""")
    weights = draw.normal(0, 1e-3, (CLASSES, 3 * SIDE * SIDE)).astype(numpy.float32)
    (folder / "net.caffemodel").write_bytes(caffemodel(b"ip", weights, numpy.zeros(CLASSES, numpy.float32)))
    mean = draw.uniform(90, 130, (3, 9, 16)).astype(numpy.float32)
    numpy.save(folder / "mean.npy", mean)
    messages.mean_file(folder / "mean.binaryproto", mean.shape, mean.tobytes())
    images = {"a, b.png": draw.integers(0, 256, (30, 40, 3), dtype=numpy.uint8), "c.png": draw.integers(0, 256, (26, 25, 3), dtype=numpy.uint8)}
    for name, pixels in images.items():
        (folder / name).write_bytes(png(pixels))
    with open(folder / "windows.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["filename", "ymin", "xmin", "ymax", "xmax"])
        rows.writerows([name, *window] for name, windows in WINDOWS.items() for window in windows)
    return folder, weights.astype(float), mean.astype(float).mean((1, 2)), images


@pytest.fixture
def detect(poseidon, deployed):
    folder, *_ = deployed

    def run(*arguments, code=0, model="deploy.prototxt"):
        done = jobs.run(poseidon, "detect", "--model_def", model, "--pretrained_model", "net.caffemodel", *arguments, cwd=folder)
        assert done.code == code, done.err.text
        return done.out.text if code == 0 else done.err.text
    return run


def scores(row, weights):
    sums = weights @ row.ravel()
    powers = numpy.exp(sums - sums.max())
    return powers / powers.sum()


def rows_of(text):
    """The header of a CSV, and of its rows the file, the window and the scores."""
    header, *rows = csv.reader(io.StringIO(text))
    return header, [(row[0], tuple(map(int, row[1:5])), numpy.array(row[5:], float)) for row in rows]


@pytest.mark.parametrize("pad", (0, 1, 3))
@pytest.mark.parametrize("mean", ("mean.npy", "mean.binaryproto", None))
def test_scores_are_those_of_pycaffes_arithmetic(detect, deployed, pad, mean):
    folder, weights, values, images = deployed
    out = detect("windows.csv", "--context_pad", pad, "--input_scale", 0.5, *(["--mean_file", mean] if mean else []))
    header, rows = rows_of(out)
    assert header == ["filename", "ymin", "xmin", "ymax", "xmax", *[f"class{i}" for i in range(CLASSES)]]
    assert [(name, window) for name, window, _ in rows] == [(name, window) for name, windows in WINDOWS.items() for window in windows]
    for name, window, found in rows:
        crop = window_models.detector(images[name], window, SIDE, pad, values if mean else None, input_scale=0.5)
        numpy.testing.assert_allclose(found, scores(crop, weights), rtol=1e-5)
    assert len({tuple(found) for *_, found in rows}) == len(rows)


def test_flags_are_detect_pys(detect, deployed):
    folder, weights, values, images = deployed
    out = detect("--crop_mode=list", "--raw_scale", 127.5, "--channel_swap=0,1,2", "--context-pad=0", "windows.csv", "out.csv",
                 "--mean-value", "1,2,3")
    assert "Processed 7 windows in " in out and "Saved to out.csv in " in out
    _, rows = rows_of((folder / "out.csv").read_text())
    for name, window, found in rows:
        crop = window_models.detector(images[name], window, SIDE, 0, [1, 2, 3], raw_scale=127.5, swap=(0, 1, 2))
        numpy.testing.assert_allclose(found, scores(crop, weights), rtol=1e-5)


def test_json_and_csv_say_the_same(detect):
    _, rows = rows_of(detect("windows.csv", "--context_pad", 2))
    found = json.loads(detect("windows.csv", "--context_pad", 2, "--json"))
    assert [(one["filename"], tuple(one["window"])) for one in found] == [(name, window) for name, window, _ in rows]
    numpy.testing.assert_allclose([one["prediction"] for one in found], [scores for *_, scores in rows], rtol=1e-6)


def test_windows_of_an_image_are_put_together_and_columns_may_be_in_any_order(detect, deployed):
    folder, *_ = deployed
    _, rows = rows_of(detect("windows.csv", "--context_pad", 2))
    known = {(name, window): found for name, window, found in rows}
    lines = [("c.png", (10, 3, 25, 24)), ("a, b.png", (0, 0, 20, 15)), ("c.png", (1, 1, 24, 24))]
    (folder / "other.csv").write_text("score, xmax,xmin ,filename,ymax,ymin\r\n" + "".join(
        f'0.5,{xmax}.0, {xmin},"{name}",{ymax},{ymin}\r\n' for name, (ymin, xmin, ymax, xmax) in lines) + "\r\n")
    _, rows = rows_of(detect("other.csv", "--context_pad", 2))
    assert [(name, window) for name, window, _ in rows] == [lines[0], lines[2], lines[1]]
    for name, window, found in rows:
        numpy.testing.assert_allclose(found, known[name, window], rtol=1e-6)


def test_images_of_a_list_have_their_windows_in_a_window_file(detect, deployed):
    folder, *_ = deployed
    _, rows = rows_of(detect("windows.csv", "--context_pad", 2))
    text = ""
    (folder / "a.png").write_bytes((folder / "a, b.png").read_bytes())  # a window file's paths have no spaces
    for i, (name, windows) in enumerate((("a.png", WINDOWS["a, b.png"]), ("c.png", WINDOWS["c.png"]))):
        height, width = deployed[3]["a, b.png" if i == 0 else name].shape[:2]
        text += f"# {i}\n{name}\n3\n{height}\n{width}\n{len(windows)}\n"
        text += "".join(f"1 0.9 {xmin} {ymin} {xmax - 1} {ymax - 1}\n" for ymin, xmin, ymax, xmax in windows)
    (folder / "windows.txt").write_text(text)
    (folder / "images.txt").write_text("c.png\n\na.png\n")
    _, listed = rows_of(detect("images.txt", "--window_file", "windows.txt", "--context_pad", 2))
    expected = [("c.png", window, found) for name, window, found in rows if name == "c.png"]
    expected += [("a.png", window, found) for name, window, found in rows if name != "c.png"]
    assert [row[:2] for row in listed] == [row[:2] for row in expected]
    numpy.testing.assert_allclose([row[2] for row in listed], [row[2] for row in expected], rtol=1e-6)


def test_detect_says_what_is_wrong(detect, deployed, tmp_path):
    folder, *_ = deployed

    def file(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    header = "filename,ymin,xmin,ymax,xmax\n"
    images = file("images.txt", "c.png\n")
    for code, expected, *arguments in (
            (2, "selective_search needs a MATLAB program that is not part of this; give the windows: a .csv", "windows.csv", "--crop_mode", "selective_search"),
            (2, "images.txt has images without windows; give the windows: a .csv", images),
            (2, "is neither a .csv nor a .txt", folder / "c.png"),
            (2, "expected one", "windows.csv", "--window_file", images),
            (2, "the output is out.h5, expected a .csv", "windows.csv", "out.h5"),
            (2, "the output is out.csv, expected a .json", "windows.csv", "out.csv", "--json"),
            (2, "--gpu", "windows.csv", "--gpu"),
            (1, "e.csv is empty, expected", file("e.csv", "")),
            (1, "h.csv has no windows", file("h.csv", header)),
            (1, "c.csv, line 1 has no column xmax", file("c.csv", "filename,ymin,xmin,ymax\na,1,2,3\n")),
            (1, "s.csv, line 3 has 3 cells", file("s.csv", header + "c.png,0,0,9,9\nc.png,0,0\n")),
            (1, "n.csv, line 2 has '1.5' for ymin, expected a whole number", file("n.csv", header + "c.png,1.5,0,9,9\n")),
            (1, "line 2 has '1e300' for xmax", file("w.csv", header + "c.png,1,0,9,1e300\n")),
            (1, "line 2 has 'nan' for xmin", file("q.csv", header + "c.png,1,nan,9,9\n")),
            (1, "none.png cannot be read", file("i.csv", header + "none.png,0,0,9,9\n"), "--context_pad", 1),
            (1, "c.png: the window from row 0 to 9 and column 30 to 39 has nothing of the image, which is 3x26x25", file("o.csv", header + "c.png,0,30,9,39\n"), "--context_pad", 1),
            (1, "images.txt, line 1: c.png is not in window file", images, "--window_file", file("w.txt", "# 0\nd.png\n3\n9\n9\n0\n")),
            (1, "w2.txt, line 3 has '1', expected the number of channels", images, "--window_file", file("w2.txt", "# 0\nc.png\n1\n9\n9\n0\n")),
            (1, f"context of 6 pixels does not fit the net's input, 3x{SIDE}x{SIDE}", "windows.csv", "--context_pad", 6)):
        said = detect(*arguments, code=code)
        assert expected in said and "\n" not in said, said
    assert not (folder / "out.csv.tmp").exists()
