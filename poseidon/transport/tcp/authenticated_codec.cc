// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/authenticated_codec.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {

AuthenticatedCodec::AuthenticatedCodec(int fd, const RecordSecrets& secrets, std::uint64_t rekey_after_bytes,
                                       const WireBytes& of_handshake)
    : Codec(of_handshake),
      fd_(fd),
      sealing_(CipherKind::kAes128Gmac, CipherUse::kSeal, secrets.to_peer, rekey_after_bytes),
      opening_(CipherKind::kAes128Gmac, CipherUse::kOpen, secrets.from_peer, rekey_after_bytes),
      ahead_(kAheadBytes) {}

Codec::Moved AuthenticatedCodec::Read(ReadCursor& into, Amount amount) {
  Moved moved;
  bool emptied = false;  // the system has no more than it has given
  for (;;) {
    if (!in_record_) {
      moved.bytes += spill_.MoveTo(into);
      // Before a record is begun: its bytes lie in the reader's memory and count only once its tag has been checked.
      if (into.done() || moved.bytes >= amount.enough) {
        if (emptied && spill_.empty() && ahead() < kRecordHeaderBytes) moved.next = Next::kReadable;
        return moved;
      }
      if (ahead() >= kRecordHeaderBytes && !BeginRecord(into)) {
        return {.bytes = moved.bytes, .next = Next::kFailed, .error = EBADMSG};
      }
    }
    if (in_record_) {
      TakeBodyFromAhead();
      if (body_.done() && ahead() >= kTagBytes) {
        Tag tag;
        std::ranges::copy(ConstBytes(ahead_).subspan(ahead_begin_, kTagBytes), tag.begin());
        ahead_begin_ += kTagBytes;
        if (!opening_.cipher().Check(tag)) return {.bytes = moved.bytes, .next = Next::kFailed, .error = EBADMSG};
        in_record_ = false;
        into.Advance(landing_);
        moved.bytes += landing_;
        continue;
      }
    }
    moved.next = emptied ? Next::kReadable : Receive(moved.error, emptied);
    if (moved.next != Next::kGoOn) return moved;
  }
}

Codec::Next AuthenticatedCodec::Receive(int& error, bool& emptied) {
  std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, ahead());
  ahead_end_ -= std::exchange(ahead_begin_, 0);
  const GatheredCall call =
      tcp::Receive(fd_, body_.buffers(), body_.left(), MutableBytes(ahead_).subspan(ahead_end_));
  error = call.error;
  if (call.error != 0) return call.would_block() ? Next::kReadable : Next::kFailed;
  if (call.bytes == 0) return Next::kEnded;
  wire_.in += call.bytes;
  emptied = LeavesNothing(call.bytes, call.offered);
  const std::size_t landed = std::min(call.bytes, body_.left());
  // At once, while the bytes are in the cache.
  body_.ForNext(landed, [this](MutableBytes piece) { opening_.cipher().Piece(piece); });
  body_.Advance(landed);
  ahead_end_ += call.bytes - landed;
  return Next::kGoOn;
}

bool AuthenticatedCodec::BeginRecord(ReadCursor& into) {
  RecordHeader header;
  std::ranges::copy(ConstBytes(ahead_).subspan(ahead_begin_, header.size()), header.begin());
  const std::optional<RecordFields> fields = DecodeRecordHeader(header);
  if (!fields) return false;
  ahead_begin_ += header.size();
  opening_.Begin(*fields, header);
  landing_ = std::min(fields->body_bytes, into.left());
  body_.Clear();
  into.ForNext(landing_, [this](MutableBytes piece) { body_.Append(piece); });
  if (fields->body_bytes > landing_) body_.Append(spill_.Room(fields->body_bytes - landing_));
  in_record_ = true;
  return true;
}

void AuthenticatedCodec::TakeBodyFromAhead() {
  const std::size_t bytes = std::min(ahead(), body_.left());
  body_.ForNext(bytes, [this](MutableBytes piece) {
    std::ranges::copy(ConstBytes(ahead_).subspan(ahead_begin_, piece.size()), piece.begin());
    ahead_begin_ += piece.size();
    opening_.cipher().Piece(piece);
  });
  body_.Advance(bytes);
}

Codec::Moved AuthenticatedCodec::Write(WriteCursor& from, std::size_t limit) {
  Moved moved;
  for (;;) {
    while (unsent()) {
      const GatheredCall call = Send(fd_, leaving_.buffers(), leaving_.left());
      leaving_.Advance(call.bytes);
      wire_.out += call.bytes;
      if (call.error != 0 || call.bytes < call.offered) {
        moved.next = call.error == 0 || call.would_block() ? Next::kWritable : Next::kFailed;
        moved.error = call.error;
        return moved;
      }
    }
    if (from.done() || moved.bytes >= limit) return moved;
    leaving_.Clear();
    // Small records leave together, in one call; a large one alone, so that it is still in the cache.
    for (std::size_t i = 0; i < kBatch && !from.done() && moved.bytes < limit && leaving_.left() < kRecordBytes; ++i) {
      const std::size_t body_bytes = NextRecordBytes(from.buffers(), limit - moved.bytes);
      AddRecord(from, body_bytes, frames_[i]);
      moved.bytes += body_bytes;
    }
  }
}

void AuthenticatedCodec::AddRecord(WriteCursor& from, std::size_t body_bytes, Frame& frame) {
  frame.header = sealing_.BeginNext(body_bytes);
  leaving_.Append(frame.header);
  from.ForNext(body_bytes, [this](ConstBytes piece) {
    sealing_.cipher().Piece(piece);
    leaving_.Append(piece);
  });
  frame.tag = sealing_.cipher().Finish();
  leaving_.Append(frame.tag);
  from.Advance(body_bytes);
}

}  // namespace poseidon::transport::tcp
