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
  explicit Cursor(std::span<const Bytes> buffers) {
    for (const Bytes& buffer : buffers) {
      if (!buffer.empty()) buffers_.push_back(buffer);
      left_ += buffer.size();
    }
  }
  std::size_t left() const { return left_; }
  bool done() const { return left_ == 0; }
  // The buffers that are left; none of them is empty.
  std::span<const Bytes> buffers() const { return std::span(buffers_).subspan(first_); }
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

// Translates between a socket and the bytes of a stream: first it authenticates the peer, then it
// encrypts and decrypts, or passes on, each byte. It never blocks and owns neither socket nor buffers.
class Codec {
 public:
  enum class Handshake {
    kReadable,  // call again once the socket is readable
    kWritable,  // call again once the socket is writable
    kAuthenticated,
    kRefused,  // the peer has not proven the token, or does not speak this protocol
    kVersionsDiffer,
    kEnded,  // the peer closed the connection; wire_bytes_in() shows whether it ever sent anything
  };
  enum class Next {
    kGoOn,      // call again when convenient
    kReadable,  // as above
    kWritable,
    kEnded,   // the peer ended the stream
    kFailed,  // `error` says why; EBADMSG when bytes do not check
  };
  struct Moved {
    std::size_t bytes = 0;
    Next next = Next::kGoOn;
    int error = 0;
  };
  // How many bytes are worth asking the socket for, and how many may move in this call.
  struct Amount {
    std::size_t enough = 0;
    std::size_t limit = 0;
  };

  virtual ~Codec() = default;

  virtual Handshake Authenticate() = 0;

  // After authentication. Both advance the cursor by `bytes`.
  virtual Moved Read(ReadCursor& into, Amount amount) = 0;
  // Goes on with what unsent() holds even if nothing is left in `from`.
  virtual Moved Write(WriteCursor& from, std::size_t limit) = 0;
  // True while bytes taken from a writer have not reached the socket.
  virtual bool unsent() const = 0;
  // Sends the protocol's closing message, if it has one and the socket takes it now.
  virtual void Finish() = 0;

  virtual bool integrity_protected() const = 0;
  std::uint64_t wire_bytes_in() const { return wire_bytes_in_; }
  std::uint64_t wire_bytes_out() const { return wire_bytes_out_; }

 protected:
  std::uint64_t wire_bytes_in_ = 0;
  std::uint64_t wire_bytes_out_ = 0;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_CODEC_H_
