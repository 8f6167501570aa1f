# SPDX-License-Identifier: Apache-2.0
"""The profiles against published totals, layers counted by hand, and their own documentation."""
import json
import pathlib
import subprocess
import sys
import unittest

from .architectures import ARCHITECTURES, bert_base
from .timing import ANCHORS, profile, rate, ridge, seconds_of, text_of

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name: parameters, tensors, GFLOP of a forward pass. BVLC Caffe's logs, torchvision's tables
# (twice their multiply-adds), transformers' bert-base-uncased, and 66 M in Zaremba et al. 2014.
PUBLISHED = {
    "cifar10-quick": (145_578, 10, 0.0247),
    "alexnet": (60_965_224, 16, 1.45),
    "googlenet": (6_998_552, 116, 3.2),
    "googlenet-aux": (13_378_280, 128, 3.2),
    "vgg16": (138_357_544, 32, 30.94),
    "vgg19": (143_667_240, 38, 39.26),
    "vgg19-22k": (229_052_817, 38, 39.43),
    "resnet-50": (25_557_032, 161, 8.18),
    "resnet-152": (60_192_808, 467, 23.03),
    "inception-v3": (27_161_264, 292, 11.43),
    "inception-v3-noaux": (23_834_568, 284, 11.43),
    "bert-base": (109_482_240, 199, 11.02),
    "mlp": (784 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 10 + 10, 6, 0.040),
    "lstm": (66_034_000, 11, 3.57),
}

# GFLOP forward and millions of parameters of a layer, as tables of these nets have them.
LAYERS = {
    "vgg19": {"conv1_1": (0.173, 0.002), "conv2_1": (1.85, 0.074), "conv3_4": (3.70, 0.590), "conv4_1": (1.85, 1.18),
              "conv5_4": (0.925, 2.36), "fc6": (0.206, 102.8), "fc7": (0.034, 16.8), "fc8": (0.008, 4.10)},
    "alexnet": {"conv1": (0.211, 0.035), "conv2": (0.448, 0.308), "conv3": (0.299, 0.885), "conv4": (0.224, 0.664),
                "conv5": (0.150, 0.443), "fc6": (0.076, 37.75), "fc7": (0.034, 16.78), "fc8": (0.008, 4.10)},
    "resnet-50": {"conv1": (0.236, 0.009), "fc": (0.004, 2.05)},
    "cifar10-quick": {"conv1": (0.005, 0.002), "conv2": (0.013, 0.026), "conv3": (0.007, 0.051), "ip1": (0.0001, 0.066)},
}


class Architectures(unittest.TestCase):
    def test_totals_are_the_published_ones(self):
        self.assertEqual(set(PUBLISHED), set(ARCHITECTURES))
        for name, (parameters, tensors, gflop) in PUBLISHED.items():
            with self.subTest(name):
                layers = ARCHITECTURES[name]()
                self.assertEqual(sum(t.elements for layer in layers for t in layer.tensors), parameters)
                self.assertEqual(sum(len(layer.tensors) for layer in layers), tensors)
                self.assertAlmostEqual(sum(layer.forward_flops for layer in layers) / 1e9 / gflop, 1, delta=0.015)

    def test_layers_are_those_of_published_tables(self):
        for name, rows in LAYERS.items():
            layers = {layer.name: layer for layer in ARCHITECTURES[name]()}
            for layer, (gflop, millions) in rows.items():
                with self.subTest(name, layer=layer):
                    self.assertAlmostEqual(layers[layer].forward_flops / 1e9, gflop, delta=0.006 * gflop + 5e-4)
                    self.assertAlmostEqual(layers[layer].elements / 1e6, millions, delta=0.006 * millions + 5e-4)

    def test_resnet_50_blocks(self):
        layers = ARCHITECTURES["resnet-50"]()
        for prefix, gflop, millions in (("layer1.0", 0.462, 0.075), ("layer1.2", 0.437, 0.070), ("layer2.0", 0.745, 0.379),
                                        ("layer3.5", 0.437, 1.12), ("layer4.0", 0.745, 6.04), ("layer4.2", 0.437, 4.46)):
            block = [layer for layer in layers if layer.name.startswith(prefix + ".")]
            with self.subTest(prefix):
                self.assertAlmostEqual(sum(layer.forward_flops for layer in block) / 1e9, gflop, delta=0.002)
                self.assertAlmostEqual(sum(layer.elements for layer in block) / 1e6, millions, delta=0.006 * millions)

    def test_bert_grows_with_the_square_of_its_tokens(self):
        # 22.5 GFLOP at 128 tokens is published in papers that distil it.
        self.assertAlmostEqual(sum(layer.forward_flops for layer in bert_base(128)) / 1e9, 22.5, delta=0.3)

    def test_a_layer_is_what_the_core_can_declare(self):
        for name, build in ARCHITECTURES.items():
            layers = build()
            self.assertEqual(len({layer.name for layer in layers}), len(layers), name)
            tensors = [t.name for layer in layers for t in layer.tensors]
            self.assertEqual(len(set(tensors)), len(tensors), name)
            for layer in layers:
                with self.subTest(name, layer=layer.name):
                    if layer.factors:
                        m, n, bias = (layer.factors[key] for key in ("outputs", "inputs", "bias"))
                        shapes = [(m, n), (m,)] if bias else [(m, n)]
                        self.assertEqual([t.shape for t in layer.tensors], shapes)
                        self.assertEqual(layer.elements, m * n + bias * m)


class Times(unittest.TestCase):
    def test_a_step_takes_the_published_time(self):
        self.assertEqual(set(ANCHORS), set(ARCHITECTURES))
        for name, anchor in ANCHORS.items():
            if anchor.seconds:
                self.assertAlmostEqual(seconds_of(profile(name)) / anchor.seconds, 1, places=9, msg=name)

    def test_ridges(self):
        for name, gigabits in (("vgg19-22k", 14.5), ("vgg19", 9.1), ("resnet-50", 5.9)):
            self.assertAlmostEqual(ridge(profile(name), 8) / 1e9 / gigabits, 1, delta=0.015, msg=name)

    def test_speeds_are_below_what_the_cards_can_do(self):
        peaks = {"vgg19-22k": 6.6e12, "alexnet": 6.6e12, "resnet-50": 13.5e12, "bert-base": 13.5e12}
        for name, peak in peaks.items():
            self.assertTrue(0.3 * peak < rate(name) < peak, name)

    def test_every_layer_takes_time_and_backward_more_than_forward_products(self):
        for name in ARCHITECTURES:
            for layer in profile(name)["layers"]:
                self.assertGreater(layer["forward_seconds"], 0, layer["name"])
                self.assertGreaterEqual(layer["backward_seconds"], 0, layer["name"])

    def test_the_batch_scales_products_and_rows_but_not_the_update(self):
        one, two = profile("vgg19", 32), profile("vgg19", 64)
        fc6, twice = (next(layer for layer in d["layers"] if layer["name"] == "fc6") for d in (one, two))
        self.assertEqual((fc6["rows"], twice["rows"]), (32, 64))
        self.assertAlmostEqual(twice["backward_seconds"] / fc6["backward_seconds"], 2)
        self.assertLess(twice["forward_seconds"], 2 * fc6["forward_seconds"])
        self.assertIn("scaled from batch 32", two["source"])

    def test_a_given_time_is_met_or_refused(self):
        self.assertAlmostEqual(seconds_of(profile("resnet-50", seconds=0.5)), 0.5)
        with self.assertRaisesRegex(ValueError, "element-wise work"):
            profile("resnet-50", seconds=0.001)


class Command(unittest.TestCase):
    def run_it(self, *arguments):
        return subprocess.run([sys.executable, "-B", "-m", "benchmarks.profiles", *arguments], cwd=ROOT,
                              capture_output=True, text=True, timeout=60)

    def test_prints_the_profile(self):
        done = self.run_it("mlp", "--batch", "16")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document, profile("mlp", 16))
        self.assertEqual(done.stdout, text_of(document))
        self.assertEqual(document["layers"][1]["rows"], 16)

    def test_lists_the_models(self):
        lines = self.run_it().stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]], list(ARCHITECTURES))

    def test_refuses_in_one_line(self):
        for arguments, words in ((("vgg20",), "vgg20"), (("mlp", "--batch", "0"), "--batch"),
                                 (("mlp", "--seconds", "1e-6"), "element-wise")):
            done = self.run_it(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr.splitlines()[-1])
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
