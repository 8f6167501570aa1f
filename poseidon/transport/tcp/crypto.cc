// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/openssl_ptr.h"
#include "poseidon/transport/tcp/secret_bytes.h"

namespace poseidon::transport::tcp {
namespace {

using KdfPtr = OpenSslPtr<EVP_KDF, EVP_KDF_free>;
using KdfContextPtr = OpenSslPtr<EVP_KDF_CTX, EVP_KDF_CTX_free>;
using MacPtr = OpenSslPtr<EVP_MAC, EVP_MAC_free>;
using MacContextPtr = OpenSslPtr<EVP_MAC_CTX, EVP_MAC_CTX_free>;

const unsigned char* Chars(ConstBytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* Chars(MutableBytes bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

// OpenSSL takes parameters as pointers to mutable memory that it only reads.
OSSL_PARAM Digestname() {
  static char sha256[] = "SHA256";
  return OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, sha256, 0);
}
OSSL_PARAM Octets(const char* name, ConstBytes bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()),
                                           bytes.size());
}

}  // namespace

OSSL_LIB_CTX* OwnOpenSsl() {
  static OSSL_LIB_CTX* const context = OSSL_LIB_CTX_new();
  POSEIDON_CHECK(context != nullptr, "there is memory for OpenSSL's context");
  return context;
}

Key Key::Derive(ConstBytes secret, std::string_view purpose) {
  const KdfPtr kdf(EVP_KDF_fetch(OwnOpenSsl(), "HKDF", nullptr));
  const KdfContextPtr context(EVP_KDF_CTX_new(kdf.get()));
  POSEIDON_CHECK(context != nullptr, "OpenSSL 3 has HKDF");
  const OSSL_PARAM params[] = {Digestname(), Octets(OSSL_KDF_PARAM_KEY, secret),
                               Octets(OSSL_KDF_PARAM_INFO, AsBytes(purpose)),
                               OSSL_PARAM_construct_end()};
  Key key;
  const int derived =
      EVP_KDF_derive(context.get(), Chars(MutableBytes(key.bytes_)), key.bytes_.size(), params);
  POSEIDON_CHECK(derived == 1, "HKDF-SHA256 of 32 bytes cannot fail");
  return key;
}

Key::~Key() { Wipe(bytes_); }

Digest Hmac(const Key& key, std::span<const ConstBytes> parts) {
  const MacPtr mac(EVP_MAC_fetch(OwnOpenSsl(), "HMAC", nullptr));
  const MacContextPtr context(EVP_MAC_CTX_new(mac.get()));
  POSEIDON_CHECK(context != nullptr, "OpenSSL 3 has HMAC");
  const OSSL_PARAM params[] = {Digestname(), OSSL_PARAM_construct_end()};
  int good = EVP_MAC_init(context.get(), Chars(key.bytes()), key.bytes().size(), params);
  for (const ConstBytes part : parts) {
    good &= EVP_MAC_update(context.get(), Chars(part), part.size());
  }
  Digest digest;
  std::size_t size = 0;
  good &= EVP_MAC_final(context.get(), Chars(MutableBytes(digest)), &size, digest.size());
  POSEIDON_CHECK(good == 1 && size == digest.size(), "HMAC-SHA256 cannot fail");
  return digest;
}

bool EqualInConstantTime(ConstBytes a, ConstBytes b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace poseidon::transport::tcp
