// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/record_cipher.h"

#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#ifdef POSEIDON_WITH_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/openssl_ptr.h"
#include "poseidon/transport/tcp/secret_bytes.h"

namespace poseidon::transport::tcp {
namespace {

using CipherPtr = OpenSslPtr<EVP_CIPHER, EVP_CIPHER_free>;
using CipherContextPtr = OpenSslPtr<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free>;

constexpr std::size_t kNonceBytes = 12;
using Nonce = std::array<std::byte, kNonceBytes>;

const unsigned char* Chars(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* Chars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

// The nonces of one key: a secret start, the last eight bytes xored with the number of the record, as in TLS 1.3
// (RFC 8446, 5.3).
class Nonces {
 public:
  explicit Nonces(const Key& secret) {
    const Key start = Key::Derive(secret.bytes(), "poseidon record nonce");
    std::ranges::copy(start.bytes().first(kNonceBytes), start_.begin());
  }
  Nonce Of(std::uint64_t number) const {
    Nonce nonce = start_;
    for (std::size_t i = 0; i < sizeof number; ++i) {
      nonce[kNonceBytes - 1 - i] ^= static_cast<std::byte>(number >> (8 * i));
    }
    return nonce;
  }

 private:
  Nonce start_;
};

// AES-128 takes the first half.
Key CipherKey(const Key& secret) { return Key::Derive(secret.bytes(), "poseidon record key"); }

// OpenSSL's ciphers, through EVP.
class OpenSslCipher final : public RecordCipher {
 public:
  OpenSslCipher(CipherKind kind, CipherUse use, const Key& secret)
      : nonces_(secret), seals_(use == CipherUse::kSeal ? 1 : 0), context_(EVP_CIPHER_CTX_new()) {
    // GMAC is GCM of a record that has a header alone (NIST SP 800-38D, 3).
    const char* name = kind == CipherKind::kChaCha20Poly1305 ? "ChaCha20-Poly1305" : "AES-128-GCM";
    const CipherPtr cipher(EVP_CIPHER_fetch(OwnOpenSsl(), name, nullptr));
    const Key key = CipherKey(secret);
    POSEIDON_CHECK(
        context_ != nullptr && cipher != nullptr &&
            EVP_CipherInit_ex2(context_.get(), cipher.get(), Chars(key.bytes().data()), nullptr, seals_, nullptr) == 1,
        "OpenSSL 3 has this cipher");
  }

  void Begin(std::uint64_t number, ConstBytes header) override {
    const Nonce nonce = nonces_.Of(number);
    good_ = EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, Chars(nonce.data()), seals_, nullptr);
    Piece(header);
  }
  void Piece(ConstBytes from, std::byte* to) override { Update(from, Chars(to)); }
  void Piece(ConstBytes bytes) override { Update(bytes, nullptr); }

  Tag Finish() override {
    Tag tag{};
    good_ &= Final();
    good_ &= EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data());
    POSEIDON_CHECK(good_ == 1, "a cipher that has its key and nonce does not fail");
    return tag;
  }
  bool Check(const Tag& tag) override {
    POSEIDON_CHECK(good_ == 1, "a cipher that has its key and nonce does not fail");
    Tag expected = tag;  // OpenSSL takes a pointer to mutable memory that it only reads
    return EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) == 1 && Final() == 1;
  }

 private:
  void Update(ConstBytes from, unsigned char* to) {
    int size = 0;
    good_ &= EVP_CipherUpdate(context_.get(), to, &size, Chars(from.data()), static_cast<int>(from.size()));
  }
  int Final() {
    int size = 0;
    unsigned char nothing[kTagBytes];
    return EVP_CipherFinal_ex(context_.get(), nothing, &size);
  }

  const Nonces nonces_;
  const int seals_;
  const CipherContextPtr context_;
  int good_ = 1;
};

#ifdef POSEIDON_WITH_IPSEC_MB

// The library's functions for this processor; null where it knows none for AES.
const IMB_MGR* Functions() {
  static const IMB_MGR* const functions = []() -> const IMB_MGR* {
    IMB_MGR* manager = alloc_mb_mgr(0);
    if (manager == nullptr || !HasFastAes()) return nullptr;
    init_mb_mgr_auto(manager, nullptr);
    return manager;  // until the process ends
  }();
  return functions;
}

// The state of intel-ipsec-mb under one key.
class IpsecMbState {
 public:
  explicit IpsecMbState(const Key& secret) : nonces_(secret) {
    IMB_AES128_GCM_PRE(&functions_, CipherKey(secret).bytes().data(), &key_);
  }
  ~IpsecMbState() { Wipe(std::as_writable_bytes(std::span(&key_, 1))); }

 protected:
  const IMB_MGR& functions_ = *Functions();
  const Nonces nonces_;
  // Aligned as the library's vector instructions ask for, which its types do not say.
  alignas(64) gcm_key_data key_;
  alignas(64) gcm_context_data record_;
};

class IpsecMbGcm final : public RecordCipher, IpsecMbState {
 public:
  IpsecMbGcm(CipherUse use, const Key& secret) : IpsecMbState(secret), seals_(use == CipherUse::kSeal) {}

  void Begin(std::uint64_t number, ConstBytes header) override {
    const Nonce nonce = nonces_.Of(number);
    IMB_AES128_GCM_INIT(&functions_, &key_, &record_, Chars(nonce.data()), Chars(header.data()), header.size());
  }
  void Piece(ConstBytes from, std::byte* to) override {
    if (seals_) {
      IMB_AES128_GCM_ENC_UPDATE(&functions_, &key_, &record_, Chars(to), Chars(from.data()), from.size());
    } else {
      IMB_AES128_GCM_DEC_UPDATE(&functions_, &key_, &record_, Chars(to), Chars(from.data()), from.size());
    }
  }
  void Piece(ConstBytes) override { POSEIDON_CHECK(false, "only GMAC has pieces that are not encrypted"); }
  Tag Finish() override {
    Tag tag;
    IMB_AES128_GCM_ENC_FINALIZE(&functions_, &key_, &record_, Chars(tag.data()), tag.size());
    return tag;
  }
  bool Check(const Tag& tag) override {
    Tag expected;
    IMB_AES128_GCM_DEC_FINALIZE(&functions_, &key_, &record_, Chars(expected.data()), expected.size());
    return EqualInConstantTime(tag, expected);
  }

 private:
  const bool seals_;
};

class IpsecMbGmac final : public RecordCipher, IpsecMbState {
 public:
  explicit IpsecMbGmac(const Key& secret) : IpsecMbState(secret) {}

  void Begin(std::uint64_t number, ConstBytes header) override {
    const Nonce nonce = nonces_.Of(number);
    IMB_AES128_GMAC_INIT(&functions_, &key_, &record_, Chars(nonce.data()), nonce.size());
    Piece(header);
  }
  void Piece(ConstBytes, std::byte*) override { POSEIDON_CHECK(false, "GMAC encrypts nothing"); }
  void Piece(ConstBytes bytes) override {
    IMB_AES128_GMAC_UPDATE(&functions_, &key_, &record_, Chars(bytes.data()), bytes.size());
  }
  Tag Finish() override {
    Tag tag;
    IMB_AES128_GMAC_FINALIZE(&functions_, &key_, &record_, Chars(tag.data()), tag.size());
    return tag;
  }
  bool Check(const Tag& tag) override { return EqualInConstantTime(tag, Finish()); }
};

#endif  // POSEIDON_WITH_IPSEC_MB

}  // namespace

bool HasFastAes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#elif defined(__aarch64__)
  const unsigned long both = HWCAP_AES | HWCAP_PMULL;
  return (::getauxval(AT_HWCAP) & both) == both;
#else
  return false;
#endif
}

std::unique_ptr<RecordCipher> NewRecordCipher(CipherKind kind, CipherUse use, const Key& secret, CipherLibrary library) {
  if (library == CipherLibrary::kOpenSsl) return std::make_unique<OpenSslCipher>(kind, use, secret);
#ifdef POSEIDON_WITH_IPSEC_MB
  if (Functions() != nullptr && kind == CipherKind::kAes128Gcm) return std::make_unique<IpsecMbGcm>(use, secret);
  if (Functions() != nullptr && kind == CipherKind::kAes128Gmac) return std::make_unique<IpsecMbGmac>(secret);
#endif
  return nullptr;
}

namespace {

// The least seconds of some records of one library; infinite where it lacks the cipher.
double SecondsOf(CipherKind kind, CipherLibrary library) {
  const Key secret = Key::Derive(AsBytes("measured, never used"), "poseidon");
  const std::unique_ptr<RecordCipher> cipher = NewRecordCipher(kind, CipherUse::kSeal, secret, library);
  double least = std::numeric_limits<double>::infinity();
  if (cipher == nullptr) return least;
  ByteBuffer bytes(std::size_t{64} << 10);
  for (std::uint64_t record = 0; record < 5; ++record) {
    const auto began = std::chrono::steady_clock::now();
    cipher->Begin(record, {});
    kind == CipherKind::kAes128Gmac ? cipher->Piece(bytes) : cipher->Piece(bytes, bytes.data());
    cipher->Finish();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  return least;
}

}  // namespace

CipherLibrary FastestLibrary(CipherKind kind) {
  const auto measured = [](CipherKind of) {
    return SecondsOf(of, CipherLibrary::kIpsecMb) < SecondsOf(of, CipherLibrary::kOpenSsl) ? CipherLibrary::kIpsecMb
                                                                                           : CipherLibrary::kOpenSsl;
  };
  // Once for a process. No rule by processor holds: intel-ipsec-mb is twice as fast at GCM with AVX-512 and at GMAC slower without.
  switch (kind) {
    case CipherKind::kAes128Gcm: {
      static const CipherLibrary fastest = measured(CipherKind::kAes128Gcm);
      return fastest;
    }
    case CipherKind::kAes128Gmac: {
      static const CipherLibrary fastest = measured(CipherKind::kAes128Gmac);
      return fastest;
    }
    case CipherKind::kChaCha20Poly1305:
      break;
  }
  return CipherLibrary::kOpenSsl;
}

std::unique_ptr<RecordCipher> NewRecordCipher(CipherKind kind, CipherUse use, const Key& secret) {
  return NewRecordCipher(kind, use, secret, FastestLibrary(kind));
}

}  // namespace poseidon::transport::tcp
