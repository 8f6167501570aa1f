# SPDX-License-Identifier: Apache-2.0
"""A user's layers, as they are written for Caffe."""
import json

import numpy as np

import caffe


class Scale(caffe.Layer):
    def setup(self, bottom, top):
        self.factor = float(self.param_str or 10)
        if len(bottom) != 1:
            raise ValueError("Scale takes one bottom")

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.factor * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.factor * top[0].diff


class EuclideanLoss(caffe.Layer):
    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("Need two inputs to compute distance.")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("Inputs must have the same dimension.")
        self.diff = np.zeros_like(bottom[0].data, dtype=np.float32)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.diff[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.diff ** 2) / bottom[0].num / 2.

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            if not propagate_down[i]:
                continue
            sign = 1 if i == 0 else -1
            bottom[i].diff[...] = sign * self.diff / bottom[i].num


class Data(caffe.Layer):
    """Another count of rows in every pass."""

    def setup(self, bottom, top):
        self.number = 0
        self.width = json.loads(self.param_str)["width"]

    def reshape(self, bottom, top):
        self.rows = self.number % 3 + 1
        top[0].reshape(self.rows, self.width)
        top[1].reshape(self.rows)

    def forward(self, bottom, top):
        top[0].data[...] = np.arange(self.rows * self.width).reshape(self.rows, self.width)
        top[1].data[...] = self.number
        self.number += 1

    def backward(self, top, propagate_down, bottom):
        pass


class Bias(caffe.Layer):
    """Learns one number a column."""

    def setup(self, bottom, top):
        self.blobs.add_blob(bottom[0].shape[1])
        self.blobs[0].data[...] = np.arange(bottom[0].shape[1])
        self.kept = self.blobs[0]  # is the layer's blob ever after

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data + self.kept.data

    def backward(self, top, propagate_down, bottom):
        self.kept.diff[...] += top[0].diff.sum(0)
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff


class Counted(caffe.Layer):
    """Learns one number, at first how many of its kind there are, and 100 more where `param_str` is "reshape"."""
    made = 0

    def setup(self, bottom, top):
        Counted.made += 1
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = Counted.made

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
        if self.param_str == "reshape" and not hasattr(self, "shaped"):
            self.shaped = True
            self.blobs[0].data[...] += 100

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data + self.blobs[0].data[0]

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += top[0].diff.sum()
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff


class Failing(caffe.Layer):
    """Hands on what it gets, and raises `failure` in one pass: `passes`, counted down, says in which."""
    failure, method, passes = None, "", 0

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def fail(self, method):
        if self.phase == caffe.TRAIN and method == Failing.method:
            Failing.passes -= 1
            if Failing.passes == 0:
                raise Failing.failure

    def forward(self, bottom, top):
        self.fail("forward")
        top[0].data[...] = bottom[0].data

    def backward(self, top, propagate_down, bottom):
        self.fail("backward")
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff


class Phase(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[()] = self.phase


class Broken(Scale):
    def forward(self, bottom, top):
        raise LookupError("nothing there")


class Shapeless(Scale):
    def reshape(self, bottom, top):
        pass


kept = []


class Keeping(Scale):
    def forward(self, bottom, top):
        super().forward(bottom, top)
        kept.append((top[0], top[0].data))
