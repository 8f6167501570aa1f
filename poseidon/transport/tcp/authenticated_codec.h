// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_AUTHENTICATED_CODEC_H_
#define POSEIDON_TRANSPORT_TCP_AUTHENTICATED_CODEC_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "poseidon/transport/tcp/codec.h"
#include "poseidon/transport/tcp/records.h"

namespace poseidon::transport::tcp {

// Records (records.h) whose bodies are authenticated and not encrypted. Bodies go straight between the socket and the
// caller's memory; the tag is computed right before they leave, and piece by piece as they land.
class AuthenticatedCodec final : public Codec {
 public:
  AuthenticatedCodec(int fd, const RecordSecrets& secrets, std::uint64_t rekey_after_bytes, const WireBytes& of_handshake);

  Moved Read(ReadCursor& into, Amount amount) override;
  Moved Write(WriteCursor& from, std::size_t limit) override;
  bool unsent() const override { return !leaving_.done(); }

 private:
  // What surrounds a body.
  struct Frame {
    RecordHeader header;
    Tag tag;
  };
  // Small records that leave in one call.
  static constexpr std::size_t kBatch = 32;
  // Read ahead of a body: what is behind it, as far as it is small.
  static constexpr std::size_t kAheadBytes = std::size_t{4} << 10;

  void AddRecord(WriteCursor& from, std::size_t body_bytes, Frame& frame);
  std::size_t ahead() const { return ahead_end_ - ahead_begin_; }
  // One call: into the body under way and behind it into ahead_. kGoOn when bytes have come; `emptied`: and no more are there.
  Next Receive(int& error, bool& emptied);
  // False when the header is no record's.
  bool BeginRecord(ReadCursor& into);
  void TakeBodyFromAhead();

  const int fd_;
  RecordKeys sealing_;
  RecordKeys opening_;

  WriteCursor leaving_;  // of the caller's memory and of frames_
  std::array<Frame, kBatch> frames_;

  ByteBuffer ahead_;  // [ahead_begin_, ahead_end_) has been received and is still to be used
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;
  bool in_record_ = false;
  std::size_t landing_ = 0;  // bytes of the record that land at the reader
  ReadCursor body_;          // where the rest of the record lands
  Spill spill_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_AUTHENTICATED_CODEC_H_
