// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/source_part.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// As the writers of databases take it.
std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string PathOfPart(const std::string& source, int part) { return WithoutSlashes(source) + "_" + std::to_string(part); }

bool HasParts(const std::string& source) {
  if (source.empty() || IsThere(source)) return false;
  const fs::path path(WithoutSlashes(source));
  const std::string prefix = path.filename().string() + "_";
  std::error_code error;
  fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : fs::path("."), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() > prefix.size() && name.starts_with(prefix) &&
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      return true;
    }
  }
  return false;
}

Result<SourcePart> PartOf(const std::string& source, bool shared_file_system, int rank, int world) {
  if (shared_file_system || !HasParts(source)) return SourcePart{.path = source};
  const auto part = [&](int k) { return PathOfPart(source, k); };
  const std::string expected = source + " is not there, so every worker has a part of its own, " + part(0) + " to " + part(world - 1);
  if (!IsThere(part(rank))) return InvalidArgument(expected + "; there is no " + part(rank) + " for worker " + std::to_string(rank));
  if (IsThere(part(world))) {
    return InvalidArgument(expected + "; there is also " + part(world) + ", expected as many parts as workers");
  }
  return SourcePart{.path = part(rank), .suffix = "_" + std::to_string(rank), .own = true};
}

}  // namespace poseidon::caffe
