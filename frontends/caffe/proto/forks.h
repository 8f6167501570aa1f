// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_FORKS_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_FORKS_H_

#include <google/protobuf/message.h>

#include <string>
#include <string_view>
#include <vector>

namespace poseidon::caffe {

// Which fork of Caffe a layer type, or a field of a message, comes from: "SSD". Known are those that nets in use ask for
// and that are not here; empty for all others.
std::string_view ForkOfType(std::string_view type);
std::string_view ForkOfField(std::string_view message, std::string_view field);

// "unknown layer type 'DetectionEvaluate' of SSD"; without the fork where none is known.
std::string UnknownType(std::string_view type);

// A sentence for every kind of field that is set in `messages` (nets, solvers) and is read without being followed, because
// no result depends on it: "'shuffle' is not looked at: records come in the order of their keys". A field of true and
// false that has its default asks for nothing.
std::vector<std::string> NotesOn(const std::vector<const google::protobuf::Message*>& messages);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_FORKS_H_
