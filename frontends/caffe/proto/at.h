// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_AT_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_AT_H_

#include <concepts>
#include <cstddef>

namespace poseidon::caffe {

// The element at `index`, which is in range: protobuf, ATen and Caffe count in signed numbers.
template <typename Values, std::integral Index>
constexpr decltype(auto) At(Values&& values, Index index) {
  return values[static_cast<std::size_t>(index)];
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_AT_H_
