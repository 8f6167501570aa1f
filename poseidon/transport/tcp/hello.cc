// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/hello.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/secret_bytes.h"

namespace poseidon::transport::tcp {
namespace {

// Offsets in a header; bytes between the fields are zero. Numbers are little-endian.
constexpr std::string_view kMagic = "POSEIDON";
constexpr std::size_t kKindAt = 8;
constexpr std::size_t kReasonAt = 9;
constexpr std::size_t kMinVersionAt = 10;
constexpr std::size_t kMaxVersionAt = 12;
constexpr std::size_t kZerosAt = 14;
constexpr std::size_t kNonceAt = 32;

constexpr std::uint8_t kClientKind = 1;
constexpr std::uint8_t kServerKind = 2;
constexpr std::uint8_t kRefusalKind = 3;
constexpr std::uint8_t kNoReason = 0;
constexpr std::uint8_t kVersionsReason = 1;
constexpr std::uint8_t kNotAHelloReason = 2;

constexpr std::string_view kServerLabel = "poseidon hello: the server holds the token";
constexpr std::string_view kClientLabel = "poseidon hello: the client holds the token";
constexpr std::string_view kRecordsLabel = "poseidon hello: the secret of the records";

struct Fields {
  std::uint8_t kind = 0;
  std::uint8_t reason = kNoReason;
  Versions versions;
};

std::uint16_t Load16(ConstBytes bytes, std::size_t at) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[at]) |
                                    std::to_integer<unsigned>(bytes[at + 1]) << 8);
}

void Store16(MutableBytes bytes, std::size_t at, std::uint16_t value) {
  bytes[at] = static_cast<std::byte>(value & 0xff);
  bytes[at + 1] = static_cast<std::byte>(value >> 8);
}

std::array<std::byte, Hello::kHeaderBytes> MakeHeader(const Fields& fields,
                                                      const Hello::Nonce& nonce) {
  std::array<std::byte, Hello::kHeaderBytes> header{};
  std::ranges::copy(AsBytes(kMagic), header.begin());
  header[kKindAt] = static_cast<std::byte>(fields.kind);
  header[kReasonAt] = static_cast<std::byte>(fields.reason);
  Store16(header, kMinVersionAt, fields.versions.min);
  Store16(header, kMaxVersionAt, fields.versions.max);
  std::ranges::copy(nonce, header.begin() + kNonceAt);
  return header;
}

// Nothing when the bytes are not a header of ours.
std::optional<Fields> ParseHeader(ConstBytes header) {
  const ConstBytes zeros = header.subspan(kZerosAt, kNonceAt - kZerosAt);
  if (!std::ranges::equal(header.first(kMagic.size()), AsBytes(kMagic)) ||
      !std::ranges::all_of(zeros, [](std::byte b) { return b == std::byte{0}; })) {
    return std::nullopt;
  }
  const Fields fields{
      .kind = std::to_integer<std::uint8_t>(header[kKindAt]),
      .reason = std::to_integer<std::uint8_t>(header[kReasonAt]),
      .versions = {.min = Load16(header, kMinVersionAt), .max = Load16(header, kMaxVersionAt)}};
  if (fields.versions.min > fields.versions.max) return std::nullopt;
  return fields;
}

// The newest version both speak.
std::optional<std::uint16_t> Choose(Versions ours, Versions theirs) {
  const std::uint16_t newest = std::min(ours.max, theirs.max);
  if (newest < ours.min || newest < theirs.min) return std::nullopt;
  return newest;
}

}  // namespace

Hello::Hello(HelloRole role, const Key& key, Versions versions, const Nonce& nonce)
    : role_(role), key_(key), versions_(versions), nonce_(nonce) {
  if (role_ == HelloRole::kClient) {
    client_header_ = MakeHeader({.kind = kClientKind, .versions = versions_}, nonce_);
    Send(client_header_);
  }
}

std::size_t Hello::wanted() const {
  switch (waiting_) {
    case Waiting::kForHeader:
      return kHeaderBytes;
    case Waiting::kForProof:
      return kProofBytes;
    case Waiting::kForNothing:
      return 0;
  }
  return 0;
}

void Hello::Consume(ConstBytes bytes) {
  POSEIDON_CHECK(state_ == State::kRunning && bytes.size() == wanted(),
                 "a hello takes the bytes it asked for");
  if (waiting_ == Waiting::kForHeader) {
    ConsumeHeader(bytes);
  } else {
    ConsumeProof(bytes);
  }
}

ByteBuffer Hello::TakeOutput() { return std::exchange(output_, {}); }

void Hello::ConsumeHeader(ConstBytes bytes) {
  const std::optional<Fields> fields = ParseHeader(bytes);
  if (fields) peer_versions_ = fields->versions;
  Header& theirs = role_ == HelloRole::kServer ? client_header_ : server_header_;
  // Whole and as it came: both proofs are over both headers, so that a version or nonce changed on the way fails them.
  std::ranges::copy(bytes, theirs.begin());
  if (role_ == HelloRole::kServer) {
    ConsumeClientHeader(fields ? fields->kind : 0);
  } else {
    ConsumeServerHeader(fields ? fields->kind : 0, fields ? fields->reason : kNoReason);
  }
}

void Hello::ConsumeClientHeader(std::uint8_t kind) {
  const auto refuse = [this](std::uint8_t reason, State state) {
    Send(MakeHeader({.kind = kRefusalKind, .reason = reason, .versions = versions_}, Nonce{}));
    End(state);
  };
  if (kind != kClientKind) return refuse(kNotAHelloReason, State::kRefused);
  const std::optional<std::uint16_t> version = Choose(versions_, peer_versions_);
  if (!version) return refuse(kVersionsReason, State::kVersionsDiffer);
  server_header_ =
      MakeHeader({.kind = kServerKind, .versions = {.min = *version, .max = *version}}, nonce_);
  Send(server_header_);
  Send(ServerProof());
  waiting_ = Waiting::kForProof;
}

void Hello::ConsumeServerHeader(std::uint8_t kind, std::uint8_t reason) {
  // A refusal carries no proof. It is believed only where the versions that it names do differ.
  if (kind == kRefusalKind && reason == kVersionsReason && !Choose(versions_, peer_versions_)) {
    return End(State::kVersionsDiffer);
  }
  // The choice must be one version, and one that we offered.
  if (kind != kServerKind || peer_versions_.min != peer_versions_.max ||
      !Choose(versions_, peer_versions_)) {
    return End(State::kRefused);
  }
  waiting_ = Waiting::kForProof;
}

void Hello::ConsumeProof(ConstBytes bytes) {
  const Digest server_proof = ServerProof();
  const Digest expected = role_ == HelloRole::kClient ? server_proof : ClientProof(server_proof);
  // In constant time: the time of a plain comparison shows a stranger how many bytes of its guess are right.
  if (!EqualInConstantTime(bytes, expected)) return End(State::kRefused);
  // After the check: a client proves nothing to a server that does not hold the token.
  if (role_ == HelloRole::kClient) Send(ClientProof(server_proof));
  End(State::kAuthenticated);
}

void Hello::End(State state) {
  state_ = state;
  waiting_ = Waiting::kForNothing;
}

Digest Hello::ServerProof() const {
  const ConstBytes parts[] = {AsBytes(kServerLabel), client_header_, server_header_};
  return Hmac(key_, parts);
}

Digest Hello::ClientProof(const Digest& server_proof) const {
  const ConstBytes parts[] = {AsBytes(kClientLabel), client_header_, server_header_, server_proof};
  return Hmac(key_, parts);
}

// Of both nonces: no two connections have the same secrets.
Key Hello::RecordSecret(HelloRole role) const {
  POSEIDON_CHECK(state_ == State::kAuthenticated, "the peer is proven before its records are read");
  const ConstBytes parts[] = {AsBytes(kRecordsLabel), client_header_, server_header_};
  Digest shared = Hmac(key_, parts);
  const Key secret = Key::Derive(shared, role == HelloRole::kClient ? "poseidon records of the client"
                                                                    : "poseidon records of the server");
  Wipe(shared);
  return secret;
}

void Hello::Send(ConstBytes bytes) { output_.insert(output_.end(), bytes.begin(), bytes.end()); }

}  // namespace poseidon::transport::tcp
