// SPDX-License-Identifier: Apache-2.0
// Bytes that nobody with the keys has made arrive behind a finished handshake, in pieces: none of them may reach the reader.
#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/authenticated_codec.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/sealed_codec.h"
#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {
namespace {

void Feed(Codec& codec, int to_codec, ConstBytes bytes) {
  std::array<std::byte, 700> landing;
  const std::array<MutableBytes, 2> buffers = {MutableBytes(landing).first(64), MutableBytes(landing).subspan(64)};
  ReadCursor into(buffers);
  while (!bytes.empty()) {
    // The first byte of a piece is its size, so that the fuzzer cuts.
    const ConstBytes piece = bytes.first(std::min<std::size_t>(bytes.size(), 1 + std::to_integer<std::size_t>(bytes[0])));
    bytes = bytes.subspan(piece.size());
    POSEIDON_CHECK(Send(to_codec, piece).bytes == piece.size(), "a socket has room for a small piece");
    const Codec::Moved moved = codec.Read(into, {.enough = into.left(), .limit = 4096});
    POSEIDON_CHECK(moved.bytes == 0, "nobody guesses a tag");
    if (moved.next == Codec::Next::kFailed) return;
    POSEIDON_CHECK(moved.next == Codec::Next::kReadable, "a part of a record is waited for");
  }
}

}  // namespace
}  // namespace poseidon::transport::tcp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace poseidon;
  using namespace poseidon::transport::tcp;
  if (size == 0) return 0;
  static const Key up = Key::Derive(AsBytes("a fuzzer"), "up");
  static const Key down = Key::Derive(AsBytes("a fuzzer"), "down");
  int fds[2];
  POSEIDON_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0, "there are sockets");
  const UniqueFd ours(fds[0]), theirs(fds[1]);
  const RecordSecrets secrets{.to_peer = up, .from_peer = down};
  const ConstBytes bytes = std::as_bytes(std::span(data, size));
  if (data[0] % 2 == 0) {
    SealedCodec codec(ours.get(), CipherKind::kAes128Gcm, secrets, 1 << 20, {}, {});
    Feed(codec, theirs.get(), bytes.subspan(1));
  } else {
    AuthenticatedCodec codec(ours.get(), secrets, 1 << 20, {});
    Feed(codec, theirs.get(), bytes.subspan(1));
  }
  return 0;
}
