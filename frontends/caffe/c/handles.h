// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_C_HANDLES_H_
#define POSEIDON_FRONTENDS_CAFFE_C_HANDLES_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "frontends/caffe/c/poseidon_caffe.h"
#include "frontends/caffe/net/net.h"
#include "poseidon/base/result.h"

// A net, its own or a solver's, and what Caffe's interface adds to it.
struct poseidon_caffe_net {
  explicit poseidon_caffe_net(std::unique_ptr<poseidon::caffe::Net> made) : own(std::move(made)), net(own.get()) {}
  explicit poseidon_caffe_net(poseidon::caffe::Net* solvers) : net(solvers) {}

  // Makes the diffs of learned blobs, zero, once.
  void NeedParamDiffs();
  // Shapes follow a blob that was reshaped.
  poseidon::Status FollowReshapes();

  const std::unique_ptr<poseidon::caffe::Net> own;
  poseidon::caffe::Net* const net;
  bool reshaped = false;     // a blob was, and the rest has not followed
  bool has_diffs = false;    // of learned blobs, with numbers that mean something
  std::uint64_t passes = 0;  // the batch that the next forward pass takes
};

namespace poseidon::caffe {

inline poseidon_caffe_blob* HandleOf(const Blob* blob) {
  return reinterpret_cast<poseidon_caffe_blob*>(const_cast<Blob*>(blob));
}
inline Blob* BlobOf(poseidon_caffe_blob* handle) { return reinterpret_cast<Blob*>(handle); }
inline const Blob* BlobOf(const poseidon_caffe_blob* handle) { return reinterpret_cast<const Blob*>(handle); }

// The shape where every extent and their product can be; a sentence where not.
Result<Shape> CheckedShape(std::int32_t axes, const std::int64_t* shape);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_C_HANDLES_H_
