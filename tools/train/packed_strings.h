// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_PACKED_STRINGS_H_
#define POSEIDON_TOOLS_TRAIN_PACKED_STRINGS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "poseidon/base/check.h"

// Lists of strings as one, between processes of one program on one machine.
namespace poseidon::tools {

inline void PackNumber(std::uint64_t number, std::string* bytes) { bytes->append(reinterpret_cast<const char*>(&number), sizeof number); }

// For each list the number of its strings, then each string behind its size.
inline std::string Packed(const std::vector<std::vector<std::string>>& lists) {
  std::string bytes;
  for (const std::vector<std::string>& list : lists) {
    PackNumber(list.size(), &bytes);
    for (const std::string& one : list) {
      PackNumber(one.size(), &bytes);
      bytes += one;
    }
  }
  return bytes;
}

// Reads what Packed has made, part by part. Lifetime: within that of the bytes.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t Number() {
    std::uint64_t number = 0;
    std::memcpy(&number, Take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view String() { return Take(Number()); }

 private:
  std::string_view Take(std::uint64_t size) {
    POSEIDON_CHECK(size <= bytes_.size(), "packed strings end too early");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view bytes_;
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_PACKED_STRINGS_H_
