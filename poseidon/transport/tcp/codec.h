// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_CODEC_H_
#define POSEIDON_TRANSPORT_TCP_CODEC_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/base/bytes.h"

namespace poseidon::transport::tcp {

// Buffers to be filled or sent in order, and how far that has come.
template <typename Bytes>
class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(std::span<const Bytes> buffers) { Assign(buffers); }
  // Keeps the memory of the list, as Clear does.
  void Assign(std::span<const Bytes> buffers) {
    Clear();
    for (const Bytes& buffer : buffers) Append(buffer);
  }
  void Append(Bytes buffer) {
    if (!buffer.empty()) buffers_.push_back(buffer);
    left_ += buffer.size();
  }
  void Clear() {
    buffers_.clear();
    first_ = left_ = 0;
  }
  std::size_t left() const { return left_; }
  bool done() const { return left_ == 0; }
  // The buffers that are left; none of them is empty.
  std::span<const Bytes> buffers() const { return std::span(buffers_).subspan(first_); }
  // Calls `use(piece)` for each piece of the next `bytes` bytes, which are left.
  template <typename Use>
  void ForNext(std::size_t bytes, Use&& use) const {
    for (std::size_t i = first_; bytes > 0; ++i) {
      const Bytes piece = buffers_[i].first(std::min(bytes, buffers_[i].size()));
      use(piece);
      bytes -= piece.size();
    }
  }
  void Advance(std::size_t bytes) {
    left_ -= bytes;
    while (bytes > 0) {
      Bytes& front = buffers_[first_];
      const std::size_t step = std::min(bytes, front.size());
      front = front.subspan(step);
      bytes -= step;
      if (front.empty()) ++first_;
    }
  }

 private:
  std::vector<Bytes> buffers_;
  std::size_t first_ = 0;
  std::size_t left_ = 0;
};
using ReadCursor = Cursor<MutableBytes>;
using WriteCursor = Cursor<ConstBytes>;

// Bytes that have moved on the wire, in all.
struct WireBytes {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};

// Translates between a socket and the bytes of a stream, once the peer has authenticated (handshake.h). It never
// blocks and owns neither socket nor buffers.
class Codec {
 public:
  enum class Next {
    kGoOn,      // call again when convenient
    kReadable,  // call again once the socket is readable: nothing is here, and before that the system has nothing
    kWritable,  // call again once the socket is writable
    kEnded,     // the peer ended the stream
    kFailed,    // `error` says why; EBADMSG when bytes do not check
  };
  struct Moved {
    std::size_t bytes = 0;
    Next next = Next::kGoOn;
    int error = 0;
  };
  // How many bytes are worth asking the socket for, and after how many nothing more is begun.
  struct Amount {
    std::size_t enough = 0;
    std::size_t limit = 0;
  };

  virtual ~Codec() = default;

  // Both advance the cursor by `bytes`, which may exceed the limit by one record.
  virtual Moved Read(ReadCursor& into, Amount amount) = 0;
  // The memory of `from` is read until unsent() is false. Goes on with what is unsent even if nothing is left in `from`.
  virtual Moved Write(WriteCursor& from, std::size_t limit) = 0;
  // True while bytes taken from a writer have not reached the socket.
  virtual bool unsent() const = 0;

  const WireBytes& wire_bytes() const { return wire_; }

 protected:
  explicit Codec(const WireBytes& of_handshake) : wire_(of_handshake) {}
  WireBytes wire_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_CODEC_H_
