// SPDX-License-Identifier: Apache-2.0
// TLS through OpenSSL, which never sees the socket: it reads from and writes to buffers of ours, so
// that many records leave in one system call. (One call per 16 KiB record costs half the rate.)
#include "poseidon/transport/tcp/tls_codec.h"

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
#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {
namespace {

using ContextPtr = OpenSslPtr<SSL_CTX, SSL_CTX_free>;
using SslPtr = OpenSslPtr<SSL, SSL_free>;
using SessionPtr = OpenSslPtr<SSL_SESSION, SSL_SESSION_free>;
using BioMethodPtr = OpenSslPtr<BIO_METHOD, BIO_meth_free>;

constexpr std::string_view kIdentity = "poseidon";
constexpr std::string_view kPurpose = "poseidon tls 1.3 external psk";
constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteId[] = {0x13, 0x01};
constexpr char kGroups[] = "X25519:P-256";

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KiB
constexpr std::size_t kSendBytes = 8 * kRecordBytes;            // plain bytes per system call
constexpr std::size_t kReceiveBytes = std::size_t{128} << 10;
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
      : key(Key::Derive(token, kPurpose)), options(o), protocols(ProtocolList(o.versions)) {}

  Key key;
  Options options;
  std::string protocols;
  BioMethodPtr bio_method;
  ContextPtr client;
  ContextPtr server;
};

// OpenSSL's view of one connection; it reads from input_ and writes to output_.
class TlsCodec final : public Codec {
 public:
  TlsCodec(std::shared_ptr<const TlsSettings> settings, int fd, HelloRole role)
      : settings_(std::move(settings)), fd_(fd), role_(role) {}
  // False when OpenSSL has no memory.
  bool Start();

  Handshake Authenticate() override;
  Moved Read(ReadCursor& into, Amount amount) override;
  Moved Write(WriteCursor& from, std::size_t limit) override;
  bool unsent() const override { return output_begin_ < output_.size(); }
  void Finish() override;
  bool integrity_protected() const override { return true; }

  static int BioWrite(BIO* bio, const char* bytes, std::size_t size, std::size_t* written);
  static int BioRead(BIO* bio, char* bytes, std::size_t size, std::size_t* read);
  static long BioControl(BIO* bio, int command, long number, void* pointer);

 private:
  // 0, EAGAIN or the error.
  int Flush();
  // Fills the empty input_. bytes 0 without error: the end.
  SocketCall Refill();
  bool PeerIsProven() const;
  Handshake Refuse();
  // Encrypts something of `from`; returns how much, 0 when the peer has made writing impossible.
  std::size_t Encrypt(WriteCursor& from, std::size_t limit);
  bool EncryptRecords(ConstBytes bytes);

  const std::shared_ptr<const TlsSettings> settings_;
  const int fd_;
  const HelloRole role_;
  SslPtr ssl_;
  bool proven_ = false;
  std::uint64_t since_rekey_ = 0;

  ByteBuffer input_;  // ciphertext [input_begin_, input_end_) is still to be decrypted
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  ByteBuffer output_;  // ciphertext from output_begin_ on is still to be sent
  std::size_t output_begin_ = 0;
  ByteBuffer gathered_;  // small buffers on their way into one record
};

namespace {

// OpenSSL takes an external key in the form of a session. Its suite names the hash to which TLS 1.3 binds every
// pre-shared key (RFC 8446, 4.2.11).
SSL_SESSION* NewSession(SSL* ssl, const Key& key) {
  SessionPtr session(SSL_SESSION_new());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kSuiteId);
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

ContextPtr NewContext(const SSL_METHOD* method, Key& key) {
  ContextPtr context(SSL_CTX_new_ex(OwnOpenSsl(), nullptr, method));
  if (context == nullptr) return nullptr;
  SSL_CTX* c = context.get();
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_app_data(c, &key);
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(c, kSuite) != 1 || SSL_CTX_set1_groups_list(c, kGroups) != 1 ||
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
  parts->client = NewContext(TLS_client_method(), parts->key);
  parts->server = NewContext(TLS_server_method(), parts->key);
  parts->bio_method.reset(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "poseidon buffers"));
  BIO_METHOD* method = parts->bio_method.get();
  if (parts->client == nullptr || parts->server == nullptr || method == nullptr ||
      BIO_meth_set_write_ex(method, TlsCodec::BioWrite) != 1 ||
      BIO_meth_set_read_ex(method, TlsCodec::BioRead) != 1 ||
      BIO_meth_set_ctrl(method, TlsCodec::BioControl) != 1) {
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

Result<std::unique_ptr<Codec>> TlsSettings::NewCodec(std::shared_ptr<const TlsSettings> settings,
                                                     int fd, HelloRole role) {
  auto codec = std::make_unique<TlsCodec>(std::move(settings), fd, role);
  if (!codec->Start()) {
    return ResourceExhausted("OpenSSL cannot make a connection: " + OpenSslText());
  }
  return std::unique_ptr<Codec>(std::move(codec));
}

bool TlsCodec::Start() {
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

int TlsCodec::BioWrite(BIO* bio, const char* bytes, std::size_t size, std::size_t* written) {
  ByteBuffer& output = static_cast<TlsCodec*>(BIO_get_data(bio))->output_;
  const ConstBytes source = AsBytes(std::string_view(bytes, size));
  output.insert(output.end(), source.begin(), source.end());
  *written = size;
  return 1;
}

int TlsCodec::BioRead(BIO* bio, char* bytes, std::size_t size, std::size_t* read) {
  auto* codec = static_cast<TlsCodec*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const std::size_t there = codec->input_end_ - codec->input_begin_;
  if (there == 0) {
    // Empty is not the end: without the mark OpenSSL would take the 0 for one and fail the connection.
    BIO_set_retry_read(bio);
    return 0;
  }
  *read = std::min(size, there);
  std::memcpy(bytes, codec->input_.data() + codec->input_begin_, *read);
  codec->input_begin_ += *read;
  return 1;
}

long TlsCodec::BioControl(BIO*, int command, long, void*) {
  // OpenSSL flushes after each flight and fails where that fails. Our buffer is sent by Flush() later.
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

int TlsCodec::Flush() {
  while (unsent()) {
    const SocketCall call = Send(fd_, ConstBytes(output_).subspan(output_begin_));
    if (call.error != 0) return call.error;
    output_begin_ += call.bytes;
    wire_bytes_out_ += call.bytes;
  }
  output_.clear();
  output_begin_ = 0;
  return 0;
}

SocketCall TlsCodec::Refill() {
  POSEIDON_CHECK(input_begin_ == input_end_, "OpenSSL asks for more when it has read everything");
  const SocketCall call = Receive(fd_, input_);
  input_begin_ = 0;
  input_end_ = call.bytes;
  wire_bytes_in_ += call.bytes;
  return call;
}

Codec::Handshake TlsCodec::Authenticate() {
  for (;;) {
    const int error = Flush();
    if (error == EAGAIN) return Handshake::kWritable;
    if (error != 0) return Handshake::kEnded;
    if (proven_) return Handshake::kAuthenticated;
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
    if (wire_bytes_in_ >= kHandshakeBytes) return Refuse();
    const SocketCall call = Refill();
    if (call.would_block()) return Handshake::kReadable;
    if (call.error != 0 || call.bytes == 0) return Handshake::kEnded;
  }
}

// Finishing a handshake is not enough: it must have used the key. OpenSSL counts a pre-shared key
// as a session that is resumed.
bool TlsCodec::PeerIsProven() const {
  const unsigned char* protocol = nullptr;
  unsigned protocol_size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &protocol, &protocol_size);
  return SSL_session_reused(ssl_.get()) == 1 && SSL_version(ssl_.get()) == TLS1_3_VERSION &&
         protocol_size > 0;
}

Codec::Handshake TlsCodec::Refuse() {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  ERR_clear_error();
  // OpenSSL's own alert, if it made one, says more. Without any a client could take the end for a crowded listener
  // and retry (Connector::Introduced).
  if (!unsent()) output_.assign(kAlert.begin(), kAlert.end());
  static_cast<void>(Flush());  // as far as it goes: the connection ends here
  const bool versions = reason == SSL_R_NO_APPLICATION_PROTOCOL ||
                        reason == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL;
  return versions ? Handshake::kVersionsDiffer : Handshake::kRefused;
}

Codec::Moved TlsCodec::Read(ReadCursor& into, Amount amount) {
  Moved moved;
  while (!into.done() && moved.bytes < amount.limit) {
    const MutableBytes front = into.buffers().front();
    std::size_t size = 0;
    ERR_clear_error();
    const int outcome = SSL_read_ex(ssl_.get(), front.data(),
                                    std::min(front.size(), amount.limit - moved.bytes), &size);
    if (outcome == 1) {
      into.Advance(size);
      moved.bytes += size;
      continue;
    }
    const int error = SSL_get_error(ssl_.get(), outcome);
    if (error != SSL_ERROR_WANT_READ) {
      moved.next = error == SSL_ERROR_ZERO_RETURN ? Next::kEnded : Next::kFailed;
      moved.error = EBADMSG;
      return moved;
    }
    if (moved.bytes >= amount.enough) return moved;
    // Only for proven peers: until then a connection costs the small buffer of the handshake.
    if (input_.size() < kReceiveBytes) input_.resize(kReceiveBytes);
    const SocketCall call = Refill();
    if (call.error == 0 && call.bytes > 0) continue;
    moved.next = call.would_block() ? Next::kReadable
                 : call.error != 0  ? Next::kFailed
                                    : Next::kEnded;
    moved.error = call.error;
    return moved;
  }
  return moved;
}

Codec::Moved TlsCodec::Write(WriteCursor& from, std::size_t limit) {
  Moved moved;
  for (;;) {
    if (const int error = Flush(); error != 0) {
      moved.next = error == EAGAIN ? Next::kWritable : Next::kFailed;
      moved.error = error;
      return moved;
    }
    if (from.done() || moved.bytes >= limit) return moved;
    const std::size_t share = std::min(kSendBytes, limit - moved.bytes);
    std::size_t encrypted = 0;
    while (!from.done() && encrypted < share) {
      const std::size_t size = Encrypt(from, share - encrypted);
      if (size == 0) return {.bytes = moved.bytes, .next = Next::kFailed, .error = EBADMSG};
      encrypted += size;
    }
    moved.bytes += encrypted;
  }
}

std::size_t TlsCodec::Encrypt(WriteCursor& from, std::size_t limit) {
  const ConstBytes front = from.buffers().front();
  // Whole records are encrypted from the caller's memory, without the copy that small buffers need.
  const std::size_t direct = std::min(front.size(), limit) / kRecordBytes * kRecordBytes;
  if (direct > 0) {
    if (!EncryptRecords(front.first(direct))) return 0;
    from.Advance(direct);
    return direct;
  }
  // Small buffers, such as a header and what follows it, share a record.
  gathered_.clear();
  while (!from.done() && gathered_.size() < std::min(kRecordBytes, limit)) {
    const ConstBytes next = from.buffers().front();
    const std::size_t size =
        std::min(next.size(), std::min(kRecordBytes, limit) - gathered_.size());
    gathered_.insert(gathered_.end(), next.begin(),
                     next.begin() + static_cast<std::ptrdiff_t>(size));
    from.Advance(size);
  }
  return EncryptRecords(gathered_) ? gathered_.size() : 0;
}

bool TlsCodec::EncryptRecords(ConstBytes bytes) {
  since_rekey_ += bytes.size();
  if (since_rekey_ >= settings_->parts_->options.rekey_after_bytes &&
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
    since_rekey_ = 0;
  }
  std::size_t written = 0;
  ERR_clear_error();
  // Our buffer takes everything; this fails only after a record of the peer's that did not check.
  return SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written) == 1 &&
         written == bytes.size();
}

void TlsCodec::Finish() {
  // Unsent bytes go before a goodbye, and the socket takes no more now.
  if (!proven_ || unsent()) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
  static_cast<void>(Flush());
}

}  // namespace poseidon::transport::tcp
