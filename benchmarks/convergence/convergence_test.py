# SPDX-License-Identifier: Apache-2.0
import json
import unittest

import numpy as np

from . import data, page, trained
from .__main__ import FOUND, PAGE, PICTURES


class DataTest(unittest.TestCase):
    def test_an_image_is_three_equal_planes_in_a_black_border(self):
        images = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(2, 28, 28)
        records = data.as_cifar(images, np.array([3, 7], np.uint8))
        self.assertEqual((records.shape, records.dtype), ((2, 1 + 3 * 32 * 32), np.uint8))
        self.assertEqual(list(records[:, 0]), [3, 7])
        planes = records[1, 1:].reshape(3, 32, 32)
        self.assertTrue((planes == planes[0]).all() and (planes[0, 2:30, 2:30] == images[1]).all())
        self.assertEqual(planes[0].sum(dtype=int), images[1].sum(dtype=int))


class TrainedTest(unittest.TestCase):
    def test_curves_are_of_the_tests(self):
        lines = [json.dumps({"kind": "train", "iteration": 1, "elapsed": 1.0, "loss": 9.0}),
                 json.dumps({"kind": "test", "iteration": 2, "elapsed": 1.5, "outputs": {"loss": 0.5, "accuracy": 0.8}})]
        self.assertEqual(trained.curves_of(lines), {"losses": [[2, 1.5, 0.5]], "accuracies": [[2, 1.5, 0.8]]})

    def test_the_largest_difference_is_relative(self):
        one, other = ({"losses": [[0, 0, 2.0], [1, 1, last]]} for last in (4.0, 4.4))
        self.assertAlmostEqual(trained.largest_difference(one, other), 0.1)

    def test_a_global_batch_can_be_divided(self):
        for net in trained.NETS.values():
            for workers in trained.WORKERS:
                self.assertEqual(net.batch % workers, 0)


class PageTest(unittest.TestCase):
    def test_it_says_what_was_found(self):
        found = json.loads(FOUND.read_text())
        self.assertEqual(PAGE.read_text(), page.text_of(found))
        for name, of_net in found.items():
            self.assertTrue((PICTURES / f"{name}.svg").exists())
            self.assertEqual([run["workers"] for run in of_net["runs"]], list(trained.WORKERS))


if __name__ == "__main__":
    unittest.main()
