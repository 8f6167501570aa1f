// SPDX-License-Identifier: Apache-2.0
// TCP listeners and members against strangers, over loopback, in both modes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "poseidon/transport/tcp/test_peers.h"

namespace poseidon::transport::tcp {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST_P(Tcp, AnotherTokenIsRefusedAtOnce) {
  Member server(Options('a'));
  const Address address = server.Listen();
  Member stranger(Options('b'));
  const Status status = stranger.ConnectFailure(address);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(),
              HasSubstr("authentication with " + address.ToString() + " failed: the token"));
  ExpectOpenForMembers(server, address);
  EXPECT_EQ(server.accepted_count(), 0u);
  EXPECT_EQ(server.strangers().total(), 1u);
}

TEST_P(Tcp, AnotherModeIsRefusedAtOnceWithTheSameWords) {
  Member server(Options());
  const Address address = server.Listen();
  Member stranger(Options('b'));
  const Status refused = stranger.ConnectFailure(address);
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  for (const Mode mode : {Mode::kTls, Mode::kAuth, Mode::kPlain}) {
    if (mode == GetParam()) continue;
    Member other(Options('a', mode));
    EXPECT_EQ(other.ConnectFailure(address), refused);
  }
  ExpectOpenForMembers(server, address);
  EXPECT_EQ(server.strangers().total(), 3u);
}

TEST_P(Tcp, OtherVersionsAreARefusalOfTheirOwn) {
  TcpOptions old = Options();
  old.versions = {.min = 1, .max = 2};
  TcpOptions recent = Options();
  recent.versions = {.min = 3, .max = 4};
  Member server(recent);
  const Address address = server.Listen();
  Member client(old);
  const Status status = client.ConnectFailure(address);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("versions"));
  EXPECT_EQ(server.strangers().versions_differ, 1u);

  TcpOptions both = Options();
  both.versions = {.min = 2, .max = 3};
  Member bridge(both);
  Peer near = bridge.Connect(address);
  Peer far = server.Accepted();
}

TEST_P(Tcp, ATlsClientWithoutTheKeyIsRefused) {
  Member server(Options());
  const Address address = server.Listen();
  const RawSocket socket = RawSocket::ConnectTo(address);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  SSL_set_fd(ssl.get(), socket.fd());
  EXPECT_LE(SSL_connect(ssl.get()), 0);
  socket.ReceiveAll();
  EXPECT_EQ(server.strangers().refused, 1u);
  ExpectOpenForMembers(server, address);
}

// A server without the token that completes a TLS handshake by a certificate must not get a
// member's gradients.
TEST(TcpTls, AServerWithACertificateInsteadOfTheKeyIsRefused) {
  const RawSocket door = RawSocket::Listening();
  std::thread impostor([&door] {
    const RawSocket socket = door.Accept();
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                  &EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    X509_sign(certificate.get(), key.get(), EVP_sha256());
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
    SSL_CTX_use_certificate(context.get(), certificate.get());
    SSL_CTX_use_PrivateKey(context.get(), key.get());
    SSL_CTX_set_alpn_select_cb(
        context.get(),
        [](SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
           unsigned, void*) {
          *size = offered[0];
          *chosen = offered + 1;
          return SSL_TLSEXT_ERR_OK;
        },
        nullptr);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
    SSL_set_fd(ssl.get(), socket.fd());
    EXPECT_LE(SSL_accept(ssl.get()), 0);
    socket.ReceiveAll();
  });
  Member client({.security = {.mode = Mode::kTls, .token = TokenOf('a')}});
  EXPECT_EQ(client.ConnectFailure(door.address()).code(), StatusCode::kPermissionDenied);
  impostor.join();
}

TEST_P(Tcp, RandomBytesAreRefused) {
  Member server(Options());
  const Address address = server.Listen();
  std::mt19937 random(7);
  for (unsigned i = 0; i < 200; ++i) {
    const RawSocket socket = RawSocket::ConnectTo(address);
    ByteBuffer bytes = RandomBytes(1 + random() % 40'000, i);
    // Some look like the beginning of a TLS hello, or of one of ours.
    static constexpr std::string_view kTls = "\x16\x03\x01";
    static constexpr std::string_view kHello = "POSEIDON\x01";
    const std::string_view start = i % 3 == 0 ? kTls : i % 3 == 1 ? kHello : std::string_view();
    bytes.insert(bytes.begin(), AsBytes(start).begin(), AsBytes(start).end());
    socket.Send(bytes);
    socket.FinishWriting();
    EXPECT_LE(socket.ReceiveAll().size(), 200u) << "a stranger gets little back";
  }
  EXPECT_EQ(server.strangers().total(), 200u);
  ExpectOpenForMembers(server, address);
}

TEST_P(Tcp, APortScanIsHarmless) {
  Member server(Options());
  const Address address = server.Listen();
  for (int i = 0; i < 200; ++i) {
    RawSocket socket = RawSocket::ConnectTo(address);
    if (i % 2 == 0) socket.Reset();
  }
  ExpectOpenForMembers(server, address);
}

TEST_P(Tcp, AThousandIdleConnectionsKeepNoMemberOut) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 1300) GTEST_SKIP() << "the system allows too few descriptors";

  Member server(Options());
  const Address address = server.Listen();
  ExpectOpenForMembers(server, address);
  std::vector<RawSocket> crowd;
  crowd.reserve(1000);
  for (int i = 0; i < 1000; ++i) crowd.push_back(RawSocket::ConnectTo(address));
  ExpectOpenForMembers(server, address);
  // Also while more of them keep coming.
  std::atomic<bool> stop = false;
  std::thread more([&] {
    for (std::size_t i = 0; !stop; ++i) {
      crowd[i % 1000] = RawSocket::ConnectTo(address);
      // A thousand a second: without a pause this is a race for the processor, not for places.
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (int i = 0; i < 5; ++i) ExpectOpenForMembers(server, address);
  stop = true;
  more.join();
  EXPECT_EQ(server.accepted_count(), 0u);
  const StrangerCounters counters = server.strangers();
  EXPECT_GE(counters.crowded_out, 1000u - 64u);
}

TEST_P(Tcp, HoldsNoMoreStrangersThanItMay) {
  TcpOptions options = Options();
  options.max_strangers = 4;
  Member server(options);
  const Address address = server.Listen();
  std::vector<RawSocket> crowd;
  crowd.reserve(10);
  for (int i = 0; i < 10; ++i) crowd.push_back(RawSocket::ConnectTo(address));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(crowd[i].ReceiveAll().empty());
  EXPECT_EQ(server.strangers().crowded_out, 6u);
  char byte;
  for (std::size_t i = 6; i < 10; ++i) {
    EXPECT_EQ(::recv(crowd[i].fd(), &byte, 1, MSG_DONTWAIT), -1) << "the youngest are still held";
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST_P(Tcp, ASlowStrangerIsTurnedAway) {
  TcpOptions options = Options();
  options.authentication_deadline = milliseconds(50);
  Member server(options);
  const RawSocket silent = RawSocket::ConnectTo(server.Listen());
  EXPECT_TRUE(silent.ReceiveAll().empty());
  EXPECT_EQ(server.strangers().too_slow, 1u);
}

// Each byte comes in time, the hello as a whole does not.
TEST_P(Tcp, AStrangerThatTricklesIsTurnedAway) {
  TcpOptions options = Options();
  options.authentication_deadline = milliseconds(50);
  Member server(options);
  const RawSocket socket = RawSocket::ConnectTo(server.Listen());
  const std::string start = Tls() ? std::string("\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb\x03\x03", 11)
                                  : std::string("POSEIDON\x01\x00\x01\x00\x01", 13);
  for (const char c : start + std::string(1000, '\0')) {
    // One byte whenever the server has had time to do its other work.
    if (!socket.Send(AsBytes({&c, 1}))) break;
    if (server.strangers().total() > 0) break;
    std::byte answer;
    const timeval pause{.tv_sec = 0, .tv_usec = 2000};
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &pause, sizeof pause);
    static_cast<void>(::recv(socket.fd(), &answer, 1, 0));
  }
  EXPECT_EQ(server.strangers().too_slow, 1u);
}

}  // namespace
}  // namespace poseidon::transport::tcp
