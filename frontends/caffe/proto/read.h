// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_READ_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_READ_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <utility>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Fills `message` from protobuf text. `name` stands for the text in the error, which is the first
// one found: "NAME:LINE: unknown field 'foo' in LayerParameter".
Status ParseText(const std::string& text, const std::string& name,
                 google::protobuf::Message* message);
Status ReadTextFile(const std::string& path, google::protobuf::Message* message);

// Fills `message` from its binary form, at most 2 GiB (protobuf's own bound). `name` as above.
Status ParseBinary(const std::string& bytes, const std::string& name,
                   google::protobuf::Message* message);
Status ReadBinaryFile(const std::string& path, google::protobuf::Message* message);

// The text form, one field per line.
std::string ToText(const google::protobuf::Message& message);

// OK where a message of so many bytes can be written to `path`. To be asked before one is built whose numbers alone
// exceed protobuf's bound: its counts do not fit.
Status CheckMessageBytes(std::uint64_t bytes, const std::string& path);

// The future content of a file, whole and flushed to the device under "PATH.tmp". Commit renames it to PATH and
// flushes the folder; without it the destructor removes it. After a failure or a crash at any moment PATH is as it
// was before, or new.
class FileDraft {
 public:
  static Result<FileDraft> Write(const std::string& bytes, const std::string& path);
  static Result<FileDraft> Write(const google::protobuf::Message& message, const std::string& path);
  FileDraft(FileDraft&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  FileDraft& operator=(FileDraft&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~FileDraft();
  Status Commit();

 private:
  explicit FileDraft(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: committed
};

// OK where files beside `path` can be written: writes one and removes it. A full disk lets files be made and refuses
// their bytes, so it holds some.
Status TryToWriteBeside(const std::string& path);

// A draft and its commit at once.
Status WriteBinaryFile(const google::protobuf::Message& message, const std::string& path);
Status WriteFileAtomically(const std::string& bytes, const std::string& path);

// Flushes the folder of `path`, so that what was renamed, linked or removed in it stays so.
Status FlushFolderOf(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_READ_H_
