// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <optional>

#include "frontends/caffe/data/image_formats.h"

namespace poseidon::caffe {
namespace {

// Numbers of a TIFF file (TIFF 6.0, section 2), in the byte order that it begins with.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes), little_(bytes.starts_with("II")) {}

  std::optional<std::uint32_t> Number(std::size_t offset, std::size_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return std::nullopt;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value = value << 8 | static_cast<unsigned char>(bytes_[offset + (little_ ? size - 1 - i : i)]);
    }
    return value;
  }

 private:
  const std::string_view bytes_;
  const bool little_;
};

}  // namespace

int ExifOrientation(std::string_view tiff) {
  constexpr std::uint32_t kMagic = 42, kOrientation = 0x0112;
  constexpr std::size_t kEntry = 12;  // tag, type, count, value: 2, 2, 4 and 4 bytes
  if (!tiff.starts_with("II") && !tiff.starts_with("MM")) return 1;
  const Tiff numbers(tiff);
  const auto directory = numbers.Number(4, 4);
  if (numbers.Number(2, 2) != kMagic || !directory) return 1;
  const auto entries = numbers.Number(*directory, 2);
  for (std::size_t i = 0; entries && i < *entries; ++i) {
    const std::size_t entry = *directory + 2 + i * kEntry;
    const auto tag = numbers.Number(entry, 2);
    if (!tag) return 1;
    if (*tag == kOrientation) return static_cast<int>(numbers.Number(entry + 8, 2).value_or(1));
  }
  return 1;
}

}  // namespace poseidon::caffe
