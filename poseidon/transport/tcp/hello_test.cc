// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/hello.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>

#include "poseidon/transport/tcp/hello_input.h"

namespace poseidon::transport::tcp {
namespace {

using State = Hello::State;

Key KeyOf(char secret) {
  std::array<std::byte, 32> bytes;
  bytes.fill(static_cast<std::byte>(secret));
  return Key::Derive(bytes, "hello test");
}

Hello::Nonce NonceOf(int seed) {
  Hello::Nonce nonce{};
  nonce[0] = static_cast<std::byte>(seed);
  return nonce;
}

Hello Client(char secret = 'a', Versions versions = {}, int nonce = 1) {
  return Hello(HelloRole::kClient, KeyOf(secret), versions, NonceOf(nonce));
}
Hello Server(char secret = 'a', Versions versions = {}, int nonce = 2) {
  return Hello(HelloRole::kServer, KeyOf(secret), versions, NonceOf(nonce));
}

// Gives `bytes` to `hello` in the pieces it asks for, as far as it wants them.
void Feed(Hello& hello, ConstBytes bytes) {
  while (hello.wanted() > 0 && bytes.size() >= hello.wanted()) {
    const std::size_t size = hello.wanted();
    hello.Consume(bytes.first(size));
    bytes = bytes.subspan(size);
  }
}

void Converse(Hello& client, Hello& server) {
  Feed(server, client.TakeOutput());
  Feed(client, server.TakeOutput());
  Feed(server, client.TakeOutput());
}

TEST(Hello, TheSameTokenAuthenticatesBothSides) {
  Hello client = Client();
  Hello server = Server();
  Converse(client, server);
  EXPECT_EQ(client.state(), State::kAuthenticated);
  EXPECT_EQ(server.state(), State::kAuthenticated);
  EXPECT_EQ(client.wanted(), 0u);
  EXPECT_EQ(server.wanted(), 0u);
}

TEST(Hello, AnotherTokenIsRefusedByTheClientBeforeItProvesAnything) {
  Hello client = Client('a');
  Hello server = Server('b');
  Converse(client, server);
  EXPECT_EQ(client.state(), State::kRefused);
  EXPECT_TRUE(client.TakeOutput().empty());
  EXPECT_EQ(server.state(), State::kRunning);
}

TEST(Hello, AClientThatCannotProveIsRefused) {
  Hello client = Client();
  Hello server = Server();
  Feed(server, client.TakeOutput());
  Feed(client, server.TakeOutput());
  ByteBuffer proof = client.TakeOutput();
  ASSERT_EQ(proof.size(), Hello::kProofBytes);
  proof.back() ^= std::byte{1};
  Feed(server, proof);
  EXPECT_EQ(server.state(), State::kRefused);
}

// Each bit of each message matters.
TEST(Hello, AChangedBitIsRefused) {
  for (std::size_t bit = 0; bit < 8 * (Hello::kHeaderBytes + Hello::kProofBytes); ++bit) {
    Hello client = Client();
    Hello server = Server();
    Feed(server, client.TakeOutput());
    ByteBuffer answer = server.TakeOutput();
    answer[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Feed(client, answer);
    ASSERT_NE(client.state(), State::kAuthenticated) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * Hello::kHeaderBytes; ++bit) {
    Hello client = Client();
    Hello server = Server();
    ByteBuffer header = client.TakeOutput();
    header[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Feed(server, header);
    Feed(client, server.TakeOutput());
    ASSERT_NE(client.state(), State::kAuthenticated) << bit;
    ASSERT_NE(server.state(), State::kAuthenticated) << bit;
  }
}

TEST(Hello, AReplayedConversationIsRefused) {
  Hello client = Client();
  Hello server = Server();
  const ByteBuffer header = client.TakeOutput();
  Feed(server, header);
  const ByteBuffer answer = server.TakeOutput();
  Feed(client, answer);
  const ByteBuffer proof = client.TakeOutput();

  Hello later_server = Server('a', {}, 3);
  Feed(later_server, header);
  Feed(later_server, proof);
  EXPECT_EQ(later_server.state(), State::kRefused);

  Hello later_client = Client('a', {}, 4);
  Feed(later_client, answer);
  EXPECT_EQ(later_client.state(), State::kRefused);
}

// A stranger connects back to the side that it talks to and returns what that side said.
TEST(Hello, AReflectedConversationIsRefused) {
  Hello client = Client();
  const ByteBuffer header = client.TakeOutput();
  Feed(client, header);
  EXPECT_EQ(client.state(), State::kRefused);

  Hello server = Server();
  Hello other_server = Server('a', {}, 5);
  Feed(server, header);
  const ByteBuffer answer = server.TakeOutput();
  Feed(other_server, header);
  const ByteBuffer other_answer = other_server.TakeOutput();
  Feed(server, ConstBytes(answer).subspan(Hello::kHeaderBytes));
  EXPECT_EQ(server.state(), State::kRefused);
  Feed(other_server, ConstBytes(answer).subspan(Hello::kHeaderBytes));
  EXPECT_EQ(other_server.state(), State::kRefused);
}

TEST(Hello, TheNewestCommonVersionIsChosen) {
  Hello client = Client('a', {.min = 1, .max = 4});
  Hello server = Server('a', {.min = 3, .max = 9});
  Converse(client, server);
  EXPECT_EQ(client.state(), State::kAuthenticated);
  EXPECT_EQ(server.state(), State::kAuthenticated);
  EXPECT_EQ(client.peer_versions(), (Versions{.min = 4, .max = 4}));
}

TEST(Hello, NoCommonVersionIsARefusalOfItsOwnKind) {
  for (const Versions theirs : {Versions{.min = 1, .max = 2}, Versions{.min = 6, .max = 9}}) {
    Hello client = Client('a', theirs);
    Hello server = Server('a', {.min = 3, .max = 5});
    Converse(client, server);
    EXPECT_EQ(client.state(), State::kVersionsDiffer);
    EXPECT_EQ(server.state(), State::kVersionsDiffer);
    EXPECT_EQ(client.peer_versions(), (Versions{.min = 3, .max = 5}));
    EXPECT_EQ(server.peer_versions(), theirs);
  }
}

TEST(Hello, AVersionThatWasNotOfferedIsRefused) {
  Hello client = Client('a', {.min = 1, .max = 2});
  Hello server = Server('a', {.min = 1, .max = 9});
  Hello newer_client = Client('a', {.min = 1, .max = 9});
  Feed(server, newer_client.TakeOutput());
  Feed(client, server.TakeOutput());
  EXPECT_EQ(client.state(), State::kRefused);
}

TEST(Hello, AClientThatSpeaksAnotherProtocolIsToldSo) {
  Hello server = Server();
  const std::string request =
      "GET / HTTP/1.1\r\nHost: example\r\nAccept: */*\r\nUser-Agent: somebody\r\n\r\n";
  Feed(server, AsBytes(request));
  EXPECT_EQ(server.state(), State::kRefused);
  EXPECT_EQ(server.TakeOutput().size(), Hello::kHeaderBytes);
}

// Random bytes, and real messages with random damage, so that the later stages are reached as well.
TEST(Hello, EndsWellOnArbitraryBytes) {
  std::mt19937 random(1);
  const auto any = [&random](std::size_t bound) { return std::size_t{random()} % bound; };
  const Key key = KeyOf('z');
  for (int round = 0; round < 100'000; ++round) {
    const HelloRole role = any(2) == 0 ? HelloRole::kClient : HelloRole::kServer;
    ByteBuffer bytes(any(200));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (any(4) != 0) {
      Hello peer(role == HelloRole::kClient ? HelloRole::kServer : HelloRole::kClient, key,
                 Versions{.min = static_cast<std::uint16_t>(any(4)),
                          .max = static_cast<std::uint16_t>(any(8))},
                 NonceOf(7));
      if (role == HelloRole::kClient) {
        Hello other(HelloRole::kClient, key, Versions{.min = 0, .max = 9}, NonceOf(8));
        Feed(peer, other.TakeOutput());
      }
      ByteBuffer message = peer.TakeOutput();
      for (std::size_t flips = any(3); flips > 0; --flips) {
        message[any(message.size())] ^= static_cast<std::byte>(1 << any(8));
      }
      bytes.insert(bytes.begin(), message.begin(), message.end());
    }
    FeedHello(role, key, bytes);
  }
}

}  // namespace
}  // namespace poseidon::transport::tcp
