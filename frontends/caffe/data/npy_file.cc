// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/npy_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "frontends/caffe/data/image_file.h"
#include "poseidon/base/file.h"

namespace poseidon::caffe {
namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);

// The text behind "'name':" in the header, from its first character on.
Result<std::string_view> HeaderField(std::string_view header, std::string_view name) {
  const std::size_t at = header.find("'" + std::string(name) + "':");
  if (at == std::string_view::npos) return DataLoss("its header has no '" + std::string(name) + "'");
  header.remove_prefix(at + name.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

// "(3, 256, 256), ..." as numbers, and their product, which is at most `most`.
Result<std::vector<std::int64_t>> ShapeIn(std::string_view text, std::uint64_t most, std::uint64_t* count) {
  std::vector<std::int64_t> shape;
  const std::size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) return DataLoss("its shape is not readable");
  text = text.substr(1, end - 1);
  *count = 1;
  while (!text.empty()) {
    std::int64_t dim = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (read.ec != std::errc() || dim < 0) return DataLoss("its shape is not readable");
    if (dim > 0 && *count > most / static_cast<std::uint64_t>(dim)) return DataLoss("it ends before its last number");
    *count *= static_cast<std::uint64_t>(dim);
    shape.push_back(dim);
    text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
  }
  return shape;
}

template <typename T>
void ToFloats(std::string_view bytes, std::vector<float>* values) {
  for (std::size_t i = 0; i < values->size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    (*values)[i] = static_cast<float>(value);
  }
}

Result<NpyArray> ParseNpy(std::string_view file) {
  if (!file.starts_with(kNpyMagic) || file.size() < 12) return DataLoss("it is no .npy file");
  const std::size_t prefix = file[6] == 1 ? 2 : 4;  // version 1 has 16 bits for the header's size
  std::size_t header_size = 0;
  std::memcpy(&header_size, file.data() + 8, prefix);
  file.remove_prefix(8 + prefix);
  if (header_size > file.size()) return DataLoss("it ends within its header");
  const std::string_view header = file.substr(0, header_size);
  file.remove_prefix(header_size);
  POSEIDON_ASSIGN_OR_RETURN(const std::string_view type, HeaderField(header, "descr"));
  POSEIDON_ASSIGN_OR_RETURN(const std::string_view order, HeaderField(header, "fortran_order"));
  POSEIDON_ASSIGN_OR_RETURN(const std::string_view shape, HeaderField(header, "shape"));
  if (!order.starts_with("False")) return Unimplemented("it is in Fortran's order, expected C's");
  const std::size_t width = type.starts_with("'<f4'") ? 4 : type.starts_with("'<f8'") ? 8 : type.starts_with("'|u1'") ? 1 : 0;
  if (width == 0) return Unimplemented("its type is " + std::string(type.substr(0, 8)) + ", expected '<f4', '<f8' or '|u1'");
  NpyArray array;
  std::uint64_t count = 0;
  POSEIDON_ASSIGN_OR_RETURN(array.shape, ShapeIn(shape, file.size() / width, &count));
  if (count * width != file.size()) return DataLoss("it has " + std::to_string(file.size()) + " bytes behind its header, expected " + std::to_string(count * width));
  array.values.resize(count);
  if (width == 4) ToFloats<float>(file, &array.values);
  else if (width == 8) ToFloats<double>(file, &array.values);
  else ToFloats<std::uint8_t>(file, &array.values);
  return array;
}

}  // namespace

Result<NpyArray> ReadNpy(const std::string& path) {
  std::string bytes;
  POSEIDON_RETURN_IF_ERROR(ReadFileBytes(path, &bytes));
  Result<NpyArray> array = ParseNpy(bytes);
  if (!array.ok()) return array.status().WithPrefix(path + " cannot be read");
  return array;
}

Status WriteNpy(const NpyArray& array, const std::string& path) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (const std::int64_t dim : array.shape) header += std::to_string(dim) + ", ";
  header += "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');  // numbers begin at a multiple of 64 bytes
  header += '\n';
  std::string bytes(kNpyMagic);
  bytes += {1, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(array.values.data()), array.values.size() * sizeof(float));
  return WriteFileAtomically(bytes, path);
}

}  // namespace poseidon::caffe
