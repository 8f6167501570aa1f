// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "frontends/caffe/data/encoded_image.h"
#include "poseidon/base/file.h"

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kLongestFile = std::int64_t{1} << 30;

}  // namespace

Status ReadFileBytes(const std::string& path, std::string* bytes) {
  const File file(path, O_RDONLY | O_NONBLOCK);  // a pipe that nobody writes into would be waited for
  struct stat about {};
  if (!file.is_open() || ::fstat(file.fd(), &about) != 0) return NotFound(path + " cannot be read: " + ErrnoText(errno));
  if (!S_ISREG(about.st_mode)) return InvalidArgument(path + " is no file");
  if (about.st_size > kLongestFile) {
    return ResourceExhausted(path + " has " + std::to_string(about.st_size) + " bytes, expected at most " +
                             std::to_string(kLongestFile));
  }
  bytes->resize(static_cast<std::size_t>(about.st_size));
  for (std::size_t done = 0; done < bytes->size();) {
    const ssize_t got = ::read(file.fd(), bytes->data() + done, bytes->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return DataLoss(path + " cannot be read: it ends before its " + std::to_string(bytes->size()) + " bytes");
    done += static_cast<std::size_t>(got);
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
