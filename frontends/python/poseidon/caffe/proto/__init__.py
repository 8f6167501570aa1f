# SPDX-License-Identifier: Apache-2.0
"""Caffe's messages: `from poseidon.caffe.proto import caffe_pb2`."""
