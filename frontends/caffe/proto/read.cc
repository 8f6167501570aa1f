// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/read.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <limits>
#include <memory>

namespace poseidon::caffe {
namespace {

using google::protobuf::Message;

// `Message type "poseidon.caffe.LayerParameter" has no field named "foo".` and the like become
// sentences of ours; everything else keeps protobuf's words, without its full stop.
std::string Reword(const std::string& words) {
  if (std::string unknown = UnknownFieldIn(words); !unknown.empty()) return unknown;
  std::string text = words;
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  if (text.size() > 1 && std::isupper(static_cast<unsigned char>(text[0])) != 0 &&
      std::islower(static_cast<unsigned char>(text[1])) != 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

// Keeps the first error: what follows is its echo.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber /*column*/,
                const std::string& words) override {
    if (seen_) return;
    seen_ = true;
    line_ = line;
    words_ = words;
  }
  Status ToStatus(const std::string& name) const {
    std::string where = name;
    if (line_ >= 0) where += ":" + std::to_string(line_ + 1);
    return InvalidArgument(where + ": " +
                           (seen_ ? Reword(words_) : std::string("not a valid text message")));
  }

 private:
  bool seen_ = false;
  int line_ = -1;
  std::string words_;
};

Status ParseTextStream(google::protobuf::io::ZeroCopyInputStream* stream, const std::string& name,
                       Message* message) {
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (!parser.Parse(stream, message)) return error.ToStatus(name);
  return OkStatus();
}

Status ParseBinaryStream(google::protobuf::io::ZeroCopyInputStream* stream,
                         const std::string& name, Message* message) {
  google::protobuf::io::CodedInputStream coded(stream);
  coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
  if (!message->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return DataLoss(name + " is not a whole binary " + message->GetDescriptor()->name());
  }
  return OkStatus();
}

}  // namespace

Status ParseText(const std::string& text, const std::string& name, Message* message) {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return ResourceExhausted(name + " is longer than 2 GiB");
  }
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  const Status status = ParseTextStream(&stream, name, message);
  if (status.ok()) return status;
  google::protobuf::io::ArrayInputStream again(text.data(), static_cast<int>(text.size()));
  return AllThatIsMissing(&again, name, *message, {}, status);
}

Status ReadTextFile(const std::string& path, Message* message, const JudgeLayer& judge) {
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenToRead(path));
  google::protobuf::io::FileInputStream stream(file->fd());
  const Status status = ParseTextStream(&stream, path, message);
  if (stream.GetErrno() != 0) {
    return DataLoss("cannot read " + path + ": " + ErrnoText(stream.GetErrno()));
  }
  if (status.ok()) return status;
  if (::lseek(file->fd(), 0, SEEK_SET) != 0) return status;  // of a pipe there is no more
  google::protobuf::io::FileInputStream from_its_beginning(file->fd());
  return AllThatIsMissing(&from_its_beginning, path, *message, judge, status);
}

Status ParseBinary(const std::string& bytes, const std::string& name, Message* message) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return ResourceExhausted(name + " is longer than 2 GiB");
  }
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return ParseBinaryStream(&stream, name, message);
}

Status ReadBinaryFile(const std::string& path, Message* message) {
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenToRead(path));
  google::protobuf::io::FileInputStream stream(file->fd());
  const Status status = ParseBinaryStream(&stream, path, message);
  if (stream.GetErrno() != 0) {
    return DataLoss("cannot read " + path + ": " + ErrnoText(stream.GetErrno()));
  }
  return status;
}

std::string ToText(const Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

Status CheckMessageBytes(std::uint64_t bytes, const std::string& path) {
  if (bytes <= static_cast<std::uint64_t>(std::numeric_limits<int>::max())) return OkStatus();
  return ResourceExhausted("cannot write " + path + ": the message would exceed 2 GiB");
}

Result<FileDraft> DraftMessage(const Message& message, const std::string& path) {
  POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(message.ByteSizeLong(), path));
  std::string bytes;
  if (!message.SerializeToString(&bytes)) return Internal("cannot serialise " + path);
  return FileDraft::Write(bytes, path);
}

Status WriteBinaryFile(const Message& message, const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(FileDraft draft, DraftMessage(message, path));
  return draft.Commit();
}

}  // namespace poseidon::caffe
