// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_RECORD_CIPHER_H_
#define POSEIDON_TRANSPORT_TCP_RECORD_CIPHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "poseidon/base/bytes.h"
#include "poseidon/transport/tcp/crypto.h"

// The authenticated ciphers of libraries (OpenSSL, intel-ipsec-mb) for records that are handed over in pieces.
// docs/security.md has keys, nonces and limits.
namespace poseidon::transport::tcp {

enum class CipherKind {
  kAes128Gcm,
  kChaCha20Poly1305,  // for processors without instructions for AES
  kAes128Gmac,        // authenticates and does not encrypt
};
enum class CipherUse { kSeal, kOpen };
enum class CipherLibrary { kOpenSsl, kIpsecMb };

// Whether this processor has instructions for AES and for the hash of GCM.
bool HasFastAes();

inline constexpr std::size_t kTagBytes = 16;
using Tag = std::array<std::byte, kTagBytes>;

// The cipher of one direction under one key. A record is Begin, its pieces in order, and Finish (kSeal) or Check
// (kOpen). Thread: one at a time.
class RecordCipher {
 public:
  virtual ~RecordCipher() = default;

  // Record `number` begins. Under one key every number serves once. `header` is authenticated, not encrypted.
  virtual void Begin(std::uint64_t number, ConstBytes header) = 0;
  // A piece of the record: as many bytes are written at `to` as `from` has. The two may be the same memory. Bytes that are
  // opened are worth nothing before Check. Not for kAes128Gmac.
  virtual void Piece(ConstBytes from, std::byte* to) = 0;
  // A piece that is authenticated only. For kAes128Gmac alone.
  virtual void Piece(ConstBytes bytes) = 0;
  virtual Tag Finish() = 0;
  // Whether the record is what the holder of the key made. In constant time.
  virtual bool Check(const Tag& tag) = 0;
};

// Which library does it faster on this processor: measured once for a process, in less than a millisecond.
CipherLibrary FastestLibrary(CipherKind kind);

// A cipher under a key derived from `secret`, of the fastest library.
std::unique_ptr<RecordCipher> NewRecordCipher(CipherKind kind, CipherUse use, const Key& secret);
// The same of one library; null where the build, the processor or the library lacks it.
std::unique_ptr<RecordCipher> NewRecordCipher(CipherKind kind, CipherUse use, const Key& secret, CipherLibrary library);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_RECORD_CIPHER_H_
