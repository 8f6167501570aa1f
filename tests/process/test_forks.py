# SPDX-License-Identifier: Apache-2.0
"""A net as forks of Caffe write it: fields for speed are noted once, its layers train on several workers, a refusal says the fork."""

import job as jobs
import pytest

NOTE = "'shuffle' is not looked at: records come in the order of their keys"


def forked_net(bench):
    """Fields of NVCaffe, a block as SENet has it behind a shuffle, and three batch normalizations of forks."""
    net = 'default_forward_type: FLOAT16\n' + bench.lenet().read_text()
    net = net.replace("data_param {", "data_param { shuffle: true cache: true")
    block = """
layer { name: "bn1" type: "BN" bottom: "pool1" top: "bn1"
  bn_param { slope_filler { value: 1 } bias_filler { value: 0 } } }
layer { name: "shuffled" type: "Convolution" bottom: "bn1" top: "wide"
  convolution_param { num_output: 6 kernel_size: 1 conv_algorithm: "auto" weight_filler { type: "xavier" } } }
layer { name: "norm" type: "BatchNorm" bottom: "wide" top: "wide" batch_norm_param { scale_bias: true } }
layer { name: "bn2" type: "BN" bottom: "wide" top: "wide"
  bn_param { scale_filler { value: 1 } shift_filler { value: 0.1 } } }
layer { name: "shuffle" type: "ShuffleChannel" bottom: "wide" top: "shuffle" shuffle_channel_param { group: 2 } }
layer { name: "squeeze" type: "Pooling" bottom: "shuffle" top: "squeeze" pooling_param { pool: AVE global_pooling: true } }
layer { name: "gate" type: "Sigmoid" bottom: "squeeze" top: "gate" }
layer { name: "excite" type: "Axpy" bottom: "gate" bottom: "shuffle" bottom: "wide" top: "excite" }
"""
    first = net.index("layer {\n  name: \"ip1\"")
    return bench.write("forked.prototxt", net[:first] + block + net[first:].replace('bottom: "pool1"', 'bottom: "excite"', 1))


def test_a_net_of_forks_trains_on_two_workers(bench):
    solver = bench.solver(net=forked_net(bench), max_iter=12, test_interval=6, snapshot=6, snapshot_after_train=True,
                          snapshot_prefix=bench.folder / "snap", solver_data_type=1)
    flags = ("--workers", 2, "--scheme", "ip1=kv")  # the same plan, whatever the times are
    done = bench.train(solver, *flags)
    assert done.err.text.count(NOTE) == 1, done.err.text
    assert done.err.text.count("'cache' is not looked at") == 1
    assert done.err.text.count("'default_forward_type'") == 1
    assert "'solver_data_type', 'default_forward_type' are not looked at" in done.err.text
    assert "'conv_algorithm' is not looked at" in done.err.text
    assert done.summary["replicas_equal"]
    # Statistics are saved and come back.
    resumed = bench.train(solver, *flags, "--snapshot", bench.folder / "snap_iter_6.solverstate", run_dir="resumed")
    assert resumed.summary["weights_hash"] == done.summary["weights_hash"]
    assert resumed.summary["test"] == done.summary["test"]


@pytest.mark.parametrize("layer, field", [("MarginInnerProduct", "margin"), ("LargeMarginInnerProduct", "largemargin")])
def test_weights_of_a_margin_stay_equal_however_few_batches_a_worker_tests(bench, layer, field):
    """MarginInnerProduct scales its weights when it trains; three workers share a test of two batches. lambda is that of the iteration."""
    net = bench.lenet().read_text()
    first = net.index('layer {\n  name: "ip2"')
    scores = f"""layer {{ name: "ip2" type: "{layer}" bottom: "ip1" bottom: "label" top: "ip2" top: "lambda"
  {field}_inner_product_param {{ num_output: 10 type: QUADRUPLE base: 100 gamma: 0.1 lambda_min: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "silence" type: "Silence" bottom: "lambda" }}
"""
    rest = net[first:]
    net = net[:first] + scores + rest[rest.index("layer {", 1):]
    solver = bench.solver(net=bench.write("margin.prototxt", net), max_iter=12, test_interval=3, test_iter=2, snapshot=6,
                          snapshot_after_train=True, snapshot_prefix=bench.folder / "snap")
    flags = ("--workers", 3, "--scheme", "ip1=kv")  # the same plan, whatever the times are
    done = bench.train(solver, *flags)
    assert done.summary["replicas_equal"]
    resumed = bench.train(solver, *flags, "--snapshot", bench.folder / "snap_iter_6.solverstate", run_dir="resumed")
    assert resumed.summary["weights_hash"] == done.summary["weights_hash"]


def test_a_net_is_timed_with_the_same_notes(bench):
    done = jobs.run(bench.poseidon, "time", "--model", forked_net(bench), "--iterations", 1)
    assert done.code == 0, done.err.text
    assert done.err.text.count("poseidon: " + NOTE) == 1


def test_what_is_missing_is_named_with_its_fork(bench):
    net = bench.write("ssd.prototxt", """
layer { name: "data" type: "SegData" top: "data" top: "label"
        transform_param { crop_size: 2 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_size: 3 relu: true } }
""")
    done = jobs.run(bench.poseidon, "time", "--model", net)
    assert done.code == 1
    assert len(done.err.lines) == 1, done.err.text
    assert f"{net}:2: unknown layer type 'SegData' of temporal segment networks in layer 'data'; line 4: unknown field 'relu' of Intel Caffe in " \
           "ConvolutionParameter of layer 'conv' (Convolution)" in done.err.text
