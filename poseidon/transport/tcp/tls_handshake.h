// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_TLS_HANDSHAKE_H_
#define POSEIDON_TRANSPORT_TCP_TLS_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "poseidon/base/result.h"
#include "poseidon/transport/tcp/handshake.h"
#include "poseidon/transport/tcp/hello.h"
#include "poseidon/transport/tcp/record_cipher.h"
#include "poseidon/transport/tcp/token.h"

namespace poseidon::transport::tcp {

// Shared by all TLS connections of a context: the key made of the token, and OpenSSL's settings.
// TLS 1.3 only, with that key as external pre-shared key and a fresh Diffie-Hellman exchange for
// each connection; no certificates, no tickets, no resumption, no early data. TLS ends with its handshake: what follows are
// our own records (records.h) under keys that both ends export from it (RFC 8446, 7.5), because TLS's records have at
// most 16 KiB and OpenSSL copies each byte of them four times.
class TlsSettings {
 public:
  struct Options {
    Versions versions;
    // New keys after so many bytes in one direction: far below what AES-GCM allows under one key
    // (RFC 8446, 5.5: 2^24.5 full records, 388 GB).
    std::uint64_t rekey_after_bytes = std::uint64_t{1} << 36;
    // Where an end has it not, the connection uses ChaCha20-Poly1305.
    bool fast_aes = HasFastAes();
  };
  static Result<std::shared_ptr<const TlsSettings>> Make(const Token& token, Options options);
  ~TlsSettings();

  // `settings` lives as long as the handshake.
  static Result<std::unique_ptr<Handshake>> NewHandshake(std::shared_ptr<const TlsSettings> settings, int fd,
                                                         HelloRole role);

 private:
  friend class TlsHandshake;
  struct Parts;
  explicit TlsSettings(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_TLS_HANDSHAKE_H_
