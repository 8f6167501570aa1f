// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "poseidon/base/new_file.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/secret_bytes.h"

namespace poseidon::transport::tcp {
namespace {

constexpr std::size_t kDigits = 2 * Token::kBytes;
constexpr std::string_view kExpected = "64 hexadecimal digits";

// Text of a token: its digits and a newline, wiped when done.
struct Text {
  ~Text() { Wipe(std::as_writable_bytes(std::span(chars))); }
  std::array<char, kDigits + 1> chars{};
};

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Up to `chars.size()` characters; more than a token has is not worth reading.
Result<std::size_t> ReadAll(int fd, std::span<char> chars) {
  std::size_t size = 0;
  while (size < chars.size()) {
    const ssize_t n = ::read(fd, chars.data() + size, chars.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return NotFound("it cannot be read (" + ErrnoText(errno) + ")");
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  return size;
}

std::string Octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

// Whether the open file is one that only this user (or root) can have written and can read.
Status CheckPrivate(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return InvalidArgument("it is not a regular file");
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return PermissionDenied("it belongs to another user");
  }
  if ((status.st_mode & 077) != 0) {
    return PermissionDenied("its mode " + Octal(status.st_mode) +
                            " opens it to group or others, expected 0600 (chmod 600)");
  }
  return OkStatus();
}

std::string Name(const std::filesystem::path& path) { return "token file '" + path.string() + "'"; }

}  // namespace

Token::Token(std::span<const std::byte, kBytes> bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

Token::~Token() { Wipe(bytes_); }

Result<Token> Token::Generate() {
  Token token(std::array<std::byte, kBytes>{});
  if (!FillRandom(token.bytes_)) return Internal("the system has no randomness for a token");
  return token;
}

Result<Token> Token::FromFile(const std::filesystem::path& path) {
  // O_NONBLOCK: to open a named pipe would wait for its writer. CheckPrivate refuses it afterwards.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const Status status = errno == EACCES
                              ? PermissionDenied("it cannot be opened (" + ErrnoText(errno) + ")")
                              : NotFound("it cannot be opened (" + ErrnoText(errno) + ")");
    return status.WithPrefix(Name(path));
  }
  // Of the open file, not of the path: nobody can put another file there between the check and the read.
  if (Status status = CheckPrivate(fd.get()); !status.ok()) return status.WithPrefix(Name(path));
  Result<Token> token = FromDescriptor(fd.get());
  if (!token.ok()) return token.status().WithPrefix(Name(path));
  // Where a file holds two tokens, another program may read the other one.
  char more = 0;
  const Result<std::size_t> after = ReadAll(fd.get(), {&more, 1});
  if (!after.ok()) return after.status().WithPrefix(Name(path));
  if (*after > 0) {
    return DataLoss(Name(path) + ": it goes on after its first line, expected " + std::string(kExpected) + " alone");
  }
  return token;
}

Result<Token> Token::FromDescriptor(int fd) {
  Text text;
  // Reads no further than the newline: where the other end of a pipe stays open, its end never comes.
  POSEIDON_ASSIGN_OR_RETURN(const std::size_t size, ReadAll(fd, text.chars));
  if (size < kDigits || (size > kDigits && text.chars[kDigits] != '\n')) {
    return DataLoss("it holds no token, expected " + std::string(kExpected));
  }
  return FromHex({text.chars.data(), kDigits});
}

Result<Token> Token::FromHex(std::string_view digits) {
  Token token(std::array<std::byte, kBytes>{});
  for (std::size_t i = 0; i < kBytes; ++i) {
    const int high = digits.size() == kDigits ? DigitValue(digits[2 * i]) : -1;
    const int low = digits.size() == kDigits ? DigitValue(digits[2 * i + 1]) : -1;
    if (high < 0 || low < 0) {
      return DataLoss("it holds no token, expected " + std::string(kExpected));
    }
    token.bytes_[i] = static_cast<std::byte>(high * 16 + low);
  }
  return token;
}

Status Token::WriteDescriptor(int fd) const {
  static constexpr char kHex[] = "0123456789abcdef";
  Text text;
  for (std::size_t i = 0; i < kBytes; ++i) {
    text.chars[2 * i] = kHex[std::to_integer<unsigned>(bytes_[i]) >> 4];
    text.chars[2 * i + 1] = kHex[std::to_integer<unsigned>(bytes_[i]) & 15];
  }
  text.chars[kDigits] = '\n';
  const Status written = WriteAll(fd, {text.chars.data(), text.chars.size()});
  return written.ok() ? written : Unavailable("it cannot be written (" + written.message() + ")");
}

Status Token::WriteFile(const std::filesystem::path& path) const {
  std::string temporary = path.string() + ".XXXXXX";
  const UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));  // creates it with mode 0600
  if (!fd.valid()) {
    return PermissionDenied(Name(path) + " cannot be created (" + ErrnoText(errno) + ")");
  }
  Status status = WriteDescriptor(fd.get());
  // On the device before it takes the name: the header promises that a file is replaced only as a whole.
  if (status.ok() && (::fsync(fd.get()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0)) {
    status = Unavailable("it cannot be written (" + ErrnoText(errno) + ")");
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status.WithPrefix(Name(path));
}

}  // namespace poseidon::transport::tcp
