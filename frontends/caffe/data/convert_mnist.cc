// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/convert_mnist.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>

#include "frontends/caffe/data/database_writer.h"
#include "frontends/caffe/proto/caffe.pb.h"

namespace poseidon::caffe {
namespace {

constexpr std::uint32_t kImagesMagic = 2051, kLabelsMagic = 2049;
constexpr std::uint32_t kLargestSide = 1 << 14;

// A file of big-endian numbers and bytes; zlib passes a plain one through as it is.
class IdxFile {
 public:
  explicit IdxFile(std::string path) : path_(std::move(path)) {}
  ~IdxFile() {
    if (file_ != nullptr) gzclose(file_);
  }
  IdxFile(const IdxFile&) = delete;
  IdxFile& operator=(const IdxFile&) = delete;

  Status Open(std::uint32_t magic, const char* what) {
    errno = 0;
    file_ = gzopen(path_.c_str(), "rb");
    if (file_ == nullptr) {
      return NotFound(path_ + " cannot be opened: " + ErrnoText(errno));
    }
    gzbuffer(file_, 1 << 17);
    POSEIDON_ASSIGN_OR_RETURN(const std::uint32_t found, Number());
    if (found == magic) return OkStatus();
    return DataLoss(path_ + " is no IDX file of " + what + ": it begins with the number " +
                    std::to_string(found) + ", expected " + std::to_string(magic));
  }

  Result<std::uint32_t> Number() {
    std::array<char, 4> bytes{};
    POSEIDON_RETURN_IF_ERROR(Fill(bytes, "its header"));
    std::uint32_t value = 0;
    for (char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
    return value;
  }

  Status Fill(std::span<char> bytes, const std::string& what) {
    const int got = gzread(file_, bytes.data(), static_cast<unsigned>(bytes.size()));
    if (got == static_cast<int>(bytes.size())) return OkStatus();
    int code = Z_OK;
    const char* reason = gzerror(file_, &code);
    return DataLoss(path_ + (code == Z_OK || code == Z_BUF_ERROR
                                 ? " ends within " + what
                                 : " is corrupt within " + what + ": " + reason));
  }

  Status ExpectEnd(const std::string& what) {
    char byte;
    if (gzread(file_, &byte, 1) == 0) return OkStatus();
    return DataLoss(path_ + " goes on after " + what);
  }

 private:
  const std::string path_;
  gzFile file_ = nullptr;
};

}  // namespace

Result<std::uint64_t> ConvertMnist(const std::string& images, const std::string& labels,
                                   const std::string& database, Database backend) {
  IdxFile image_file(images);
  IdxFile label_file(labels);
  POSEIDON_RETURN_IF_ERROR(image_file.Open(kImagesMagic, "images"));
  POSEIDON_RETURN_IF_ERROR(label_file.Open(kLabelsMagic, "labels"));
  POSEIDON_ASSIGN_OR_RETURN(const std::uint32_t count, image_file.Number());
  POSEIDON_ASSIGN_OR_RETURN(const std::uint32_t label_count, label_file.Number());
  POSEIDON_ASSIGN_OR_RETURN(const std::uint32_t rows, image_file.Number());
  POSEIDON_ASSIGN_OR_RETURN(const std::uint32_t columns, image_file.Number());
  if (count != label_count) {
    return InvalidArgument(images + " has " + std::to_string(count) + " images, but " + labels +
                           " has " + std::to_string(label_count) + " labels");
  }
  if (count == 0) return InvalidArgument(images + " has no images, expected at least one");
  if (rows == 0 || columns == 0 || rows > kLargestSide || columns > kLargestSide) {
    return DataLoss(images + " has images of " + std::to_string(rows) + "x" +
                    std::to_string(columns) + " pixels, expected sides from 1 to " +
                    std::to_string(kLargestSide));
  }

  const std::size_t pixels = std::size_t{rows} * columns;
  POSEIDON_ASSIGN_OR_RETURN(auto writer, DatabaseWriter::Create(backend, database, count * (pixels + 64)));
  Datum datum;
  datum.set_channels(1);
  datum.set_height(static_cast<int>(rows));
  datum.set_width(static_cast<int>(columns));
  datum.mutable_data()->resize(pixels);
  std::string value;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string where = "image " + std::to_string(i) + " of " + std::to_string(count);
    char label = 0;
    POSEIDON_RETURN_IF_ERROR(image_file.Fill(*datum.mutable_data(), where));
    POSEIDON_RETURN_IF_ERROR(label_file.Fill({&label, 1}, "the label of " + where));
    datum.set_label(static_cast<unsigned char>(label));
    if (!datum.SerializeToString(&value)) return Internal("a Datum of " + where + " is too large");
    std::array<char, 16> key{};
    std::snprintf(key.data(), key.size(), "%08u", i);
    POSEIDON_RETURN_IF_ERROR(writer->Put(key.data(), value));
  }
  POSEIDON_RETURN_IF_ERROR(image_file.ExpectEnd("its last image"));
  POSEIDON_RETURN_IF_ERROR(label_file.ExpectEnd("its last label"));
  POSEIDON_RETURN_IF_ERROR(writer->Finish());
  return std::uint64_t{count};
}

}  // namespace poseidon::caffe
