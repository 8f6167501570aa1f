// SPDX-License-Identifier: Apache-2.0
// The handshake of TLS 1.3 through OpenSSL, which never sees the socket: it reads from and writes to buffers of ours, so that
// what has arrived behind the handshake stays there for the codec.
#include "poseidon/transport/tcp/tls_handshake.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/tls1.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/crypto.h"
#include "poseidon/transport/tcp/openssl_ptr.h"
#include "poseidon/transport/tcp/sealed_codec.h"
#include "poseidon/transport/tcp/secret_bytes.h"
#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {
namespace {

using ContextPtr = OpenSslPtr<SSL_CTX, SSL_CTX_free>;
using SslPtr = OpenSslPtr<SSL, SSL_free>;
using SessionPtr = OpenSslPtr<SSL_SESSION, SSL_SESSION_free>;
using BioMethodPtr = OpenSslPtr<BIO_METHOD, BIO_meth_free>;

constexpr std::string_view kIdentity = "poseidon";
constexpr std::string_view kPurpose = "poseidon tls 1.3 external psk";
// The suite that both ends agree on names the cipher of the records too. Each end puts first what its processor does fast.
constexpr char kAesFirst[] = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr char kChaChaFirst[] = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
constexpr std::uint16_t kChaChaId = 0x1303;
// Its hash is the one that both suites have.
constexpr unsigned char kKeySuiteId[] = {0x13, 0x01};
constexpr char kGroups[] = "X25519:P-256";

constexpr std::string_view kExporter = "EXPORTER-poseidon-records";
// A hello with pre-shared key and answer is under 1 KiB; a stranger gets no more than this.
constexpr std::size_t kHandshakeBytes = std::size_t{16} << 10;

// Sent to a refused peer where OpenSSL has no alert of its own: handshake_failure.
constexpr std::array<std::byte, 7> kAlert = {std::byte{21}, std::byte{3}, std::byte{3},
                                             std::byte{0},  std::byte{2}, std::byte{2},
                                             std::byte{40}};

// Versions of our handshake travel as TLS application protocols, "poseidon/1".
std::string ProtocolName(std::uint16_t version) { return "poseidon/" + std::to_string(version); }

// The protocols' names in the wire's form, newest first.
std::string ProtocolList(Versions versions) {
  std::string list;
  for (int version = versions.max; version >= versions.min; --version) {
    const std::string name = ProtocolName(static_cast<std::uint16_t>(version));
    list.push_back(static_cast<char>(name.size()));
    list += name;
  }
  return list;
}

const unsigned char* Chars(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string OpenSslText() {
  char text[256] = "no reason given";
  const unsigned long error = ERR_get_error();
  if (error != 0) ERR_error_string_n(error, text, sizeof text);
  ERR_clear_error();
  return text;
}

}  // namespace

struct TlsSettings::Parts {
  Parts(const Token& token, const Options& o)
      : key(Key::Derive(token.bytes(), kPurpose)), options(o), protocols(ProtocolList(o.versions)) {}

  Key key;
  Options options;
  std::string protocols;
  BioMethodPtr bio_method;
  ContextPtr client;
  ContextPtr server;
};

// OpenSSL's view of one connection; it reads from input_ and writes to output_.
class TlsHandshake final : public Handshake {
 public:
  TlsHandshake(std::shared_ptr<const TlsSettings> settings, int fd, HelloRole role)
      : settings_(std::move(settings)), fd_(fd), role_(role) {}
  // False when OpenSSL has no memory.
  bool Start();

  Outcome Authenticate() override;
  std::unique_ptr<Codec> TakeCodec() override;

  static int BioWrite(BIO* bio, const char* bytes, std::size_t size, std::size_t* written);
  static int BioRead(BIO* bio, char* bytes, std::size_t size, std::size_t* read);
  static long BioControl(BIO* bio, int command, long number, void* pointer);

 private:
  bool unsent() const { return output_begin_ < output_.size(); }
  // 0, EAGAIN or the error.
  int Flush();
  // Fills the empty input_. bytes 0 without error: the end.
  SocketCall Refill();
  bool PeerIsProven() const;
  Outcome Refuse();

  const std::shared_ptr<const TlsSettings> settings_;
  const int fd_;
  const HelloRole role_;
  SslPtr ssl_;
  bool proven_ = false;

  ByteBuffer input_;  // [input_begin_, input_end_) is still to be read by OpenSSL
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  ByteBuffer output_;  // from output_begin_ on still to be sent
  std::size_t output_begin_ = 0;
};

namespace {

// OpenSSL takes an external key in the form of a session. Its suite names the hash to which TLS 1.3 binds every
// pre-shared key (RFC 8446, 4.2.11).
SSL_SESSION* NewSession(SSL* ssl, const Key& key) {
  SessionPtr session(SSL_SESSION_new());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kKeySuiteId);
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session.get(),
                                  reinterpret_cast<const unsigned char*>(key.bytes().data()),
                                  key.bytes().size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

const Key& KeyOf(SSL* ssl) {
  return *static_cast<const Key*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

int UseSession(SSL* ssl, const EVP_MD* digest, const unsigned char** id, std::size_t* id_size,
               SSL_SESSION** session) {
  *session = nullptr;
  // Asked a second time, OpenSSL wants a key for this digest only.
  if (digest != nullptr && EVP_MD_is_a(digest, "SHA256") != 1) return 1;
  *id = Chars(kIdentity);
  *id_size = kIdentity.size();
  *session = NewSession(ssl, KeyOf(ssl));
  return *session != nullptr ? 1 : 0;
}

int FindSession(SSL* ssl, const unsigned char* id, std::size_t id_size, SSL_SESSION** session) {
  *session = nullptr;  // an unknown identity is no error: the handshake goes on, and fails
  if (std::string_view(reinterpret_cast<const char*>(id), id_size) != kIdentity) return 1;
  *session = NewSession(ssl, KeyOf(ssl));
  return *session != nullptr ? 1 : 0;
}

// Chooses the first of our protocols, newest first, that the client offers.
int SelectProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                   const unsigned char* offered, unsigned offered_size, void* ours) {
  const auto* list = static_cast<const std::string*>(ours);
  unsigned char* selected = nullptr;
  const int outcome =
      SSL_select_next_proto(&selected, chosen_size, Chars(*list),
                            static_cast<unsigned>(list->size()), offered, offered_size);
  if (outcome != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = selected;
  return SSL_TLSEXT_ERR_OK;
}

ContextPtr NewContext(const SSL_METHOD* method, Key& key, bool fast_aes) {
  ContextPtr context(SSL_CTX_new_ex(OwnOpenSsl(), nullptr, method));
  if (context == nullptr) return nullptr;
  SSL_CTX* c = context.get();
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A server follows the client's order, unless AES is slow for itself.
  if (!fast_aes) SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_app_data(c, &key);
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(c, fast_aes ? kAesFirst : kChaChaFirst) != 1 || SSL_CTX_set1_groups_list(c, kGroups) != 1 ||
      SSL_CTX_set_num_tickets(c, 0) != 1) {
    return nullptr;
  }
  return context;
}

}  // namespace

TlsSettings::TlsSettings(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TlsSettings::~TlsSettings() = default;

Result<std::shared_ptr<const TlsSettings>> TlsSettings::Make(const Token& token, Options options) {
  POSEIDON_CHECK(options.versions.max - options.versions.min < 16, "a side speaks few versions");
  auto parts = std::make_unique<Parts>(token, options);
  parts->client = NewContext(TLS_client_method(), parts->key, options.fast_aes);
  parts->server = NewContext(TLS_server_method(), parts->key, options.fast_aes);
  parts->bio_method.reset(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "poseidon buffers"));
  BIO_METHOD* method = parts->bio_method.get();
  if (parts->client == nullptr || parts->server == nullptr || method == nullptr ||
      BIO_meth_set_write_ex(method, TlsHandshake::BioWrite) != 1 ||
      BIO_meth_set_read_ex(method, TlsHandshake::BioRead) != 1 ||
      BIO_meth_set_ctrl(method, TlsHandshake::BioControl) != 1) {
    return Internal("OpenSSL cannot be set up for TLS 1.3: " + OpenSslText());
  }
  SSL_CTX* client = parts->client.get();
  SSL_CTX_set_psk_use_session_callback(client, UseSession);
  // A server that answers with a certificate instead of the key must fail: there is no authority
  // that we trust.
  SSL_CTX_set_verify(client, SSL_VERIFY_PEER, nullptr);
  // Returns 0 on success, unlike its neighbours.
  if (SSL_CTX_set_alpn_protos(client, Chars(parts->protocols),
                              static_cast<unsigned>(parts->protocols.size())) != 0) {
    return Internal("OpenSSL cannot be set up for TLS 1.3: " + OpenSslText());
  }
  SSL_CTX* server = parts->server.get();
  SSL_CTX_set_psk_find_session_callback(server, FindSession);
  SSL_CTX_set_alpn_select_cb(server, SelectProtocol, &parts->protocols);
  return std::shared_ptr<const TlsSettings>(new TlsSettings(std::move(parts)));
}

Result<std::unique_ptr<Handshake>> TlsSettings::NewHandshake(std::shared_ptr<const TlsSettings> settings, int fd,
                                                             HelloRole role) {
  auto handshake = std::make_unique<TlsHandshake>(std::move(settings), fd, role);
  if (!handshake->Start()) {
    return ResourceExhausted("OpenSSL cannot make a connection: " + OpenSslText());
  }
  return std::unique_ptr<Handshake>(std::move(handshake));
}

bool TlsHandshake::Start() {
  const TlsSettings::Parts& parts = *settings_->parts_;
  ssl_.reset(SSL_new(role_ == HelloRole::kClient ? parts.client.get() : parts.server.get()));
  BIO* bio = BIO_new(parts.bio_method.get());
  if (ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return false;
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // takes over the one reference
  if (role_ == HelloRole::kClient) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
  input_.resize(kHandshakeBytes);
  return true;
}

int TlsHandshake::BioWrite(BIO* bio, const char* bytes, std::size_t size, std::size_t* written) {
  ByteBuffer& output = static_cast<TlsHandshake*>(BIO_get_data(bio))->output_;
  const ConstBytes source = AsBytes(std::string_view(bytes, size));
  output.insert(output.end(), source.begin(), source.end());
  *written = size;
  return 1;
}

int TlsHandshake::BioRead(BIO* bio, char* bytes, std::size_t size, std::size_t* read) {
  auto* self = static_cast<TlsHandshake*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const std::size_t there = self->input_end_ - self->input_begin_;
  if (there == 0) {
    // Empty is not the end: without the mark OpenSSL would take the 0 for one and fail the connection.
    BIO_set_retry_read(bio);
    return 0;
  }
  *read = std::min(size, there);
  std::memcpy(bytes, self->input_.data() + self->input_begin_, *read);
  self->input_begin_ += *read;
  return 1;
}

long TlsHandshake::BioControl(BIO*, int command, long, void*) {
  // OpenSSL flushes after each flight and fails where that fails. Our buffer is sent by Flush() later.
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

int TlsHandshake::Flush() {
  while (unsent()) {
    const SocketCall call = Send(fd_, ConstBytes(output_).subspan(output_begin_));
    if (call.error != 0) return call.error;
    output_begin_ += call.bytes;
    wire_.out += call.bytes;
  }
  output_.clear();
  output_begin_ = 0;
  return 0;
}

SocketCall TlsHandshake::Refill() {
  POSEIDON_CHECK(input_begin_ == input_end_, "OpenSSL asks for more when it has read everything");
  const SocketCall call = Receive(fd_, input_);
  input_begin_ = 0;
  input_end_ = call.bytes;
  wire_.in += call.bytes;
  return call;
}

Handshake::Outcome TlsHandshake::Authenticate() {
  for (;;) {
    const int error = Flush();
    if (error == EAGAIN) return Outcome::kWritable;
    if (error != 0) return Outcome::kEnded;
    if (proven_) return Outcome::kAuthenticated;
    ERR_clear_error();
    const int outcome = SSL_do_handshake(ssl_.get());
    if (outcome == 1) {
      if (!PeerIsProven()) return Refuse();
      proven_ = true;
      continue;
    }
    if (SSL_get_error(ssl_.get(), outcome) != SSL_ERROR_WANT_READ) return Refuse();
    // The peer answers only what it has got, so that a flight leaves before the next one is waited for.
    if (unsent()) continue;
    // A stranger could send a hello in ever more records; this bounds what it makes us read and keep.
    if (wire_.in >= kHandshakeBytes) return Refuse();
    const SocketCall call = Refill();
    if (call.would_block()) return Outcome::kReadable;
    if (call.error != 0 || call.bytes == 0) return Outcome::kEnded;
  }
}

// Finishing a handshake is not enough: it must have used the key. OpenSSL counts a pre-shared key
// as a session that is resumed.
bool TlsHandshake::PeerIsProven() const {
  const unsigned char* protocol = nullptr;
  unsigned protocol_size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &protocol, &protocol_size);
  return SSL_session_reused(ssl_.get()) == 1 && SSL_version(ssl_.get()) == TLS1_3_VERSION &&
         protocol_size > 0;
}

Handshake::Outcome TlsHandshake::Refuse() {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  ERR_clear_error();
  // OpenSSL's own alert, if it made one, says more. Without any a client could take the end for a crowded listener
  // and retry (Connector::Introduced).
  if (!unsent()) output_.assign(kAlert.begin(), kAlert.end());
  static_cast<void>(Flush());  // as far as it goes: the connection ends here
  const bool versions = reason == SSL_R_NO_APPLICATION_PROTOCOL ||
                        reason == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL;
  return versions ? Outcome::kVersionsDiffer : Outcome::kRefused;
}

std::unique_ptr<Codec> TlsHandshake::TakeCodec() {
  std::array<std::byte, 2 * sizeof(Digest)> exported;
  const int good =
      SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(exported.data()), exported.size(),
                                 kExporter.data(), kExporter.size(), nullptr, 0, 0);
  POSEIDON_CHECK(good == 1, "a finished handshake exports keys");
  const ConstBytes halves(exported);
  const Key of_client = Key::Derive(halves.first(sizeof(Digest)), "poseidon records of the client");
  const Key of_server = Key::Derive(halves.last(sizeof(Digest)), "poseidon records of the server");
  Wipe(exported);
  const bool chacha = SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(ssl_.get())) == kChaChaId;
  return std::make_unique<SealedCodec>(fd_, chacha ? CipherKind::kChaCha20Poly1305 : CipherKind::kAes128Gcm,
                                       SecretsOf(role_, of_client, of_server),
                                       settings_->parts_->options.rekey_after_bytes,
                                       ConstBytes(input_).subspan(input_begin_, input_end_ - input_begin_), wire_);
}

}  // namespace poseidon::transport::tcp
