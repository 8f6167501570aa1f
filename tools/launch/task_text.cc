// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/task_text.h"

#include <cstddef>

namespace poseidon::launch {
namespace {

using nlohmann::json;

constexpr const char* kOfBytes = "of_bytes";

// U+0000 to U+00FF, in UTF-8.
std::string CharacterForEachByte(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | byte >> 6);
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

// The reverse. Characters that stand for no byte stay.
std::string ByteForEachCharacter(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if ((first & 0xfc) == 0xc0 && i + 1 < text.size()) {
      bytes += static_cast<char>((first & 0x03) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f));
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

// The same value with every string in it, keys too, as `change` makes it.
json Changed(const json& value, std::string (*change)(const std::string&)) {
  if (value.is_string()) return change(value.get_ref<const std::string&>());
  json changed = value;
  if (value.is_array()) {
    for (json& element : changed) element = Changed(element, change);
  } else if (value.is_object()) {
    changed.clear();
    for (const auto& [key, element] : value.items()) changed[change(key)] = Changed(element, change);
  }
  return changed;
}

}  // namespace

std::string EncodeTask(const json& task) {
  try {
    return task.dump();
  } catch (const json::type_error&) {  // a string of it is no UTF-8
    return json{{kOfBytes, Changed(task, CharacterForEachByte)}}.dump();
  }
}

json DecodeTask(const std::string& line) {
  json read = json::parse(line, nullptr, false);
  if (!read.is_object() || !read.contains(kOfBytes)) return read;
  return Changed(read[kOfBytes], ByteForEachCharacter);
}

}  // namespace poseidon::launch
