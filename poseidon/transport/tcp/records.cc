// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/records.h"

#include <algorithm>

namespace poseidon::transport::tcp {
namespace {

constexpr std::uint32_t kNextKeyBit = std::uint32_t{1} << 31;
// From here on a buffer has records of its own. Below it, the copy from a record that held more than was asked for costs less
// than one more record.
constexpr std::size_t kLargeBytes = std::size_t{16} << 10;

}  // namespace

RecordHeader EncodeRecordHeader(const RecordFields& fields) {
  const std::uint32_t number = static_cast<std::uint32_t>(fields.body_bytes) | (fields.next_key ? kNextKeyBit : 0);
  RecordHeader header;
  for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<std::byte>(number >> (8 * i));
  return header;
}

std::optional<RecordFields> DecodeRecordHeader(const RecordHeader& header) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < header.size(); ++i) number |= std::to_integer<std::uint32_t>(header[i]) << (8 * i);
  const RecordFields fields{.body_bytes = number & ~kNextKeyBit, .next_key = (number & kNextKeyBit) != 0};
  if (fields.body_bytes == 0 || fields.body_bytes > kMaxRecordBytes) return std::nullopt;
  return fields;
}

std::size_t NextRecordBytes(std::span<const ConstBytes> buffers, std::size_t limit) {
  limit = std::min(limit, kRecordBytes);
  std::size_t bytes = 0;
  for (const ConstBytes buffer : buffers) {
    if (bytes == limit || (bytes > 0 && buffer.size() >= kLargeBytes)) break;
    bytes += std::min(buffer.size(), limit - bytes);
  }
  return bytes;
}

RecordKeys::RecordKeys(CipherKind kind, CipherUse use, const Key& secret, std::uint64_t rekey_after_bytes)
    : kind_(kind),
      use_(use),
      rekey_after_bytes_(rekey_after_bytes),
      secret_(secret),
      cipher_(NewRecordCipher(kind, use, secret)) {}

RecordHeader RecordKeys::BeginNext(std::size_t body_bytes) {
  const RecordFields fields{.body_bytes = body_bytes, .next_key = bytes_ >= rekey_after_bytes_};
  const RecordHeader header = EncodeRecordHeader(fields);
  Begin(fields, header);
  return header;
}

void RecordKeys::Begin(const RecordFields& fields, const RecordHeader& header) {
  if (fields.next_key) ChangeKey();
  cipher_->Begin(number_++, header);
  bytes_ += fields.body_bytes;
}

// The old secret is wiped with its key: who takes the new one cannot read what was sent before.
void RecordKeys::ChangeKey() {
  secret_ = Key::Derive(secret_.bytes(), "poseidon next record secret");
  cipher_ = NewRecordCipher(kind_, use_, secret_);
  number_ = 0;
  bytes_ = 0;
}

}  // namespace poseidon::transport::tcp
