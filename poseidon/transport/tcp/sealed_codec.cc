// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/sealed_codec.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {
namespace {

constexpr std::size_t kAroundBody = kRecordHeaderBytes + kTagBytes;
// One record of ours and a part of the next: what a call brings beyond a record is moved to the front, in the cache.
constexpr std::size_t kInputBytes = kRecordBytes + (std::size_t{32} << 10);

}  // namespace

SealedCodec::SealedCodec(int fd, CipherKind kind, const RecordSecrets& secrets, std::uint64_t rekey_after_bytes,
                         ConstBytes arrived, const WireBytes& of_handshake)
    : Codec(of_handshake),
      fd_(fd),
      sealing_(kind, CipherUse::kSeal, secrets.to_peer, rekey_after_bytes),
      opening_(kind, CipherUse::kOpen, secrets.from_peer, rekey_after_bytes),
      output_(2 * kRecordBytes + kAroundBody),
      input_(kInputBytes),
      input_end_(arrived.size()) {
  std::ranges::copy(arrived, input_.begin());
}

Codec::Moved SealedCodec::Read(ReadCursor& into, Amount amount) {
  Moved moved;
  bool emptied = false;  // the system has no more than it has given
  for (;;) {
    moved.bytes += spill_.MoveTo(into);
    while (!into.done() && moved.bytes < amount.limit) {
      const Opened opened = OpenNext(into, moved.bytes, amount.enough);
      if (opened == Opened::kBad) return {.bytes = moved.bytes, .next = Next::kFailed, .error = EBADMSG};
      if (opened == Opened::kRecord) continue;
      if (emptied && opened == Opened::kIncomplete) moved.next = Next::kReadable;
      break;
    }
    if (moved.bytes >= amount.enough || moved.next == Next::kReadable) return moved;
    std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
    input_end_ -= std::exchange(input_begin_, 0);
    const MutableBytes room = MutableBytes(input_).subspan(input_end_);
    const SocketCall call = Receive(fd_, room);
    emptied = LeavesNothing(call.bytes, room.size());
    input_end_ += call.bytes;
    wire_.in += call.bytes;
    if (call.error == 0 && call.bytes > 0) continue;
    moved.next = call.would_block() ? Next::kReadable : call.error != 0 ? Next::kFailed : Next::kEnded;
    moved.error = call.error;
    return moved;
  }
}

SealedCodec::Opened SealedCodec::OpenNext(ReadCursor& into, std::size_t& bytes, std::size_t enough) {
  const ConstBytes arrived = ConstBytes(input_).subspan(input_begin_, input_end_ - input_begin_);
  RecordHeader header;
  if (arrived.size() < header.size()) return Opened::kIncomplete;
  std::ranges::copy(arrived.first(header.size()), header.begin());
  const std::optional<RecordFields> fields = DecodeRecordHeader(header);
  if (!fields) return Opened::kBad;
  if (arrived.size() < fields->body_bytes + kAroundBody) {
    // Only a peer that sends larger records than we do.
    input_.resize(std::max(input_.size(), input_begin_ + fields->body_bytes + kAroundBody));
    return Opened::kIncomplete;
  }
  if (bytes >= enough && fields->body_bytes > into.left()) return Opened::kLater;
  ConstBytes body = arrived.subspan(header.size(), fields->body_bytes);
  Tag tag;
  std::ranges::copy(arrived.subspan(header.size() + body.size(), tag.size()), tag.begin());

  opening_.Begin(*fields, header);
  const auto open = [&](MutableBytes piece) {
    opening_.cipher().Piece(body.first(piece.size()), piece.data());
    body = body.subspan(piece.size());
  };
  const std::size_t landing = std::min(body.size(), into.left());
  into.ForNext(landing, open);
  if (!body.empty()) open(spill_.Room(body.size()));
  if (!opening_.cipher().Check(tag)) return Opened::kBad;
  into.Advance(landing);
  bytes += landing;
  input_begin_ += fields->body_bytes + kAroundBody;
  return Opened::kRecord;
}

Codec::Moved SealedCodec::Write(WriteCursor& from, std::size_t limit) {
  Moved moved;
  for (;;) {
    if (const int error = Flush(); error != 0) {
      moved.next = error == EAGAIN ? Next::kWritable : Next::kFailed;
      moved.error = error;
      return moved;
    }
    if (from.done() || moved.bytes >= limit) return moved;
    // Small records leave together, in one call; a large one alone, so that it is still in the cache.
    while (!from.done() && moved.bytes < limit && output_end_ < kRecordBytes) {
      const std::size_t body_bytes = NextRecordBytes(from.buffers(), limit - moved.bytes);
      Seal(from, body_bytes);
      moved.bytes += body_bytes;
    }
  }
}

void SealedCodec::Seal(WriteCursor& from, std::size_t body_bytes) {
  const RecordHeader header = sealing_.BeginNext(body_bytes);
  std::byte* at = std::ranges::copy(header, output_.data() + output_end_).out;
  from.ForNext(body_bytes, [&](ConstBytes piece) {
    sealing_.cipher().Piece(piece, at);
    at += piece.size();
  });
  std::ranges::copy(sealing_.cipher().Finish(), at);
  from.Advance(body_bytes);
  output_end_ += body_bytes + kAroundBody;
}

int SealedCodec::Flush() {
  while (unsent()) {
    const SocketCall call = Send(fd_, ConstBytes(output_).subspan(output_begin_, output_end_ - output_begin_));
    if (call.error != 0) return call.error;
    output_begin_ += call.bytes;
    wire_.out += call.bytes;
  }
  output_begin_ = output_end_ = 0;
  return 0;
}

}  // namespace poseidon::transport::tcp
