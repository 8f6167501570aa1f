// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_SEALED_CODEC_H_
#define POSEIDON_TRANSPORT_TCP_SEALED_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "poseidon/transport/tcp/codec.h"
#include "poseidon/transport/tcp/records.h"

namespace poseidon::transport::tcp {

// Encrypted records (records.h). A body is sealed from the caller's memory into the buffer that is sent, and opened from
// the buffer that was received into the caller's memory: each byte is touched once in each direction beside the kernel's copy.
class SealedCodec final : public Codec {
 public:
  // `arrived`: bytes behind the handshake that have been received with it.
  SealedCodec(int fd, CipherKind kind, const RecordSecrets& secrets, std::uint64_t rekey_after_bytes, ConstBytes arrived,
              const WireBytes& of_handshake);

  Moved Read(ReadCursor& into, Amount amount) override;
  Moved Write(WriteCursor& from, std::size_t limit) override;
  bool unsent() const override { return output_begin_ < output_end_; }

 private:
  enum class Opened { kRecord, kLater, kIncomplete, kBad };

  // Opens the record at the front of input_ into `into`, what is too much into spill_. Where `enough` bytes have been read
  // already, a record that is too much stays for the read that names its place.
  Opened OpenNext(ReadCursor& into, std::size_t& bytes, std::size_t enough);
  void Seal(WriteCursor& from, std::size_t body_bytes);
  // 0, EAGAIN or the error.
  int Flush();

  const int fd_;
  RecordKeys sealing_;
  RecordKeys opening_;
  ByteBuffer output_;  // records; [output_begin_, output_end_) is still to be sent
  std::size_t output_begin_ = 0;
  std::size_t output_end_ = 0;
  ByteBuffer input_;  // [input_begin_, input_end_) is still to be opened
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  Spill spill_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_SEALED_CODEC_H_
