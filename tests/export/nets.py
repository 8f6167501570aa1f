# SPDX-License-Identifier: Apache-2.0
"""Small nets whose layers have every option that an exported model has to say in another way."""


class Net:
    """A prototxt that grows layer by layer; every layer makes the blob of its name unless `top` says otherwise."""

    def __init__(self):
        self.text = ""

    def input(self, name, *shape):
        dims = " ".join(f"dim: {extent}" for extent in shape)
        self.text += f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'
        return self

    def layer(self, kind, name, bottoms, options="", tops=None):
        bottoms = [bottoms] if isinstance(bottoms, str) else bottoms
        lines = "".join(f' bottom: "{bottom}"' for bottom in bottoms)
        lines += "".join(f' top: "{top}"' for top in ([name] if tops is None else tops))
        self.text += f'layer {{ name: "{name}" type: "{kind}"{lines} {options} }}\n'
        return self

    def several(self, kind, name, bottoms, options):
        """A layer for each of the options, beside one another."""
        for i, option in enumerate(options):
            self.layer(kind, f"{name}{i}", bottoms, option)
        return self


def neurons():
    net = Net().input("data", 2, 3, 5, 4).input("positive", 2, 3, 4).input("matrix", 2, 6)
    for kind in ("AbsVal", "BNLL", "Dropout", "Sigmoid", "TanH"):
        net.layer(kind, kind.lower(), "data")
    net.layer("ELU", "elu", "data", "elu_param { alpha: 0.7 }")
    net.several("ReLU", "relu", "data", ["", "relu_param { negative_slope: 0.1 }", "relu_param { negative_slope: -0.5 }"])
    net.several("PReLU", "prelu", "data", ["", "prelu_param { channel_shared: true }"])
    net.layer("PReLU", "prelu_of_matrix", "matrix")
    net.several("Power", "power", "data", ["", "power_param { scale: 0.5 shift: -1 }", "power_param { power: 2 scale: 3 }",
                                           "power_param { power: 3 shift: 0.25 }", "power_param { power: 0 }"])
    net.layer("Power", "root", "positive", "power_param { power: -0.5 }")
    net.several("Exp", "exp", "data", ["", "exp_param { base: 2 scale: 0.5 shift: 1 }", "exp_param { base: 0.3 }"])
    net.several("Log", "log", "positive", ["", "log_param { base: 10 scale: 2 shift: 0.5 }"])
    net.layer("Clip", "clip", "data", "clip_param { min: -0.5 max: 1.25 }")
    net.several("Swish", "swish", "data", ["", "swish_param { beta: 1.7 }"])
    net.layer("Threshold", "threshold", "data", "threshold_param { threshold: 0.25 }")
    net.several("Softmax", "softmax", "data", ["", "softmax_param { axis: 2 }", "softmax_param { axis: -1 }"])
    return net


def convolutions():
    net = Net().input("data", 2, 4, 11, 9).input("line", 2, 4, 13).input("volume", 2, 2, 5, 6, 7)
    windows = ("kernel_size: 3", "kernel_size: 3 bias_term: false pad: 1 stride: 2",
               "kernel_h: 5 kernel_w: 2 pad_h: 2 pad_w: 1 stride_h: 3 stride_w: 1", "kernel_size: 3 group: 2 dilation: 2",
               "kernel_size: 3 pad: 2 pad: 0 dilation: 2 dilation: 1 group: 4")
    for i, options in enumerate(windows):
        for kind in ("Convolution", "Deconvolution"):
            net.layer(kind, f"{kind.lower()}{i}", "data", f"convolution_param {{ num_output: 8 {options} }}")
    net.layer("DepthwiseConvolution", "depthwise", "data", "convolution_param { num_output: 8 kernel_size: 3 pad: 1 }")
    net.layer("ConvolutionDepthwise", "depthwise1", "data", "convolution_param { num_output: 4 kernel_size: 3 stride: 2 }")
    net.layer("Convolution", "line_conv", "line", "convolution_param { num_output: 5 kernel_size: 3 pad: 1 }")
    net.layer("Deconvolution", "line_deconv", "line", "convolution_param { num_output: 5 kernel_size: 4 stride: 2 pad: 1 }")
    net.layer("Convolution", "volume_conv", "volume", "convolution_param { num_output: 3 kernel_size: 3 stride: 2 pad: 1 }")
    net.layer("Deconvolution", "volume_deconv", "volume", "convolution_param { num_output: 3 kernel_size: 2 stride: 2 }")
    net.layer("Convolution", "frames", "volume", "convolution_param { axis: 2 num_output: 4 kernel_size: 3 }")
    net.layer("Deconvolution", "frames_back", "volume", "convolution_param { axis: -3 num_output: 4 kernel_size: 3 }")
    # Several bottoms through the same weights, and weights that two layers share.
    net.several("Im2col", "windows", "data", [f"convolution_param {{ {options} }}" for options in (
        "kernel_size: 3 pad: 1 stride: 2", "kernel_h: 2 kernel_w: 3 dilation: 2", "kernel_size: 1")])
    net.layer("Im2col", "windows_of_lines", "line", "convolution_param { kernel_size: 3 pad: 1 }")
    net.layer("Im2col", "windows_of_volumes", "volume", "convolution_param { kernel_size: 2 stride: 2 }")
    net.layer("Im2col", "windows_of_frames", "volume", "convolution_param { axis: 2 kernel_size: 3 }")
    net.layer("Power", "other", "data", "power_param { scale: 0.5 shift: 0.25 }")
    net.layer("Convolution", "twins", ["data", "other"], "convolution_param { num_output: 3 kernel_size: 2 }", ["left", "right"])
    for name, bottom in (("first", "data"), ("second", "other")):
        net.layer("Convolution", name, bottom,
                  'param { name: "w" } param { name: "b" } convolution_param { num_output: 3 kernel_size: 2 }')
    return net


def products():
    net = Net().input("data", 2, 4, 5, 3).input("matrix", 2, 7).input("index", 2, 3)
    net.several("InnerProduct", "ip", "data", [f"inner_product_param {{ num_output: 6 {options} }}" for options in (
        "", "bias_term: false", "transpose: true", "axis: 2", "axis: -1 transpose: true")])
    net.several("InnerProduct", "of_matrix", "matrix", ["inner_product_param { num_output: 6 }",
                                                        "inner_product_param { num_output: 6 bias_term: false }"])
    net.several("Embed", "embed", "index", ["embed_param { input_dim: 5 num_output: 4 }",
                                            "embed_param { input_dim: 5 num_output: 4 bias_term: false }"])
    return net


def poolings():
    net = Net().input("data", 2, 3, 13, 11).input("square", 2, 2, 7, 7).input("even", 2, 2, 8, 8)
    windows = ("kernel_size: 3 stride: 2", "kernel_size: 3 stride: 2 pad: 1", "kernel_size: 2 stride: 2",
               "kernel_size: 2 stride: 2 pad: 1", "kernel_size: 5 stride: 3 pad: 2", "kernel_size: 3 pad: 1",
               "kernel_size: 4 stride: 3 pad: 3", "kernel_h: 4 kernel_w: 2 stride_h: 3 stride_w: 2 pad_h: 2 pad_w: 0",
               "kernel_size: 5 stride: 4 pad: 1", "kernel_size: 2 stride: 3 pad: 1", "kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR",
               "kernel_size: 2 stride: 2 round_mode: FLOOR", "kernel_size: 3 stride: 2 ceil_mode: false", "kernel_size: 7",
               "global_pooling: true")
    for pool in ("MAX", "AVE"):
        for bottom in ("data", "square"):
            net.several("Pooling", f"{pool}_{bottom}", bottom, [f"pooling_param {{ pool: {pool} {window} }}" for window in windows])
    for i, window in enumerate(windows):
        net.layer("Pooling", f"places{i}", "data", f"pooling_param {{ pool: MAX {window} }}", [f"best{i}", f"place{i}"])
    for pool in ("MAX", "AVE"):
        net.several("SPP", f"spp_{pool}", "data", [f"spp_param {{ pyramid_height: {height} pool: {pool} }}" for height in (1, 2, 3)])
    net.layer("Power", "sparse", "even", "power_param { shift: -1.5 }").layer("ReLU", "sparse_relu", "sparse", tops=["sparse"])
    net.several("Pooling", "drawn", "sparse", [f"pooling_param {{ pool: STOCHASTIC {window} }}" for window in (
        "kernel_size: 3 stride: 2", "kernel_size: 2 stride: 3", "global_pooling: true")])
    net.several("SPP", "spp_drawn", "sparse", [f"spp_param {{ pyramid_height: {height} pool: STOCHASTIC }}" for height in (1, 3)])
    net.several("LRN", "lrn", "data", [f"lrn_param {{ {options} }}" for options in (
        "", "local_size: 3 alpha: 0.9 beta: 0.5 k: 2", "norm_region: WITHIN_CHANNEL local_size: 3 alpha: 0.5",
        "norm_region: WITHIN_CHANNEL local_size: 5 beta: 0.6")])
    return net


def normalizations():
    net = Net().input("data", 2, 3, 5, 4).input("gate", 2, 3).input("matrix", 2, 6)
    net.several("BatchNorm", "bn", "data", ["", "batch_norm_param { eps: 0.01 use_global_stats: true }"])
    net.layer("BatchNorm", "bn_of_matrix", "matrix")
    net.several("Scale", "scale", "data", [f"scale_param {{ {options} }}" for options in (
        "", "bias_term: true", "axis: 2", "axis: 1 num_axes: -1 bias_term: true", "axis: -1", "num_axes: 0", "axis: 1 num_axes: 2")])
    net.several("Scale", "gated", ["data", "gate"], ["scale_param { axis: 0 }"])
    net.several("Bias", "bias", "data", ["", "bias_param { axis: 2 num_axes: 2 }"])
    net.layer("Bias", "added", ["data", "gate"], "bias_param { axis: 0 }")
    net.several("MVN", "mvn", "data", ["", "mvn_param { across_channels: true }", "mvn_param { normalize_variance: false }",
                                       "mvn_param { eps: 0.5 }"])
    net.layer("MVN", "mvn_of_matrix", "matrix", "mvn_param { across_channels: true }")
    net.layer("Power", "other", "data", "power_param { power: 2 shift: 0.5 }")
    net.layer("TanH", "third", "data")
    for i, options in enumerate(("", "coeff: 0.5 coeff: -1 coeff: 2", "operation: PROD", "operation: MAX")):
        net.layer("Eltwise", f"eltwise{i}", ["data", "other", "third"], f"eltwise_param {{ {options} }}")
    net.layer("Eltwise", "difference", ["data", "other"], "eltwise_param { coeff: 1 coeff: -1 }")
    net.several("Reduction", "reduction", "data", [f"reduction_param {{ {options} }}" for options in (
        "axis: 1", "axis: 2 operation: ASUM coeff: 2", "axis: -1 operation: SUMSQ coeff: -0.5", "axis: 1 operation: MEAN",
        "axis: 3 operation: MEAN coeff: 3")])
    return net


def shapes():
    net = Net().input("data", 2, 6, 5, 4).input("small", 2, 6, 3, 2).input("tied", 2, 4, 3)
    net.layer("Power", "other", "data", "power_param { scale: 2 }")
    net.several("Concat", "concat", ["data", "other"], ["", "concat_param { axis: 2 }", "concat_param { axis: -1 }",
                                                        "concat_param { concat_dim: 3 }", "concat_param { axis: 0 }"])
    net.layer("Concat", "alone", "data")
    net.layer("Slice", "halves", "data", tops=["half0", "half1"])
    net.layer("Slice", "parts", "data", "slice_param { axis: 1 slice_point: 1 slice_point: 3 }", ["part0", "part1", "part2"])
    net.layer("Slice", "columns", "data", "slice_param { axis: -1 slice_point: 3 }", ["column0", "column1"])
    net.layer("Slice", "old", "data", "slice_param { slice_dim: 3 }", ["old0", "old1"])
    net.several("Flatten", "flatten", "data", ["", "flatten_param { axis: 2 }", "flatten_param { axis: 1 end_axis: 2 }",
                                               "flatten_param { axis: 0 end_axis: 1 }"])
    net.several("Reshape", "reshape", "data", [f"reshape_param {{ {options} }}" for options in (
        "shape { dim: 0 dim: -1 }", "shape { dim: 0 dim: 3 dim: -1 dim: 0 }", "shape { dim: -1 dim: 4 }",
        "shape { dim: 2 dim: 10 } axis: 2", "shape { dim: 2 dim: 3 } axis: 1 num_axes: 1", "shape { dim: 1 } axis: -1 num_axes: 0")])
    net.several("Crop", "crop", ["data", "small"], ["", "crop_param { offset: 1 }", "crop_param { offset: 2 offset: 1 }"])
    net.layer("Crop", "crop_all", ["data", "small"], "crop_param { axis: 1 offset: 0 offset: 2 offset: 1 }")
    net.several("Tile", "tile", "data", ["tile_param { tiles: 3 }", "tile_param { axis: 2 tiles: 2 }", "tile_param { axis: -1 tiles: 2 }"])
    net.layer("Parameter", "constant", [], "parameter_param { shape { dim: 6 dim: 5 } }", ["constant"])
    net.layer("Bias", "with_constant", ["data", "constant"], "bias_param { axis: 1 }")
    for name in ("data", "tied"):
        net.several("ArgMax", f"argmax_{name}", name, [f"argmax_param {{ {options} }}" for options in (
            "", "top_k: 3", "out_max_val: true top_k: 2", "axis: 1", "axis: 1 top_k: 2",
            "axis: -1 top_k: 2 out_max_val: true", "axis: 2 out_max_val: true")])
    return net


def in_place():
    """Blobs that are several values in turn; aliases; what a net's last blob is."""
    net = Net().input("data", 2, 3, 8, 8)
    net.layer("Power", "centre", "data", "power_param { shift: -0.5 }", ["data"])
    net.layer("Convolution", "conv", "data", "convolution_param { num_output: 3 kernel_size: 3 pad: 1 }")
    net.layer("BatchNorm", "bn", "conv", tops=["conv"]).layer("Scale", "scale", "conv", "scale_param { bias_term: true }", ["conv"])
    net.layer("ReLU", "relu", "conv", tops=["conv"])
    net.layer("Eltwise", "sum", ["data", "conv"]).layer("ReLU", "sum_relu", "sum", tops=["sum"])
    net.layer("Split", "split", "sum", tops=["one", "two"])
    net.layer("Dropout", "drop", "one").layer("Silence", "silence", "two", tops=[])
    net.layer("InnerProduct", "ip", "drop", "inner_product_param { num_output: 4 }").layer("Dropout", "drop_ip", "ip", tops=["ip"])
    net.layer("MVN", "mvn", "ip", "mvn_param { across_channels: true }", ["ip"])
    net.layer("Dropout", "last", "ip")
    return net


def of_a_whole_batch():
    """What comes out depends on all images at once, and the net takes any number of them."""
    net = Net().input("data", 3, 4, 5, 2).input("matrix", 3, 6)
    net.several("BatchNorm", "bn", "data", [f"batch_norm_param {{ use_global_stats: false {options} }}" for options in (
        "", "scale_bias: true", "stats_batch_size: 1")])
    for name in ("data", "matrix"):
        net.layer("BN", f"learns_{name}", name, "bn_param { bn_mode: LEARN }", [f"learns_{name}", f"mean_{name}", f"variance_{name}"])
    net.several("Reduction", "reduction", "data", ["", "reduction_param { operation: MEAN axis: 0 }"])
    return net


def fixed():
    """Nets that take one batch only, by the layer that says so."""
    rows = {
        "reshape": ("Reshape", ["data"], "reshape_param { shape { dim: 4 dim: 40 } }"),
        "argmax": ("ArgMax", ["data"], "argmax_param { axis: 0 top_k: 2 }"),
        "statistics": ("BatchNorm", ["data"], "batch_norm_param { use_global_stats: false stats_batch_size: 2 }"),
        "crop": ("Crop", ["twice", "data"], "crop_param { axis: 0 offset: 1 offset: 0 offset: 0 offset: 0 }"),
    }
    for name, (kind, bottoms, options) in rows.items():
        net = Net().input("data", 4, 4, 5, 2)
        if "twice" in bottoms:
            net.layer("Power", "other", "data", "power_param { shift: 1 }")
            net.layer("Concat", "twice", ["data", "other"], "concat_param { axis: 0 }")
        yield name, net.layer(kind, "only", bottoms, options)


def of_forks():
    """Layers that BVLC's Caffe does not have."""
    net = Net().input("data", 2, 6, 5, 4).input("gate", 2, 6).input("matrix", 2, 6)
    net.layer("Power", "other", "data", "power_param { scale: 5 shift: 0.5 }")
    net.layer("Axpy", "axpy", ["gate", "data", "other"]).layer("ReLU6", "relu6", "other")
    net.several("Permute", "permute", "data", [f"permute_param {{ {order} }}" for order in (
        "order: 0 order: 2 order: 3 order: 1", "order: 0 order: 3", "")])
    net.several("ShuffleChannel", "shuffle", "data", [f"shuffle_channel_param {{ group: {groups} }}" for groups in (1, 2, 3)])
    net.layer("ShuffleChannel", "shuffle_of_matrix", "matrix", "shuffle_channel_param { group: 2 }")
    normalize = [f"norm_param {{ across_spatial: {across} channel_shared: {shared} eps: 0.1 }}" for across in ("true", "false")
                 for shared in ("true", "false")]
    inference, running = "bn_param { bn_mode: INFERENCE }", "bn_param { eps: 0.01 frozen: true }"
    for name in ("data", "matrix"):
        net.several("Normalize", f"normalize_{name}", name, normalize)
        net.several("BN", f"bn_{name}", name, [inference, running])
        net.several("BatchNorm", f"scaled_{name}", name, ["batch_norm_param { scale_bias: true }",
                                                          "batch_norm_param { stats_batch_size: 2 }"])
    net.several("Interp", "interp", "data", [f"interp_param {{ {options} }}" for options in (
        "height: 9 width: 7", "height: 3 width: 1", "zoom_factor: 3", "shrink_factor: 2", "zoom_factor: 2 pad_beg: -1 pad_end: -2")])
    net.several("Upsample", "upsample", "data", ["", "upsample_param { scale_h: 3 scale_w: 2 }"])
    # Windows overlap, and what is pooled changes before it goes back: a place may get several numbers.
    for i, window in enumerate(("kernel_size: 2 stride: 2", "kernel_size: 3 stride: 1")):
        net.layer("Pooling", f"pool{i}", "data", f"pooling_param {{ pool: MAX {window} }}", [f"best{i}", f"place{i}"])
        net.layer("Scale", f"changed{i}", f"best{i}", "scale_param { axis: 2 num_axes: 2 }")
        net.layer("Upsample", f"back{i}", [f"changed{i}", f"place{i}"], "upsample_param { upsample_h: 5 upsample_w: 4 }")
    return net


def detection():
    """SSD up to its boxes: two planes of predictions and of priors."""
    net = Net().input("data", 2, 3, 24, 16)
    priors = ("min_size: 8 aspect_ratio: 2 flip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2",
              "min_size: 12 max_size: 15.5 clip: true step: 5 img_h: 24 img_w: 20 offset: 0.25")
    names = {"loc": [], "conf": [], "prior": []}
    net.layer("Convolution", "conv0", "data", "convolution_param { num_output: 4 kernel_size: 3 stride: 4 }")
    net.layer("Convolution", "conv1", "conv0", "convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad: 1 }")
    net.layer("Normalize", "conv0_norm", "conv0", "norm_param { across_spatial: false channel_shared: false }")
    for i, (plane, boxes) in enumerate((("conv0_norm", 3), ("conv1", 2))):
        for kind, each in (("loc", 4), ("conf", 3)):
            name = f"{kind}{i}"
            net.layer("Convolution", name, plane, f"convolution_param {{ num_output: {boxes * each} kernel_size: 3 pad: 1 }}")
            net.layer("Permute", f"{name}_perm", name, "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            net.layer("Flatten", f"{name}_flat", f"{name}_perm")
            names[kind].append(f"{name}_flat")
        net.layer("PriorBox", f"prior{i}", [plane, "data"], f"prior_box_param {{ {priors[i]} }}")
        names["prior"].append(f"prior{i}")
    for kind, axis in (("loc", 1), ("conf", 1), ("prior", 2)):
        net.layer("Concat", kind, names[kind], f"concat_param {{ axis: {axis} }}")
    net.layer("Reshape", "scores", "conf", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }")
    return net.layer("Softmax", "probabilities", "scores", "softmax_param { axis: 2 }").layer("Flatten", "conf_flat", "probabilities")


def windows():
    """Windows of Fast R-CNN and R-FCN, also such as have no extent or leave the image; of any number of images."""
    net = Net().input("data", 3, 18, 9, 11).input("tied", 40, 1).input("pairs", 40, 2).input("positive", 40, 2)
    net.layer("Power", "corner", "pairs", "power_param { scale: 9 shift: 12 }")
    net.layer("Power", "extent", "positive", "power_param { scale: 12 shift: -9 }").layer("Eltwise", "opposite", ["corner", "extent"])
    net.layer("Concat", "rois", ["tied", "corner", "opposite"])
    net.layer("Reshape", "four", "rois", "reshape_param { shape { dim: 0 dim: 5 dim: 1 dim: 1 } }")
    net.layer("ROIPooling", "pooled", ["data", "rois"], "roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }")
    net.layer("PSROIPooling", "mean", ["data", "rois"], "psroi_pooling_param { output_dim: 2 group_size: 3 spatial_scale: 0.5 }")
    net.layer("PSROIPooling", "mean_of_four", ["data", "four"],
              "psroi_pooling_param { output_dim: 18 group_size: 1 spatial_scale: 0.0625 }")
    return net.layer("ROIPooling", "of_four", ["data", "four"], "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.3 }")


def recurrent():
    """Four steps of three streams, some of which begin anew."""
    net = Net().input("x", 4, 3, 5).input("flags", 4, 3).input("fixed", 3, 2).input("frames", 4, 3, 2, 2)
    for kind in ("LSTM", "RNN"):
        for x in ("x", "frames"):
            for extra in ([], ["fixed"]):
                net.layer(kind, f"{kind}_{x}{len(extra)}", [x, "flags", *extra], "recurrent_param { num_output: 6 }")
        net.layer("InnerProduct", f"{kind}_above", f"{kind}_x0", "inner_product_param { axis: 2 num_output: 2 }")
    return net


def of_streams():
    """The batch is the streams: axis 1 of what a recurrent layer reads."""
    net = Net().input("data", 2, 4, 5).input("flags", 2, 4).input("fixed", 2, 3)
    order = "permute_param { order: 1 order: 0 }"
    net.layer("Permute", "x", "data", order).layer("Permute", "cont", "flags", order)
    for kind in ("LSTM", "RNN"):
        net.layer(kind, kind, ["x", "cont", "fixed"], "recurrent_param { num_output: 3 }")
        net.layer("Permute", f"{kind}_by_stream", kind, order)
    return net


def of_states():
    """States that come in and go out."""
    net = Net().input("x", 4, 3, 5).input("flags", 4, 3).input("fixed", 3, 2)
    net.input("h", 1, 3, 6).input("c", 1, 3, 6).input("g", 1, 3, 6)
    options = "recurrent_param { num_output: 6 expose_hidden: true }"
    net.layer("LSTM", "lstm", ["x", "flags", "fixed", "h", "c"], options, ["lstm", "h_after", "c_after"])
    return net.layer("RNN", "rnn", ["x", "flags", "g"], options, ["rnn", "g_after"])


def of_a_step():
    """Nets that take one step at a time: their states are as many as their images, and so is their one step."""
    net = Net().input("cell", 1, 3, 4).input("gates", 1, 3, 16).input("flags", 1, 3).input("x", 1, 3, 5).input("h", 1, 3, 4)
    net.layer("LSTM", "lstm", ["x", "flags", "h", "cell"], "recurrent_param { num_output: 4 expose_hidden: true }",
              ["lstm", "h_after", "c_after"])
    return net.layer("LSTMUnit", "unit", ["cell", "gates", "flags"], tops=["cell_after", "output"])


def beside_the_batch():
    """Inputs of which one has no images."""
    net = Net().input("data", 2, 5, 4).input("gain", 5).input("other", 2, 5, 4)
    return net.layer("Scale", "scaled", ["data", "gain"], "scale_param { axis: 1 }").layer("Eltwise", "sum", ["scaled", "other"])


def reindexed():
    return Net().input("data", 5, 2, 3).input("index", 4).layer("BatchReindex", "rows", ["data", "index"])


# A net as one trains it: data layers whose databases are not here, two heads with losses, what only one phase has.
TRAIN_VAL = """
layer { name: "train" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { source: "nowhere" batch_size: 64 } }
layer { name: "test" type: "Data" top: "data" top: "label" include { phase: TEST } data_param { source: "nowhere" batch_size: 5 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "side" type: "InnerProduct" bottom: "conv" top: "side" inner_product_param { num_output: 3 } }
layer { name: "unused" type: "InnerProduct" bottom: "conv" top: "unused" inner_product_param { num_output: 3 } include { phase: TRAIN } }
layer { name: "quiet" type: "Pooling" bottom: "conv" top: "quiet" pooling_param { kernel_size: 2 } }
layer { name: "silence" type: "Silence" bottom: "quiet" }
layer { name: "rows" type: "Reshape" bottom: "label" top: "rows" reshape_param { shape { dim: 0 } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "rows" top: "loss" }
layer { name: "side_loss" type: "SoftmaxWithLoss" bottom: "side" bottom: "label" top: "side_loss" top: "prob" }
"""

DEPLOY = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 5 dim: 2 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "side" type: "InnerProduct" bottom: "conv" top: "side" inner_product_param { num_output: 3 } }
layer { name: "prob" type: "Softmax" bottom: "side" top: "prob" }
"""

REFUSED = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "rois" type: "Input" top: "rois" input_param { shape { dim: 2 dim: 5 } } }
layer { name: "own" type: "Python" bottom: "data" top: "own" python_param { module: "nowhere" layer: "Own" } }
layer { name: "relu" type: "ReLU" bottom: "own" top: "relu" }
layer { name: "chosen" type: "Filter" bottom: "relu" bottom: "rois" top: "chosen" }
layer { name: "more" type: "Filter" bottom: "relu" bottom: "rois" top: "more" }
layer { name: "drop" type: "Dropout" bottom: "relu" top: "drop" dropout_param { sample_weights_test: true } }
layer { name: "found" type: "DetectionOutput" bottom: "relu" bottom: "drop" bottom: "more" top: "found" }
"""
