// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_READ_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_READ_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>

#include "frontends/caffe/proto/missing.h"
#include "poseidon/base/file.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Fills `message` from protobuf text. `name` is what the error calls the text; the error is the first
// one found, "NAME:LINE: what", or all unknown fields: "NAME:LINE: unknown field 'foo' in LayerParameter of layer 'a' (ReLU);
// line 7: ...". Where fields of a net are unknown, what `judge` refuses its layers for is named with them.
Status ParseText(const std::string& text, const std::string& name,
                 google::protobuf::Message* message);
Status ReadTextFile(const std::string& path, google::protobuf::Message* message, const JudgeLayer& judge = {});

// Fills `message` from its binary form, at most 2 GiB (protobuf's own bound). `name` as above.
Status ParseBinary(const std::string& bytes, const std::string& name,
                   google::protobuf::Message* message);
Status ReadBinaryFile(const std::string& path, google::protobuf::Message* message);

// The text form, one field per line.
std::string ToText(const google::protobuf::Message& message);

// OK where a message of so many bytes can be written to `path`. To be asked before one is built whose numbers alone
// exceed protobuf's bound: its counts do not fit.
Status CheckMessageBytes(std::uint64_t bytes, const std::string& path);

// A draft of a message (base/file.h), and the same with its commit.
Result<FileDraft> DraftMessage(const google::protobuf::Message& message, const std::string& path);
Status WriteBinaryFile(const google::protobuf::Message& message, const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_READ_H_
