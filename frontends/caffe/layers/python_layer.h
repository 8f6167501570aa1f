// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_PYTHON_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_PYTHON_LAYER_H_

#include <deque>
#include <memory>
#include <vector>

#include "frontends/caffe/net/layer.h"
#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// One layer of type Python: an object of the user's class, by Caffe's protocol. A failure is what the class raised, in a
// sentence. Thread: that of the net's passes.
class PythonObject {
 public:
  virtual ~PythonObject() = default;
  // `learned` gets the blobs that the class wants to be learned, with their first numbers. They become handles to the layer's, and
  // outlive this object.
  virtual Status SetUp(const Blobs& bottom, const Blobs& top, std::deque<Blob>* learned) = 0;
  virtual Status Reshape(const Blobs& bottom, const Blobs& top) = 0;
  virtual Status Forward(const Blobs& bottom, const Blobs& top) = 0;
  // Writes the diffs of bottoms that `propagate_down` names, and adds to those of learned blobs.
  virtual Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) = 0;
};

// Makes the objects, where this process has a Python that can.
class PythonHost {
 public:
  virtual ~PythonHost() = default;
  // The class is that which param.python_param() names.
  virtual Result<std::unique_ptr<PythonObject>> Make(const LayerParameter& param, Phase phase) = 0;
};

// From here on layers of type Python are made by `host`, which outlives them; null: there is no Python, and they are refused.
// Thread: none may make a net meanwhile.
void SetPythonHost(PythonHost* host);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_PYTHON_LAYER_H_
