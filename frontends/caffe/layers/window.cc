// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/window.h"

#include <algorithm>
#include <string>

namespace poseidon::caffe {
namespace {

// One of the window's lists as the prototxt gives it.
struct Given {
  const char* name;
  const google::protobuf::RepeatedField<std::uint32_t>& list;
  bool has_h;
  bool has_w;
  std::uint32_t h;
  std::uint32_t w;
};

Result<Shape> Read(const Given& given, std::int64_t axes, std::int64_t fallback) {
  const std::string name = given.name;
  if (given.has_h || given.has_w) {
    if (axes != 2) {
      return InvalidArgument(name + "_h and " + name + "_w are for two spatial axes, there are " +
                             std::to_string(axes));
    }
    if (!given.list.empty()) {
      return InvalidArgument("has both " + name + (name == "kernel" ? "_size" : "") + " and " +
                             name + "_h or " + name + "_w, expected one form");
    }
    return Shape{given.h, given.w};
  }
  const auto count = static_cast<std::int64_t>(given.list.size());
  if (count == 0) {
    return Shape(static_cast<std::size_t>(axes), fallback);
  }
  if (count != 1 && count != axes) {
    return InvalidArgument(name + " is given " + std::to_string(count) + " times for " +
                           std::to_string(axes) + " spatial axes");
  }
  Shape shape;
  for (std::int64_t i = 0; i < axes; ++i) {
    shape.push_back(given.list.Get(count == 1 ? 0 : static_cast<int>(i)));
  }
  return shape;
}

}  // namespace

Result<Window> ReadWindow(const ConvolutionParameter& options, std::int64_t axes) {
  Window window;
  POSEIDON_ASSIGN_OR_RETURN(
      window.kernel,
      Read({"kernel", options.kernel_size(), options.has_kernel_h(), options.has_kernel_w(),
            options.kernel_h(), options.kernel_w()},
           axes, 0));
  POSEIDON_ASSIGN_OR_RETURN(window.stride,
                            Read({"stride", options.stride(), options.has_stride_h(),
                                  options.has_stride_w(), options.stride_h(), options.stride_w()},
                                 axes, 1));
  POSEIDON_ASSIGN_OR_RETURN(window.pad,
                            Read({"pad", options.pad(), options.has_pad_h(), options.has_pad_w(),
                                  options.pad_h(), options.pad_w()},
                                 axes, 0));
  POSEIDON_ASSIGN_OR_RETURN(
      window.dilation,
      Read({"dilation", options.dilation(), false, false, 0, 0}, axes, 1));
  const auto positive = [](const Shape& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](std::int64_t x) { return x > 0; });
  };
  if (!positive(window.kernel)) return InvalidArgument("needs a kernel_size above 0");
  if (!positive(window.stride)) return InvalidArgument("needs a stride above 0");
  if (!positive(window.dilation)) return InvalidArgument("needs a dilation above 0");
  return window;
}

}  // namespace poseidon::caffe
