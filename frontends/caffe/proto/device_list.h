// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_DEVICE_LIST_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_DEVICE_LIST_H_

#include <optional>
#include <string>

namespace poseidon::caffe {

// Caffe's solvers have device_id: 0, those of Poseidon-Caffe (2015) device_id: "0,1". Replaces, outside braces, each list of whole
// numbers in quotes behind device_id by its first number; the text stays as long, and its lines where they are. nullopt where it
// has none.
std::optional<std::string> WithFirstDevice(std::string text);

// The same of a file's text; nullopt also where that cannot be read, or is larger than any solver.
std::optional<std::string> TextWithFirstDevice(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_DEVICE_LIST_H_
