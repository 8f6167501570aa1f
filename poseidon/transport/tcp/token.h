// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_TOKEN_H_
#define POSEIDON_TRANSPORT_TCP_TOKEN_H_

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"

namespace poseidon::transport::tcp {

// The job's secret: whoever holds these 256 random bits is a member. It has no way into a log line
// or a command line; it travels by a file that only its owner may read, or by an inherited
// descriptor. Every copy is wiped when it is destroyed.
class Token {
 public:
  static constexpr std::size_t kBytes = 32;

  // Random bits of the system. kInternal when it has none to give.
  static Result<Token> Generate();
  // The file must belong to this user (or root), be closed to group and others, and hold 64
  // hexadecimal digits. kNotFound, kPermissionDenied or kDataLoss with the path in the message.
  static Result<Token> FromFile(const std::filesystem::path& path);
  // Reads the same text from an open descriptor up to its end, and leaves the descriptor open.
  static Result<Token> FromDescriptor(int fd);
  // The same text without its end of line. kDataLoss.
  static Result<Token> FromHex(std::string_view digits);
  static Token FromBytes(std::span<const std::byte, kBytes> bytes) { return Token(bytes); }

  // Writes a new file with mode 0600, replacing one of that name only as a whole.
  Status WriteFile(const std::filesystem::path& path) const;
  Status WriteDescriptor(int fd) const;

  Token(const Token&) = default;
  Token& operator=(const Token&) = default;
  ~Token();

  ConstBytes bytes() const { return bytes_; }

 private:
  explicit Token(std::span<const std::byte, kBytes> bytes);
  std::array<std::byte, kBytes> bytes_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_TOKEN_H_
