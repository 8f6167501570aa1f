// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_VIEW_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_VIEW_LAYER_H_

#include <utility>
#include <vector>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {

// A layer whose top is its bottom under another shape, a view of the same numbers in both passes. A layer of this kind
// says in Reshape which shape that is, and ends with View.
class ViewLayer : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data = bottom[0]->data.view(shape_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down[0]) bottom[0]->diff = top[0]->diff.view(bottom[0]->data.sizes());
    return OkStatus();
  }

 protected:
  // The top is of this shape from now on; it holds as many numbers as the bottom.
  Status View(Shape shape, const Blobs& bottom, const Blobs& top) {
    shape_ = std::move(shape);
    return Forward(bottom, top);
  }

 private:
  Shape shape_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_VIEW_LAYER_H_
