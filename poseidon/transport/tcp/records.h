// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_RECORDS_H_
#define POSEIDON_TRANSPORT_TCP_RECORDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "poseidon/base/bytes.h"
#include "poseidon/transport/tcp/codec.h"
#include "poseidon/transport/tcp/hello.h"
#include "poseidon/transport/tcp/record_cipher.h"

// The records in which bytes travel once both ends have authenticated: a header of four bytes, the body, a tag of
// sixteen. The header is a little-endian number: bits 0 to 30 the bytes of the body, bit 31 set in the first record
// under the next key. The tag authenticates the header, the body and the number of the record, which counts
// from 0 under each key and is not sent: a record that is changed, left out, repeated, out of turn, sent back or of another
// connection does not check. docs/wire-protocol.md, docs/security.md.
namespace poseidon::transport::tcp {

inline constexpr std::size_t kRecordHeaderBytes = 4;
// More than a body may have: a receiver refuses it before it makes room.
inline constexpr std::size_t kMaxRecordBytes = std::size_t{256} << 10;
// What a sender puts into one: large enough that header, tag and calls cost nothing, small enough that a record
// that was sealed is still in the cache when the kernel copies it. Measured: docs/decisions/records.md.
inline constexpr std::size_t kRecordBytes = std::size_t{128} << 10;

using RecordHeader = std::array<std::byte, kRecordHeaderBytes>;

struct RecordFields {
  std::size_t body_bytes = 0;  // 1 to kMaxRecordBytes
  bool next_key = false;
};
RecordHeader EncodeRecordHeader(const RecordFields& fields);
// Nothing where no sender can have written it.
std::optional<RecordFields> DecodeRecordHeader(const RecordHeader& header);

// How many bytes of `buffers`, from their start, are the body of the next record: at most `limit` and kRecordBytes. A
// record ends before a large buffer, so that its receiver, who reads small buffers first, learns where the large one is to
// land before it opens it.
std::size_t NextRecordBytes(std::span<const ConstBytes> buffers, std::size_t limit);

// Bytes of a record that was opened for a reader with less room, for the reads that follow.
class Spill {
 public:
  // Room for so many bytes; nothing else may be here.
  MutableBytes Room(std::size_t bytes) {
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    begin_ = 0;
    end_ = bytes;
    return MutableBytes(buffer_).first(bytes);
  }
  bool empty() const { return begin_ == end_; }
  // Copies what `into` takes and advances it; returns how much.
  std::size_t MoveTo(ReadCursor& into) {
    const std::size_t bytes = std::min(end_ - begin_, into.left());
    into.ForNext(bytes, [this](MutableBytes piece) {
      std::ranges::copy(ConstBytes(buffer_).subspan(begin_, piece.size()), piece.begin());
      begin_ += piece.size();
    });
    into.Advance(bytes);
    return bytes;
  }

 private:
  ByteBuffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// The secrets of one connection's two directions.
struct RecordSecrets {
  Key to_peer;
  Key from_peer;
};
// As the end that is `role` has them.
inline RecordSecrets SecretsOf(HelloRole role, const Key& of_client, const Key& of_server) {
  const bool client = role == HelloRole::kClient;
  return {.to_peer = client ? of_client : of_server, .from_peer = client ? of_server : of_client};
}

// One direction's ciphers, one after another, and the numbers of its records.
class RecordKeys {
 public:
  // A sender changes the key before the first record that would begin with `rekey_after_bytes` under it.
  RecordKeys(CipherKind kind, CipherUse use, const Key& secret, std::uint64_t rekey_after_bytes);

  // Sender: begins a record of `body_bytes` and returns its header.
  RecordHeader BeginNext(std::size_t body_bytes);
  // Receiver: begins the record that this header announces.
  void Begin(const RecordFields& fields, const RecordHeader& header);
  RecordCipher& cipher() { return *cipher_; }

 private:
  void ChangeKey();

  const CipherKind kind_;
  const CipherUse use_;
  const std::uint64_t rekey_after_bytes_;
  Key secret_;
  std::unique_ptr<RecordCipher> cipher_;
  std::uint64_t number_ = 0;
  std::uint64_t bytes_ = 0;  // under this key
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_RECORDS_H_
