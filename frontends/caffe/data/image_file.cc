// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "frontends/caffe/data/encoded_image.h"
#include "poseidon/base/file.h"

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kLongestFile = std::int64_t{1} << 30;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

Status ReadFileBytes(const std::string& path, std::string* bytes) {
  const File opened(path, O_RDONLY | O_NONBLOCK);  // a pipe that nobody writes into would be waited for
  const std::unique_ptr<std::FILE, Close> file(opened.is_open() ? ::fdopen(::dup(opened.fd()), "rb") : nullptr);
  struct stat about {};
  if (!file || ::fstat(::fileno(file.get()), &about) != 0) return NotFound(path + " cannot be read: " + ErrnoText(errno));
  if (!S_ISREG(about.st_mode)) return InvalidArgument(path + " is no file");
  if (about.st_size > kLongestFile) {
    return ResourceExhausted(path + " has " + std::to_string(about.st_size) + " bytes, expected at most " +
                             std::to_string(kLongestFile));
  }
  bytes->resize(static_cast<std::size_t>(about.st_size));
  if (std::fread(bytes->data(), 1, bytes->size(), file.get()) != bytes->size()) {
    return DataLoss(path + " cannot be read: it ends before its " + std::to_string(bytes->size()) + " bytes");
  }
  return OkStatus();
}

Status ReadImageFile(const std::string& path, Channels channels, ImageSize size, Image* image) {
  std::string bytes;
  POSEIDON_RETURN_IF_ERROR(ReadFileBytes(path, &bytes));
  POSEIDON_RETURN_IF_ERROR(DecodeImage(bytes, channels, "image " + path, image));
  if (!size.is_given() || (image->shape.height == size.height && image->shape.width == size.width)) return OkStatus();
  Image scaled;
  POSEIDON_RETURN_IF_ERROR(Resize(*image, size.height, size.width, &scaled));
  *image = std::move(scaled);
  return OkStatus();
}

}  // namespace poseidon::caffe
