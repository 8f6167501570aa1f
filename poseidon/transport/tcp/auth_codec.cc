// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/auth_codec.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {
namespace {

// More buffers than a frame or a batch of small ones has; the rest waits for the next call.
constexpr std::size_t kVectors = 64;

struct Vectors {
  std::array<iovec, kVectors> entries;
  msghdr message{};
  std::size_t bytes = 0;

  template <typename Bytes>
  Vectors(std::span<const Bytes> buffers, std::size_t limit) {
    std::size_t count = 0;
    for (const Bytes& buffer : buffers) {
      if (count == kVectors || bytes == limit) break;
      const std::size_t size = std::min(buffer.size(), limit - bytes);
      // sendmsg takes the same struct as recvmsg but only reads what it points to.
      entries[count++] = {.iov_base = const_cast<std::byte*>(buffer.data()), .iov_len = size};
      bytes += size;
    }
    message.msg_iov = entries.data();
    message.msg_iovlen = count;
  }
};

}  // namespace

AuthCodec::AuthCodec(int fd, HelloRole role, const Key& key, Versions versions,
                     const Hello::Nonce& nonce)
    : fd_(fd), hello_(role, key, versions, nonce) {}

Codec::Handshake AuthCodec::Authenticate() {
  for (;;) {
    const ByteBuffer more = hello_.TakeOutput();
    output_.insert(output_.end(), more.begin(), more.end());
    // Before the state is looked at: a refusal names our versions, and it leaves before the connection ends.
    const bool sent = SendOutput();
    if (hello_.state() == Hello::State::kRefused) return Handshake::kRefused;
    if (hello_.state() == Hello::State::kVersionsDiffer) return Handshake::kVersionsDiffer;
    if (!sent) return Handshake::kWritable;
    if (hello_.state() == Hello::State::kAuthenticated) return Handshake::kAuthenticated;
    bool ended = false;
    if (!ReceiveInput(ended)) return ended ? Handshake::kEnded : Handshake::kReadable;
    hello_.Consume(ConstBytes(input_).first(input_bytes_));
    input_bytes_ = 0;
  }
}

// A socket that has failed is found out by the next read, which the hello always needs, or by the
// first read of the stream.
bool AuthCodec::SendOutput() {
  while (!output_.empty()) {
    const SocketCall call = Send(fd_, output_);
    if (call.would_block()) return false;
    if (call.error != 0) {
      output_.clear();
      return true;
    }
    wire_bytes_out_ += call.bytes;
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(call.bytes));
  }
  return true;
}

bool AuthCodec::ReceiveInput(bool& ended) {
  while (input_bytes_ < hello_.wanted()) {
    // Not more than the hello wants: the bytes behind it are the stream's, and land in the caller's memory.
    const SocketCall call =
        Receive(fd_, MutableBytes(input_).subspan(input_bytes_, hello_.wanted() - input_bytes_));
    if (call.would_block()) return false;
    ended = call.error != 0 || call.bytes == 0;
    if (ended) return false;
    input_bytes_ += call.bytes;
    wire_bytes_in_ += call.bytes;
  }
  return true;
}

Codec::Moved AuthCodec::Read(ReadCursor& into, Amount amount) {
  Moved moved;
  while (moved.bytes < amount.enough) {
    Vectors vectors(into.buffers(), amount.limit - moved.bytes);
    const ssize_t n = ::recvmsg(fd_, &vectors.message, 0);
    if (n < 0) {
      if (errno == EINTR) continue;
      moved.next = errno == EAGAIN ? Next::kReadable : Next::kFailed;
      moved.error = errno;
      return moved;
    }
    if (n == 0) {
      moved.next = Next::kEnded;
      return moved;
    }
    const auto size = static_cast<std::size_t>(n);
    into.Advance(size);
    moved.bytes += size;
    wire_bytes_in_ += size;
    if (size < vectors.bytes && moved.bytes < amount.enough) {
      moved.next = Next::kReadable;  // the system has no more: another read would return EAGAIN
      return moved;
    }
  }
  return moved;
}

Codec::Moved AuthCodec::Write(WriteCursor& from, std::size_t limit) {
  Moved moved;
  while (!from.done() && moved.bytes < limit) {
    Vectors vectors(from.buffers(), limit - moved.bytes);
    const ssize_t n = ::sendmsg(fd_, &vectors.message, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      moved.next = errno == EAGAIN ? Next::kWritable : Next::kFailed;
      moved.error = errno;
      return moved;
    }
    const auto size = static_cast<std::size_t>(n);
    from.Advance(size);
    moved.bytes += size;
    wire_bytes_out_ += size;
    // The system took less than it was given, so its buffer is full: another call would only say so.
    if (size < vectors.bytes) {
      moved.next = Next::kWritable;
      return moved;
    }
  }
  return moved;
}

}  // namespace poseidon::transport::tcp
