// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_BYTE_CODEC_H_
#define POSEIDON_BASE_BYTE_CODEC_H_

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "poseidon/base/bytes.h"
#include "poseidon/base/check.h"
#include "poseidon/base/status.h"

// Numbers and texts as little-endian bytes, the same on every machine. What a ByteWriter wrote a
// ByteReader reads with the same calls in the same order. Ids, enums and flags travel as their
// numbers; checking that such a number is a legal value is the caller's part.
namespace poseidon {

// Appends to a buffer of its own.
class ByteWriter {
 public:
  void U8(std::uint8_t value) { Number(value); }
  void U16(std::uint16_t value) { Number(value); }
  void U32(std::uint32_t value) { Number(value); }
  void U64(std::uint64_t value) { Number(value); }
  void I32(std::int32_t value) { Number(static_cast<std::uint32_t>(value)); }
  void I64(std::int64_t value) { Number(static_cast<std::uint64_t>(value)); }
  void Bool(bool value) { Number(static_cast<std::uint8_t>(value ? 1 : 0)); }
  void F64(double value) { Number(std::bit_cast<std::uint64_t>(value)); }
  // A length (u32), then the bytes.
  void Text(std::string_view text) { Block(AsBytes(text)); }
  void Block(ConstBytes bytes) {
    POSEIDON_CHECK(bytes.size() <= 0xffff'ffffu, "a block of 4 GiB cannot be written");
    U32(static_cast<std::uint32_t>(bytes.size()));
    Raw(bytes);
  }
  // The bytes alone, for a reader who knows how many there are.
  void Raw(ConstBytes bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }

  std::size_t size() const { return buffer_.size(); }
  const ByteBuffer& buffer() const { return buffer_; }
  ByteBuffer Take() { return std::exchange(buffer_, {}); }

 private:
  template <std::unsigned_integral T>
  void Number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      buffer_.push_back(static_cast<std::byte>((std::uint64_t{value} >> (8 * i)) & 0xff));
    }
  }
  ByteBuffer buffer_;
};

// Reads bytes that may be anything. The first read that does not fit fails the reader; from then on
// every read returns zero or an empty text, so that a decoder asks ok() or Finish() once at its
// end, and earlier only before it allocates. Views returned by Block and Raw point into the input.
class ByteReader {
 public:
  explicit ByteReader(ConstBytes input) : rest_(input) {}

  std::uint8_t U8() { return Number<std::uint8_t>(); }
  std::uint16_t U16() { return Number<std::uint16_t>(); }
  std::uint32_t U32() { return Number<std::uint32_t>(); }
  std::uint64_t U64() { return Number<std::uint64_t>(); }
  std::int32_t I32() { return static_cast<std::int32_t>(Number<std::uint32_t>()); }
  std::int64_t I64() { return static_cast<std::int64_t>(Number<std::uint64_t>()); }
  double F64() { return std::bit_cast<double>(Number<std::uint64_t>()); }
  // A rate or a duration: a finite number, 0 or more; anything else fails the reader. Not -0.0, which
  // would come back as another value's bits.
  double Quantity() {
    const double value = F64();
    if (std::isfinite(value) && value >= 0 && !std::signbit(value)) return value;
    Fail();
    return 0;
  }
  // Only 0 and 1 are flags; anything else fails the reader.
  bool Bool() {
    const std::uint8_t value = U8();
    if (value > 1) Fail();
    return value == 1;
  }
  // A text of at most `max_size` bytes.
  std::string Text(std::size_t max_size) { return AsString(Block(max_size)); }
  ConstBytes Block(std::size_t max_size) {
    const std::uint32_t size = U32();
    if (size > max_size) Fail();
    return Raw(size);
  }
  ConstBytes Raw(std::size_t size) {
    if (!ok_ || size > rest_.size()) {
      Fail();
      return {};
    }
    const ConstBytes taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  // The count (u32) of things that follow, each at least `min_bytes_each` >= 1 bytes long: a count
  // that exceeds `max_count` or that the remaining bytes cannot hold fails the reader and reads as
  // 0, so that the count may be used to reserve memory.
  std::uint32_t Count(std::size_t max_count, std::size_t min_bytes_each) {
    const std::uint32_t count = U32();
    if (ok_ && (count > max_count || count > rest_.size() / min_bytes_each)) Fail();
    return ok_ ? count : 0;
  }

  // For a decoder that found an illegal value.
  void Fail() {
    ok_ = false;
    rest_ = {};
  }
  bool ok() const { return ok_; }
  std::size_t remaining() const { return rest_.size(); }
  // OK when everything was read and nothing is left; else kDataLoss naming `what`.
  Status Finish(std::string_view what) const {
    if (!ok_) return DataLoss(std::string(what) + " is truncated or holds an illegal value");
    if (!rest_.empty()) {
      return DataLoss(std::string(what) + " has " + std::to_string(rest_.size()) +
                      " bytes behind its end");
    }
    return OkStatus();
  }

 private:
  template <std::unsigned_integral T>
  T Number() {
    const ConstBytes raw = Raw(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      value |= std::to_integer<std::uint64_t>(raw[i]) << (8 * i);
    }
    return static_cast<T>(value);
  }
  ConstBytes rest_;
  bool ok_ = true;
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_BYTE_CODEC_H_
