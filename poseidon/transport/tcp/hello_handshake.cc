// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/hello_handshake.h"

#include "poseidon/transport/tcp/authenticated_codec.h"
#include "poseidon/transport/tcp/plain_codec.h"
#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {

HelloHandshake::HelloHandshake(int fd, HelloRole role, const Key& key, const Options& options, const Hello::Nonce& nonce)
    : fd_(fd), role_(role), options_(options), hello_(role, key, options.versions, nonce) {}

Handshake::Outcome HelloHandshake::Authenticate() {
  for (;;) {
    const ByteBuffer more = hello_.TakeOutput();
    output_.insert(output_.end(), more.begin(), more.end());
    // Before the state is looked at: a refusal names our versions, and it leaves before the connection ends.
    const bool sent = SendOutput();
    if (hello_.state() == Hello::State::kRefused) return Outcome::kRefused;
    if (hello_.state() == Hello::State::kVersionsDiffer) return Outcome::kVersionsDiffer;
    if (!sent) return Outcome::kWritable;
    if (hello_.state() == Hello::State::kAuthenticated) return Outcome::kAuthenticated;
    bool ended = false;
    if (!ReceiveInput(ended)) return ended ? Outcome::kEnded : Outcome::kReadable;
    hello_.Consume(ConstBytes(input_).first(input_bytes_));
    input_bytes_ = 0;
  }
}

// A socket that has failed is found out by the next read, which the hello always needs, or by the
// first read of the stream.
bool HelloHandshake::SendOutput() {
  while (!output_.empty()) {
    const SocketCall call = Send(fd_, output_);
    if (call.would_block()) return false;
    if (call.error != 0) {
      output_.clear();
      return true;
    }
    wire_.out += call.bytes;
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(call.bytes));
  }
  return true;
}

bool HelloHandshake::ReceiveInput(bool& ended) {
  while (input_bytes_ < hello_.wanted()) {
    // Not more than the hello wants: the bytes behind it are the stream's, and land in the caller's memory.
    const SocketCall call =
        Receive(fd_, MutableBytes(input_).subspan(input_bytes_, hello_.wanted() - input_bytes_));
    if (call.would_block()) return false;
    ended = call.error != 0 || call.bytes == 0;
    if (ended) return false;
    input_bytes_ += call.bytes;
    wire_.in += call.bytes;
  }
  return true;
}

std::unique_ptr<Codec> HelloHandshake::TakeCodec() {
  if (!options_.authenticated_records) return std::make_unique<PlainCodec>(fd_, wire_);
  const RecordSecrets secrets =
      SecretsOf(role_, hello_.RecordSecret(HelloRole::kClient), hello_.RecordSecret(HelloRole::kServer));
  return std::make_unique<AuthenticatedCodec>(fd_, secrets, options_.rekey_after_bytes, wire_);
}

}  // namespace poseidon::transport::tcp
