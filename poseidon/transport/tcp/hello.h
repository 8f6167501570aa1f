// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_HELLO_H_
#define POSEIDON_TRANSPORT_TCP_HELLO_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "poseidon/base/bytes.h"
#include "poseidon/transport/tcp/crypto.h"

// Mutual proof that both ends of a plain connection hold the token. Four messages of fixed size:
//
//   client  header {kind client, its versions, its nonce}                       64 bytes
//   server  header {kind server, the version it chose, its nonce}               64 bytes
//   server  HMAC(key, "server" label, both headers)                             32 bytes
//   client  HMAC(key, "client" label, both headers, the server's HMAC)          32 bytes
//
// or, instead of the server's two, a header of kind refusal. Labels and kinds differ by role, so
// that nothing a side sent can be sent back to it; both nonces are in every proof, so that nothing
// can be sent again. Nothing here allocates by a size that the peer chose, because there is none.
namespace poseidon::transport::tcp {

// Versions of the transport that a side speaks, both included. 1 had TLS's own records, and bare bytes behind the hello.
struct Versions {
  std::uint16_t min = 2;
  std::uint16_t max = 2;
  friend bool operator==(Versions, Versions) = default;
};

enum class HelloRole { kClient, kServer };

// One side of the exchange: bytes in, bytes out, no socket.
class Hello {
 public:
  static constexpr std::size_t kHeaderBytes = 64;
  static constexpr std::size_t kProofBytes = sizeof(Digest);
  using Nonce = std::array<std::byte, 32>;

  enum class State {
    kRunning,
    kAuthenticated,
    kRefused,         // not a hello of ours, or the wrong proof
    kVersionsDiffer,  // no version in common; peer_versions() says what the peer speaks
  };

  // `nonce` must be fresh random bits.
  Hello(HelloRole role, const Key& key, Versions versions, const Nonce& nonce);

  State state() const { return state_; }
  // How many bytes the next Consume takes; 0 unless running. At most kHeaderBytes.
  std::size_t wanted() const;
  // Takes exactly wanted() bytes of the peer.
  void Consume(ConstBytes bytes);
  // Returns the bytes to send before anything else is read, also when the state says refused.
  ByteBuffer TakeOutput();

  Versions peer_versions() const { return peer_versions_; }
  // The secret of the records that `role` sends over this connection (records.h). After kAuthenticated.
  Key RecordSecret(HelloRole role) const;

 private:
  using Header = std::array<std::byte, kHeaderBytes>;
  enum class Waiting { kForHeader, kForProof, kForNothing };

  void ConsumeHeader(ConstBytes bytes);
  void ConsumeClientHeader(std::uint8_t kind);
  void ConsumeServerHeader(std::uint8_t kind, std::uint8_t reason);
  void ConsumeProof(ConstBytes bytes);
  void End(State state);
  Digest ServerProof() const;
  Digest ClientProof(const Digest& server_proof) const;
  void Send(ConstBytes bytes);

  const HelloRole role_;
  const Key key_;
  const Versions versions_;
  const Nonce nonce_;
  State state_ = State::kRunning;
  Waiting waiting_ = Waiting::kForHeader;
  Versions peer_versions_;
  Header client_header_{};
  Header server_header_{};
  ByteBuffer output_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_HELLO_H_
