// SPDX-License-Identifier: Apache-2.0
// The ciphers of the libraries, against each other and against OpenSSL's own functions for GMAC.
#include "poseidon/transport/tcp/record_cipher.h"

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <array>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "poseidon/transport/tcp/test_bytes.h"

namespace poseidon::transport::tcp {
namespace {

constexpr CipherKind kKinds[] = {CipherKind::kAes128Gcm, CipherKind::kChaCha20Poly1305, CipherKind::kAes128Gmac};

Key Secret(char letter) { return Key::Derive(AsBytes(std::string(32, letter)), "a test"); }

struct Record {
  ByteBuffer body;
  Tag tag{};
  friend bool operator==(const Record&, const Record&) = default;
};

// Sizes of pieces that add up to `size`: many odd ones, a few large ones.
std::vector<std::size_t> Cut(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> pieces;
  while (size > 0) {
    pieces.push_back(std::min<std::size_t>(size, random() % (random() % 3 == 0 ? 40'000 : 50)));
    size -= pieces.back();
  }
  return pieces;
}

Record Sealed(RecordCipher& cipher, CipherKind kind, std::uint64_t number, ConstBytes plain, unsigned seed) {
  Record record{.body = ByteBuffer(plain.begin(), plain.end())};
  cipher.Begin(number, AsBytes("head"));
  std::size_t at = 0;
  for (const std::size_t piece : Cut(plain.size(), seed)) {
    if (kind == CipherKind::kAes128Gmac) {
      cipher.Piece(plain.subspan(at, piece));
    } else {
      cipher.Piece(plain.subspan(at, piece), record.body.data() + at);
    }
    at += piece;
  }
  record.tag = cipher.Finish();
  return record;
}

// The plain bytes, or nothing where the record does not check.
std::optional<ByteBuffer> Opened(RecordCipher& cipher, CipherKind kind, std::uint64_t number, const Record& record,
                                 unsigned seed) {
  ByteBuffer plain = record.body;
  cipher.Begin(number, AsBytes("head"));
  std::size_t at = 0;
  for (const std::size_t piece : Cut(plain.size(), seed)) {
    const ConstBytes sealed = ConstBytes(record.body).subspan(at, piece);
    kind == CipherKind::kAes128Gmac ? cipher.Piece(sealed) : cipher.Piece(sealed, plain.data() + at);
    at += piece;
  }
  if (!cipher.Check(record.tag)) return std::nullopt;
  return plain;
}

TEST(RecordCipherTest, OpensWhatItSealedHoweverBothAreCut) {
  for (const CipherKind kind : kKinds) {
    const auto seal = NewRecordCipher(kind, CipherUse::kSeal, Secret('a'));
    const auto open = NewRecordCipher(kind, CipherUse::kOpen, Secret('a'));
    for (unsigned seed = 0; seed < 40; ++seed) {
      const ByteBuffer plain = RandomBytes(seed * seed * 100 + seed + 1, seed);
      const Record record = Sealed(*seal, kind, seed, plain, seed);
      EXPECT_EQ(record.body == plain, kind == CipherKind::kAes128Gmac);
      EXPECT_EQ(Opened(*open, kind, seed, record, seed + 1), plain);
      EXPECT_EQ(Opened(*open, kind, seed + 1, record, seed), std::nullopt) << "the number is authenticated";
    }
    const auto other = NewRecordCipher(kind, CipherUse::kOpen, Secret('b'));
    EXPECT_EQ(Opened(*other, kind, 0, Sealed(*seal, kind, 0, RandomBytes(100, 1), 0), 0), std::nullopt);
  }
}

TEST(RecordCipherTest, LibrariesMakeTheSameRecords) {
  for (const CipherKind kind : kKinds) {
    const auto ours = NewRecordCipher(kind, CipherUse::kSeal, Secret('a'), CipherLibrary::kOpenSsl);
    const auto theirs = NewRecordCipher(kind, CipherUse::kSeal, Secret('a'), CipherLibrary::kIpsecMb);
    if (theirs == nullptr) {
      EXPECT_TRUE(kind == CipherKind::kChaCha20Poly1305 || !HasFastAes());
      continue;
    }
    for (unsigned seed = 0; seed < 40; ++seed) {
      const ByteBuffer plain = RandomBytes(seed * seed * 150 + seed, seed);
      EXPECT_EQ(Sealed(*ours, kind, seed, plain, seed), Sealed(*theirs, kind, seed, plain, seed + 7)) << seed;
    }
  }
}

// GMAC by OpenSSL's own name for it, with key and nonce as docs/security.md derives them.
TEST(RecordCipherTest, TheTagIsGmac) {
  const Key key = Key::Derive(Secret('a').bytes(), "poseidon record key");
  const Key start = Key::Derive(Secret('a').bytes(), "poseidon record nonce");
  std::array<std::byte, 12> nonce;
  std::ranges::copy(start.bytes().first(nonce.size()), nonce.begin());
  nonce[10] ^= std::byte{0x01};  // record 0x0102
  nonce[11] ^= std::byte{0x02};

  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "GMAC", nullptr);
  EVP_MAC_CTX* context = EVP_MAC_CTX_new(mac);
  char name[] = "AES-128-GCM";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, name, 0),
                               OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce.data(), nonce.size()),
                               OSSL_PARAM_construct_end()};
  ASSERT_EQ(EVP_MAC_init(context, reinterpret_cast<const unsigned char*>(key.bytes().data()), 16, params), 1);
  const ByteBuffer plain = RandomBytes(5000, 3);
  EVP_MAC_update(context, reinterpret_cast<const unsigned char*>("head"), 4);
  EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(plain.data()), plain.size());
  Tag expected{};
  std::size_t size = 0;
  EXPECT_EQ(EVP_MAC_final(context, reinterpret_cast<unsigned char*>(expected.data()), &size, expected.size()), 1);
  EVP_MAC_CTX_free(context);
  EVP_MAC_free(mac);

  const auto cipher = NewRecordCipher(CipherKind::kAes128Gmac, CipherUse::kSeal, Secret('a'));
  EXPECT_EQ(Sealed(*cipher, CipherKind::kAes128Gmac, 0x0102, plain, 1).tag, expected);
}

}  // namespace
}  // namespace poseidon::transport::tcp
