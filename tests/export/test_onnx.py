# SPDX-License-Identifier: Apache-2.0
"""Exported models compute in ONNX Runtime what the net computes in its TEST phase."""

import numpy
import pytest

import nets
from conftest import compute, export

onnx = pytest.importorskip("onnx", reason="the onnx package is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

ANY_BATCH = {"neurons": nets.neurons, "convolutions": nets.convolutions, "products": nets.products, "poolings": nets.poolings,
             "normalizations": nets.normalizations, "shapes": nets.shapes, "in place": nets.in_place, "forks": nets.of_forks,
             "streams": nets.of_streams}
OTHERS = {"whole batch": nets.of_a_whole_batch, "reindexed": nets.reindexed, "detection": nets.detection, "windows": nets.windows,
          "recurrent": nets.recurrent, "states": nets.of_states, "beside": nets.beside_the_batch}
FIXED = dict(nets.fixed())


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    texts = {name: make().text for name, make in ANY_BATCH.items()}
    texts |= {name: net.text for name, net in FIXED.items()}
    texts |= {name: make().text for name, make in OTHERS.items()}
    texts |= {"deploy": nets.DEPLOY, "a step": nets.of_a_step().text}
    return compute(texts, tmp_path_factory.mktemp("cases"))


def run(path, inputs):
    """What ONNX Runtime computes, by output; the model has been checked."""
    onnx.checker.check_model(str(path), full_check=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def difference(found, expected):
    """The largest one, by the largest number that is expected."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert numpy.isfinite(found).all() and numpy.isfinite(expected).all()
    return float(abs(found - expected).max() / max(abs(expected).max(), 1e-20))


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    differences = {name: difference(found[name], expected[name]) for name in expected}
    assert all(value <= 1e-5 for value in differences.values()), {name: value for name, value in differences.items() if value > 1e-5}


def exported(case, name="model.onnx", *flags):
    path = case.folder / name
    export(case.net, case.weights, path, *flags)
    return path


def extents(path):
    return [[dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in onnx.load(path).graph.input]


@pytest.mark.parametrize("name", ANY_BATCH)
def test_layers(cases, name):
    case = cases[name]
    path = exported(case)
    found = run(path, case.inputs)
    assert_equal(found, case.outputs)
    # Twice the images give twice the numbers, where those of different images never meet.
    assert all(shape[0] == "N" for shape in extents(path))
    twice = run(path, {key: numpy.concatenate([value, value]) for key, value in case.inputs.items()})
    for key, value in case.outputs.items():
        if key != "concat4":  # which lays the images of one blob behind those of another
            assert difference(twice[key], numpy.concatenate([value, value])) <= 1e-5, key


@pytest.mark.parametrize("name", OTHERS)
def test_layers_whose_images_meet(cases, name):
    """Or whose outputs do not all grow with the batch: the model still takes any."""
    case = cases[name]
    path = exported(case)
    assert extents(path)[0][0] == "N"
    assert_equal(run(path, case.inputs), case.outputs)


def test_inputs_beside_the_batch(cases):
    case = cases["beside"]
    path = exported(case)
    assert extents(path) == [["N", 5, 4], [5], ["N", 5, 4]]
    twice = {name: value if name == "gain" else numpy.concatenate([value, value]) for name, value in case.inputs.items()}
    assert_equal(run(path, twice), {name: numpy.concatenate([value, value]) for name, value in case.outputs.items()})


def test_fewer_steps(cases):
    """The batch of a recurrent net is its steps: of the first of them comes what comes of them within the whole."""
    case = cases["recurrent"]
    path = exported(case)
    assert extents(path) == [["N", 3, 5], ["N", 3], [3, 2], ["N", 3, 2, 2]]
    found = run(path, {name: value if name == "fixed" else value[:2] for name, value in case.inputs.items()})
    assert_equal(found, {name: value[:2] for name, value in case.outputs.items()})


def test_a_step(cases):
    case = cases["a step"]
    path = exported(case)
    assert [shape[0] for shape in extents(path)] == [1] * 5
    assert_equal(run(path, case.inputs), case.outputs)


def test_states_go_from_run_to_run(cases):
    case = cases["states"]
    path = exported(case)
    outputs, states = ("lstm", "rnn"), ("h", "c", "g")
    parts, inputs = [], dict(case.inputs)
    for steps in (slice(0, 1), slice(1, 4)):
        inputs |= {name: case.inputs[name][steps] for name in ("x", "flags")}
        parts.append(run(path, inputs))
        inputs |= {state: parts[-1][f"{state}_after"] for state in states}
    whole = {name: numpy.concatenate([part[name] for part in parts]) for name in outputs}
    assert_equal(whole | {f"{state}_after": inputs[state] for state in states}, case.outputs)


@pytest.mark.parametrize("name", FIXED)
def test_a_batch_that_the_net_fixes(cases, name):
    case = cases[name]
    path = exported(case)
    assert extents(path) == [[4, 4, 5, 2]]
    assert_equal(run(path, case.inputs), case.outputs)


def test_a_batch_that_the_user_fixes(cases):
    case = cases["deploy"]
    path = exported(case, "four.onnx", "--batch", 4)
    assert extents(path) == [[4, 2, 6, 6]]
    assert_equal(run(path, {"data": case.inputs["data"][:4]}), {name: value[:4] for name, value in case.outputs.items()})


def test_a_net_with_losses_and_data_layers(cases, tmp_path):
    """Its TEST phase without them; the second top of a SoftmaxWithLoss is one of the outputs, and no label is an input."""
    case = cases["deploy"]
    net = tmp_path / "train_val.prototxt"
    net.write_text(nets.TRAIN_VAL)
    sentence = export(net, case.weights, tmp_path / "net.onnx", code=1)
    assert "layer 'test' (Data)" in sentence and "nowhere" in sentence and "--shape data=N,C,H,W" in sentence, sentence
    printed = export(net, case.weights, tmp_path / "net.onnx", "--shape", "data=5,2,6,6")
    assert "from data Nx2x6x6 to ip Nx3, prob Nx3" in printed
    assert_equal(run(tmp_path / "net.onnx", case.inputs), case.outputs)


def test_chosen_outputs(cases):
    case = cases["deploy"]
    path = exported(case, "conv.onnx", "--output", "conv", "--output", "ip")
    found = run(path, case.inputs)
    assert found.keys() == {"conv", "ip"} and (found["conv"] >= 0).all() and (found["conv"] == 0).any()
    assert difference(found["ip"], case.outputs["ip"]) <= 1e-5
    sentence = export(case.net, case.weights, path, "--output", "data", code=1)
    assert "no layer of the net in the TEST phase computes a blob 'data'" in sentence


def test_weights_beside_the_model(cases):
    """As models above 2 GiB have them."""
    case = cases["convolutions"]
    path = exported(case, "apart.onnx", "--external-data")
    assert (case.folder / "apart.onnx.data").stat().st_size > 1024
    assert path.stat().st_size < (case.folder / "apart.onnx.data").stat().st_size + path.stat().st_size
    assert_equal(run(path, case.inputs), case.outputs)
    (case.folder / "apart.onnx.data").unlink()
    with pytest.raises(Exception):
        run(path, case.inputs)


def test_shared_weights_are_there_once(cases):
    model = onnx.load(cases["convolutions"].folder / "model.onnx")
    names = [tensor.name for tensor in model.graph.initializer]
    assert "first.0" in names and "second.0" not in names and names.count("twins.0") == 1
    assert [entry.version for entry in model.opset_import] == [13] and model.ir_version == 7


def test_what_cannot_be_exported_is_named(cases, tmp_path):
    (tmp_path / "net.prototxt").write_text(nets.REFUSED)
    sentence = export(tmp_path / "net.prototxt", cases["deploy"].weights, tmp_path / "net.onnx", code=1)
    assert ("cannot export Python, which runs code that is not in the net (layer 'own'); Filter, whose number of rows depends on the "
            "numbers of its selector (layers 'chosen', 'more'); Dropout with sample_weights_test, which draws (layer 'drop'); "
            "DetectionOutput, whose number of rows depends on what it finds (layer 'found'); --output NAME") in sentence
    assert not (tmp_path / "net.onnx").exists()


def test_wrong_command_lines(cases, tmp_path):
    case = cases["deploy"]
    for flags, words in ((("--shape", "data=1,0"), "NAME=N,C,H,W"), (("--shape", "data"), "NAME=N,C,H,W")):
        assert words in export(case.net, case.weights, tmp_path / "net.onnx", *flags, code=2)
    assert "no input 'label'" in export(case.net, case.weights, tmp_path / "net.onnx", "--shape", "label=1", code=1)
    assert list(tmp_path.iterdir()) == []
