# SPDX-License-Identifier: Apache-2.0
"""Layer WindowData: what it crops, what several workers draw together, and what it refuses."""

import numpy
import pytest

import job as jobs
import lmdb_files
import messages
import window_models
from tool_files import caffemodel, features, png, weights_of

SIZES = ((40, 60), (33, 25), (50, 50))


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """A folder with images, and their windows in a file: foreground of classes 1 to 9, and as many windows of background. Returns the
    folder, the images (blue first) and a list of windows (image, class, box), where background has class 0."""
    folder = tmp_path_factory.mktemp("windows")
    (folder / "images").mkdir()
    draw = numpy.random.default_rng(6)
    images, made, text = [], [], ""
    for i, (height, width) in enumerate(SIZES):
        pixels = draw.integers(0, 256, (height, width, 3), dtype=numpy.uint8)
        (folder / "images" / f"{i}.png").write_bytes(png(pixels))
        images.append(pixels[:, :, ::-1])
        text += f"# {i}\nimages/{i}.png\n3\n{height}\n{width}\n6\n"
        for j in range(6):
            x1, y1 = int(draw.integers(0, width - 12)), int(draw.integers(0, height - 12))
            x2, y2 = int(draw.integers(x1 + 4, width)), int(draw.integers(y1 + 4, height))
            label, overlap = (3 * i + j + 1, "0.500") if j < 3 else (8, "0.499")
            text += f"{label} {overlap} {x1} {y1} {x2} {y2}\n"
            made.append((i, label if j < 3 else 0, (x1, y1, x2, y2)))
    (folder / "windows.txt").write_text(text)
    mean = draw.uniform(90, 130, (3, 30, 32)).astype(numpy.float32)
    messages.mean_file(folder / "mean.binaryproto", mean.shape, mean.tobytes())
    return folder, images, made, mean


def layer_of(folder, options, transform="", batch=8, name="windows.txt"):
    return f"""
layer {{
  name: "windows" type: "WindowData" top: "data" top: "label" transform_param {{ {transform} }}
  window_data_param {{ source: "{folder / name}" root_folder: "{folder}/" batch_size: {batch} {options} }}
}}
"""


@pytest.fixture
def batches(poseidon, tmp_path):
    """Labels and crops of the first batches in phase TEST."""
    def read(layer, count, size):
        (tmp_path / "net.prototxt").write_text(layer)
        (tmp_path / "none.caffemodel").write_bytes(caffemodel(b"none", numpy.zeros((1, 1), numpy.float32)))
        number = len(list(tmp_path.iterdir()))
        places = [tmp_path / f"{name}{number}" for name in ("data", "label")]
        done = jobs.run(poseidon, "extract_features", tmp_path / "none.caffemodel", tmp_path / "net.prototxt", "data,label",
                        ",".join(map(str, places)), count, "lmdb")
        assert done.code == 0, done.err.text
        data, labels = (features(lmdb_files.read(place)) for place in places)
        return labels.ravel().astype(int), data.reshape(len(data), 3, size, size)
    return read


MODES = [dict(size=16), dict(size=16, pad=3), dict(size=16, square=True), dict(size=16, pad=5, square=True), dict(size=12, pad=1)]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("mean", ("none", "values", "file"))
def test_crops_are_those_of_caffes_arithmetic(windows, batches, mode, mean):
    folder, images, made, mean_image = windows
    size = mode["size"]
    transform = f"crop_size: {size} mirror: true " + {
        "none": "", "values": "mean_value: 104 mean_value: 117 mean_value: 123", "file": f'mean_file: "{folder}/mean.binaryproto"'}[mean]
    options = f"context_pad: {mode.get('pad', 0)} scale: 0.5" + (' crop_mode: "square"' if mode.get("square") else "")
    subtracted = {"none": None, "values": [104, 117, 123], "file": mean_image}[mean]
    count = 12
    labels, crops = batches(layer_of(folder, options, transform), count, size)
    assert (labels.reshape(count, 8)[:, :6] == 0).all() and (labels.reshape(count, 8)[:, 6:] > 0).all()
    candidates = [(label, mirror, at, window_models.window_data(images[i], box, mirror=mirror, mean=subtracted, scale=0.5, **mode))
                  for at, (i, label, box) in enumerate(made) for mirror in (False, True)]
    drawn = set()
    for label, crop in zip(labels, crops, strict=True):
        distances = [numpy.abs(crop - model).max() if label == of else numpy.inf for of, _, _, model in candidates]
        best = int(numpy.argmin(distances))
        assert distances[best] < 1e-4
        drawn.add(candidates[best][1:3])
    assert {mirror for mirror, _ in drawn} == {False, True}
    assert len({at for _, at in drawn}) > len(made) * 2 // 3


def test_without_mirror_none_is_mirrored(windows, batches):
    folder, images, made, _ = windows
    labels, crops = batches(layer_of(folder, "fg_fraction: 1", "crop_size: 16"), 6, 16)
    for label, crop in zip(labels, crops, strict=True):
        ((i, box),) = [(i, box) for i, of, box in made if of == label]
        assert (crop == window_models.window_data(images[i], box, 16)).all()


def test_options_may_be_where_caffes_older_versions_have_them(windows, batches):
    folder, *_ = windows
    labels, crops = batches(layer_of(folder, "context_pad: 2 scale: 0.25", "crop_size: 16 mirror: true"), 3, 16)
    again, same = batches(layer_of(folder, "context_pad: 2 crop_size: 16 mirror: true", "scale: 0.25"), 3, 16)
    assert (labels == again).all() and (crops == same).all()
    older = layer_of(folder, "context_pad: 2 scale: 0.25 crop_size: 16 mirror: true").replace("transform_param {  }", "")
    older = older.replace("layer {", "layers {").replace('"WindowData"', "WINDOW_DATA")
    again, same = batches(older, 3, 16)
    assert (labels == again).all() and (crops == same).all()


# ---- training

NET = """
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1 bias_term: false
  weight_filler { type: "constant" value: 0 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def train(poseidon, tmp_path, windows):
    """Trains on several workers with batches of `rows` together, and returns the hash of the weights and the weights."""
    def run(workers, *flags, rows=16, rate=2**-10, iterations=1, folder=None):
        source, *_ = windows
        folder = folder or tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        folder.mkdir(exist_ok=True)
        layer = layer_of(source, "context_pad: 2", "crop_size: 8 mirror: true mean_value: 100", rows // workers)
        (folder / "net.prototxt").write_text(layer + NET)
        # The gradient at zero is a sum of whole numbers: any order of summation gives the same bits.
        (folder / "solver.prototxt").write_text(
            f'net: "net.prototxt" base_lr: {rate} lr_policy: "fixed" max_iter: {iterations} iter_size: 4 random_seed: 5 '
            f'snapshot_prefix: "{folder}/snap"')
        done = jobs.run(poseidon, "train", "--solver", folder / "solver.prototxt", "--threads", 1, "--run-dir", folder / "run",
                        "--workers", workers, *flags, cwd=tmp_path)
        assert done.code == 0, done.err.text
        model = folder / f"snap_iter_{iterations}.caffemodel"
        return jobs.summary_of(folder / "run")["weights_hash"], weights_of(model)["ip"][0]
    return run


def test_workers_draw_together_what_one_draws(train):
    one, weights = train(1)
    assert numpy.abs(weights).max() > 0
    assert train(4)[0] == one and train(2)[0] == one
    assert train(2, "--global-batch", rows=32)[0] == one  # of a net that says what all have together
    # A third is no binary fraction.
    _, of_one = train(1, rows=24)
    _, of_three = train(3, rows=24)
    numpy.testing.assert_allclose(of_three, of_one, rtol=1e-6, atol=1e-8)
    assert numpy.abs(of_one - weights).max() > 1e-4 * numpy.abs(weights).max()


def test_a_resumed_run_goes_on_at_its_place(train, tmp_path):
    whole, _ = train(2, iterations=6, rate=1e-7)
    folder = tmp_path / "resumed"
    half, _ = train(2, iterations=3, rate=1e-7, folder=folder)
    assert half != whole == train(2, "--snapshot", folder / "snap_iter_3.solverstate", iterations=6, rate=1e-7, folder=folder)[0]


def test_files_are_found_beside_the_net(poseidon, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(png(numpy.zeros((9, 9, 3), numpy.uint8)))
    (tmp_path / "windows.txt").write_text("# 0\na.png\n3\n9\n9\n2\n1 0.9 0 0 8 8\n0 0.1 0 0 8 8\n")
    messages.mean_file(tmp_path / "mean.binaryproto", (3, 8, 8), 1.0)
    layer = """layer { name: "windows" type: "WindowData" top: "data" top: "label" window_data_param {
               source: "windows.txt" root_folder: "images/" mean_file: "mean.binaryproto" crop_size: 8 batch_size: 4 } }"""
    (tmp_path / "net.prototxt").write_text(layer + NET)
    done = jobs.run(poseidon, "time", "--model", tmp_path / "net.prototxt", "--iterations", 1, cwd="/")
    assert done.code == 0, done.err.text


# ---- refusals

def test_what_cannot_be_drawn_from_is_refused(poseidon, windows, tmp_path):
    folder, *_ = windows

    def refused(layer):
        (tmp_path / "net.prototxt").write_text(layer)
        done = jobs.run(poseidon, "time", "--model", tmp_path / "net.prototxt", "--iterations", 1)
        assert done.code == 1 and "\n" not in done.err.text, done.err.text
        return done.err.text

    crop = "crop_size: 16"
    for expected, options, transform in (
            ("crop_size is 0, expected the side of the crops", "", ""),
            ("crop_size is 9000, expected", "", "crop_size: 9000"),
            ("context_pad is 8, expected less than half of crop_size, 16", "context_pad: 8", crop),
            ("context_pad is 4294967295, expected less", "context_pad: 4294967295", crop),
            ("crop_mode is 'round', expected 'warp' or 'square'", 'crop_mode: "round"', crop),
            ("fg_fraction is nan", "fg_fraction: nan", crop),
            ("fg_fraction is 1.5", "fg_fraction: 1.5", crop),
            ("another scale in transform_param than in window_data_param", "scale: 2", crop + " scale: 3"),
            ("no foreground window, expected some with an overlap of fg_threshold, 0.9", "fg_threshold: 0.9", crop),
            ("no background window", "bg_threshold: 0.1", crop),
            ("both mean_file and mean_value", "", crop + f' mean_file: "{folder}/mean.binaryproto" mean_value: 1'),
            ("has 2 mean_value, expected one, or one for each", "", crop + " mean_value: 1 mean_value: 2"),
            ("the mean is 3x30x32, expected one that has crops of 40x40", "", f'crop_size: 40 mean_file: "{folder}/mean.binaryproto"')):
        assert expected in refused(layer_of(folder, options, transform))
    assert "out of memory: cannot allocate 3298534882560000000 bytes" in refused(
        layer_of(folder, "fg_fraction: 1 context_pad: 1", "crop_size: 8000", batch=2**32 - 1))
    assert "batch_size is 0" in refused(layer_of(folder, "", crop, batch=0))
    assert "none.txt cannot be read" in refused(layer_of(folder, "", crop, name="none.txt"))
    (folder / "cut.txt").write_text((folder / "windows.txt").read_text()[:60])
    assert "cut.txt, line " in refused(layer_of(folder, "", crop, name="cut.txt"))
