// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/convert_cifar.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "frontends/caffe/data/database_writer.h"
#include "frontends/caffe/proto/caffe.pb.h"

namespace poseidon::caffe {
namespace {

constexpr int kSide = 32, kChannels = 3, kClasses = 10;
constexpr std::size_t kPixels = std::size_t{kChannels} * kSide * kSide;
constexpr std::uint64_t kMostImages = 100'000;  // keys of five digits are in order

Result<std::uint64_t> ImagesIn(const std::string& path) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return NotFound(path + " cannot be opened: " + error.message());
  if (bytes == 0 || bytes % (kPixels + 1) != 0) {
    return DataLoss(path + " has " + std::to_string(bytes) + " bytes, expected " + std::to_string(kPixels + 1) +
                    " for each image: CIFAR-10's binary version, unpacked");
  }
  return bytes / (kPixels + 1);
}

// Puts the images of one file behind the first `*done`.
Status AddFile(const std::string& path, std::uint64_t images, DatabaseWriter* writer, std::uint64_t* done) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + " cannot be opened: " + ErrnoText(errno));
  std::string value;
  Datum datum;
  datum.set_channels(kChannels);
  datum.set_height(kSide);
  datum.set_width(kSide);
  std::string& image = *datum.mutable_data();
  image.resize(kPixels);
  for (std::uint64_t i = 0; i < images; ++i, ++*done) {
    const int label = file.get();
    if (!file.read(image.data(), static_cast<std::streamsize>(image.size()))) {
      return DataLoss(path + " ends within image " + std::to_string(i));
    }
    if (label >= kClasses) {
      return DataLoss(path + ": image " + std::to_string(i) + " has label " + std::to_string(label) + ", expected 0 to 9");
    }
    datum.set_label(label);
    if (!datum.SerializeToString(&value)) return Internal("an image of " + path + " is too large");
    std::array<char, 24> key{};
    std::snprintf(key.data(), key.size(), "%05llu", static_cast<unsigned long long>(*done));
    POSEIDON_RETURN_IF_ERROR(writer->Put(key.data(), value));
  }
  return OkStatus();
}

}  // namespace

Result<std::uint64_t> ConvertCifar(const std::vector<std::string>& files, const std::string& database, Database backend) {
  std::vector<std::uint64_t> images;
  std::uint64_t all = 0;
  for (const std::string& path : files) {
    POSEIDON_ASSIGN_OR_RETURN(const std::uint64_t count, ImagesIn(path));
    if (count > kMostImages || (all += count) > kMostImages) {
      return InvalidArgument(path + " has more images than the " + std::to_string(kMostImages) + " that keys of five digits name");
    }
    images.push_back(count);
  }
  POSEIDON_ASSIGN_OR_RETURN(auto writer, DatabaseWriter::Create(backend, database, all * (kPixels + 64)));
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < files.size(); ++i) POSEIDON_RETURN_IF_ERROR(AddFile(files[i], images[i], writer.get(), &done));
  POSEIDON_RETURN_IF_ERROR(writer->Finish());
  return done;
}

}  // namespace poseidon::caffe
