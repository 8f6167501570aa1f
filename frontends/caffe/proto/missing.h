// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_MISSING_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_MISSING_H_

#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Most reasons that one sentence lists.
inline constexpr std::size_t kMostReasons = 20;
// " and 2 others", " and 1 other"; empty for none.
std::string AndOthers(std::size_t others);

// What a layer is refused for before anything else of its net is known.
struct LayerRefusals {
  bool known_type = true;
  std::vector<std::string> reasons;  // whole: "unknown layer type 'Foo'"
};
using JudgeLayer = std::function<LayerRefusals(const LayerParameter& layer)>;

// What a text that was refused with `first` asks for and does not get, all of it in one sentence: unknown fields, in a net by
// the layers that have them, fields given twice, and what `judge` refuses layers for (empty: nothing). `stream` holds the text from
// its beginning, `like` says which message it is of. Returns `first` where the text has other mistakes.
Status AllThatIsMissing(google::protobuf::io::ZeroCopyInputStream* stream, const std::string& name,
                        const google::protobuf::Message& like, const JudgeLayer& judge, const Status& first);

// "Message type "poseidon.caffe.LayerParameter" has no field named "foo"." as "unknown field 'foo' in LayerParameter", with the
// fork that the field is of where that is known; empty for other words.
std::string UnknownFieldIn(const std::string& words);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_MISSING_H_
