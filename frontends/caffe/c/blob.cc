// SPDX-License-Identifier: Apache-2.0
// Blobs through the C interface: views of their memory that stay valid, and reshaping.
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <string>

#include "frontends/caffe/c/failure.h"
#include "frontends/caffe/c/handles.h"
#include "frontends/caffe/engine/engine.h"

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kMostNumbers = std::numeric_limits<std::int64_t>::max() / 8;

void SetShape(at::IntArrayRef shape, poseidon_caffe_view* view) {
  view->axes = static_cast<std::int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view->shape);
}

// What a caller may look at is contiguous, as Blob promises; a blob that nobody has shaped yet has no numbers.
Status Show(const at::Tensor& tensor, poseidon_caffe_view* view) {
  if (tensor.dim() > POSEIDON_CAFFE_MOST_AXES) {
    return Unimplemented("a blob has " + std::to_string(tensor.dim()) + " axes, expected at most 32");
  }
  if (!tensor.is_contiguous() || tensor.scalar_type() != at::kFloat) return Internal("a blob is not contiguous 32-bit floats");
  SetShape(tensor.sizes(), view);
  view->numbers = tensor.numel() > 0 ? tensor.mutable_data_ptr<float>() : nullptr;
  view->hold = new at::Tensor(tensor);
  return OkStatus();
}

}  // namespace

Result<Shape> CheckedShape(std::int32_t axes, const std::int64_t* shape) {
  if (axes < 0 || axes > POSEIDON_CAFFE_MOST_AXES) {
    return InvalidArgument("a blob of " + std::to_string(axes) + " axes, expected at most 32");
  }
  std::int64_t count = 1;
  for (std::int32_t axis = 0; axis < axes; ++axis) {
    const std::int64_t extent = shape[axis];
    if (extent < 0 || (extent > 0 && count > kMostNumbers / extent)) {
      return InvalidArgument("a blob cannot have extent " + std::to_string(extent) + " at axis " + std::to_string(axis));
    }
    count *= extent;
  }
  return Shape(shape, shape + axes);
}

}  // namespace poseidon::caffe

using namespace poseidon;         // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::caffe;  // NOLINT(google-build-using-namespace)

poseidon_caffe_code poseidon_caffe_blob_view(poseidon_caffe_blob* handle, int32_t diff, poseidon_caffe_view* view) {
  return Guarded([&] {
    return RunOnEngine([&]() -> Status {
      Blob* const blob = BlobOf(handle);
      if (!blob->data.defined()) return FailedPrecondition("the blob has no shape yet, expected a reshape of it");
      if (diff == 0) return Show(blob->data, view);
      if (!blob->diff.defined() || blob->diff.sizes() != blob->data.sizes()) blob->diff = at::zeros_like(blob->data);
      return Show(blob->diff, view);
    });
  });
}

void poseidon_caffe_release(void* hold) { delete static_cast<at::Tensor*>(hold); }

poseidon_caffe_code poseidon_caffe_blob_shape(const poseidon_caffe_blob* handle, poseidon_caffe_view* view) {
  return Guarded([&] {
    const at::Tensor& data = BlobOf(handle)->data;
    view->axes = 0;
    if (data.dim() > POSEIDON_CAFFE_MOST_AXES) return Unimplemented("a blob has more than 32 axes");
    if (data.defined()) SetShape(data.sizes(), view);
    return OkStatus();
  });
}

poseidon_caffe_code poseidon_caffe_blob_reshape(poseidon_caffe_net* net, poseidon_caffe_blob* handle, int32_t axes,
                                                const int64_t* shape) {
  return Guarded([&] {
    return RunOnEngine([&]() -> Status {
      POSEIDON_ASSIGN_OR_RETURN(const Shape wanted, CheckedShape(axes, shape));
      Blob* const blob = BlobOf(handle);
      if (blob->data.defined() && blob->data.sizes() == at::IntArrayRef(wanted)) return OkStatus();
      if (blob->data.defined() && blob->data.numel() == CountOf(wanted)) {
        blob->data = blob->data.view(wanted);
      } else {
        blob->data = at::zeros(wanted, at::TensorOptions().dtype(at::kFloat));
      }
      if (net != nullptr) net->reshaped = true;
      return OkStatus();
    });
  });
}
