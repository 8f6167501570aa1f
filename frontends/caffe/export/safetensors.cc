// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/export/safetensors.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "poseidon/base/file.h"

namespace poseidon::caffe {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "numbers in a file are little-endian");

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the format's own bound
constexpr std::size_t kMostAxes = 32;                    // of a blob in Caffe
constexpr std::uint64_t kMostNumbers = std::uint64_t{1} << 62;
constexpr const char* kMetadata = "__metadata__";

struct Place {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in bytes, behind the header
  std::uint64_t end = 0;
};

std::uint64_t BytesPerNumber(const std::string& dtype) {
  if (dtype == "F64") return 8;
  if (dtype == "F32") return 4;
  return dtype == "F16" || dtype == "BF16" ? 2 : 0;
}

template <typename Stored>
std::vector<float> Converted(const std::string& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    numbers[i] = static_cast<float>(stored);
  }
  return numbers;
}

std::vector<float> ToFloats(const std::string& bytes, const std::string& dtype) {
  if (dtype == "F64") return Converted<double>(bytes);
  if (dtype == "F16") return Converted<c10::Half>(bytes);
  return dtype == "BF16" ? Converted<c10::BFloat16>(bytes) : Converted<float>(bytes);
}

Status ReadAt(const File& file, std::uint64_t offset, std::uint64_t count, const std::string& path, std::string* bytes) {
  bytes->resize(count);
  for (std::uint64_t done = 0; done < count;) {
    const ssize_t read = ::pread(file.fd(), bytes->data() + done, count - done, static_cast<off_t>(offset + done));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return DataLoss("cannot read " + path + ": " + (read < 0 ? ErrnoText(errno) : std::string("it became shorter")));
    done += static_cast<std::uint64_t>(read);
  }
  return OkStatus();
}

// One entry of the header, whose numbers are `all` bytes together.
Result<Place> ReadPlace(const std::string& name, const json& entry, std::uint64_t all) {
  const auto wrong = [&](const std::string& what) { return DataLoss("tensor '" + name + "' " + what); };
  const auto is_count = [](const json& value) { return value.is_number_unsigned(); };
  const bool whole = entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() && entry.contains("shape") &&
                     entry["shape"].is_array() && entry.contains("data_offsets") && entry["data_offsets"].is_array() &&
                     entry["data_offsets"].size() == 2 && std::all_of(entry["shape"].begin(), entry["shape"].end(), is_count) &&
                     std::all_of(entry["data_offsets"].begin(), entry["data_offsets"].end(), is_count);
  if (!whole) return wrong("has no dtype, shape and two data_offsets");
  Place place{.name = name, .dtype = entry["dtype"].get<std::string>(), .shape = {}};
  place.begin = entry["data_offsets"][0].get<std::uint64_t>();
  place.end = entry["data_offsets"][1].get<std::uint64_t>();
  std::uint64_t bytes = BytesPerNumber(place.dtype);
  if (bytes == 0) return wrong("has dtype " + place.dtype.substr(0, 16) + ", expected F32, F64, F16 or BF16");
  if (place.begin > place.end || place.end > all) {
    return wrong("has data_offsets beyond the " + std::to_string(all) + " bytes of numbers");
  }
  if (entry["shape"].size() > kMostAxes) return wrong("has " + std::to_string(entry["shape"].size()) + " axes, expected at most 32");
  for (const json& value : entry["shape"]) {
    const auto extent = value.get<std::uint64_t>();
    if (extent > kMostNumbers || (extent != 0 && bytes > all / extent)) return wrong("has a shape of more numbers than there are in the file");
    bytes *= extent;
    place.shape.push_back(static_cast<std::int64_t>(extent));
  }
  if (bytes == place.end - place.begin) return place;
  return wrong("has a shape of " + std::to_string(bytes) + " bytes, its data_offsets hold " + std::to_string(place.end - place.begin));
}

// The entries of the header in the order of their numbers, which follow one another from first to last.
Result<std::vector<Place>> ReadPlaces(const std::string& header, std::uint64_t all) {
  // Nothing that is right is nested deeper: what is deeper is left out, and missed.
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth < 4; };
  const json entries = json::parse(header, shallow, /*allow_exceptions=*/false);
  if (!entries.is_object()) return DataLoss("the header is not a JSON object");
  std::vector<Place> places;
  for (const auto& [name, entry] : entries.items()) {
    if (name == kMetadata) continue;
    POSEIDON_ASSIGN_OR_RETURN(Place place, ReadPlace(name, entry, all));
    places.push_back(std::move(place));
  }
  const auto before = [](const Place& a, const Place& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); };
  std::sort(places.begin(), places.end(), before);
  std::uint64_t end = 0;
  for (const Place& place : places) {
    if (place.begin != end) return DataLoss("the numbers of tensor '" + place.name + "' do not follow those before it");
    end = place.end;
  }
  if (end != all) return DataLoss("there are " + std::to_string(all) + " bytes of numbers, the header speaks of " + std::to_string(end));
  return places;
}

// The header and the numbers' first byte.
struct Header {
  std::string text;
  std::uint64_t numbers = 0;  // offset
  std::uint64_t bytes = 0;    // of numbers
};

Result<Header> ReadHeader(const File& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return InvalidArgument("it is not a file that can be read in any order");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < 8) return DataLoss("it has " + std::to_string(size) + " bytes, expected 8 that say how long the header is");
  std::string first;
  POSEIDON_RETURN_IF_ERROR(ReadAt(file, 0, 8, path, &first));
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof length);
  if (length > size - 8 || length > kMostHeaderBytes) {
    return DataLoss("its header would have " + std::to_string(length) + " bytes, the file has " + std::to_string(size));
  }
  Header header{.text = {}, .numbers = 8 + length, .bytes = size - 8 - length};
  POSEIDON_RETURN_IF_ERROR(ReadAt(file, 8, length, path, &header.text));
  return header;
}

Result<std::vector<NamedTensor>> ReadTensors(const File& file, const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(const Header header, ReadHeader(file, path));
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<Place> places, ReadPlaces(header.text, header.bytes));
  std::vector<NamedTensor> tensors;
  std::string bytes;
  for (const Place& place : places) {
    POSEIDON_RETURN_IF_ERROR(ReadAt(file, header.numbers + place.begin, place.end - place.begin, path, &bytes));
    tensors.push_back({place.name, place.shape, ToFloats(bytes, place.dtype)});
  }
  return tensors;
}

}  // namespace

Status WriteSafetensors(const std::vector<TensorView>& tensors, const std::string& net, const std::string& path) {
  nlohmann::ordered_json header;
  header[kMetadata] = {{"format", "caffe"}, {"net", net}};
  std::uint64_t end = 0;
  for (const TensorView& tensor : tensors) {
    const std::uint64_t begin = std::exchange(end, end + tensor.numbers.size_bytes());
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // numbers begin at a multiple of 8
  const std::uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes.reserve(sizeof length + text.size() + end);
  bytes += text;
  for (const TensorView& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.numbers.data()), tensor.numbers.size_bytes());
  }
  return WriteFileAtomically(bytes, path);
}

Result<std::vector<NamedTensor>> ReadSafetensors(const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenToRead(path));
  Result<std::vector<NamedTensor>> tensors = ReadTensors(*file, path);
  if (!tensors.ok()) return tensors.status().WithPrefix(path + " is no whole safetensors file");
  return tensors;
}

}  // namespace poseidon::caffe
