// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/metrics_port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace poseidon::tools {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection to the port, closed at the end.
class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(port);
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&there), sizeof there), 0);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  // False where the other side has gone.
  bool Send(const std::string& bytes) const {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  void SendEnd() const { shutdown(socket_, SHUT_WR); }
  // All until the other side closes; "cut off" where it resets.
  std::string ReadAll() const {
    std::string text;
    std::array<char, 65536> bytes;
    for (;;) {
      const ssize_t n = recv(socket_, bytes.data(), bytes.size(), 0);
      if (n < 0) return text + "cut off";
      if (n == 0) return text;
      text.append(bytes.data(), static_cast<std::size_t>(n));
    }
  }

 private:
  const int socket_;
};

class MetricsPortTest : public ::testing::Test {
 protected:
  void Open(const MetricsPort::Bounds& bounds) {
    auto opened = MetricsPort::Open(0, [this] { return metrics_; }, bounds);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    port_ = *std::move(opened);
  }
  std::string Ask(const std::string& request) const {
    const Client client(port_->port());
    EXPECT_TRUE(client.Send(request));
    return client.ReadAll();
  }

  std::string metrics_ = "poseidon_up 1\n";
  std::unique_ptr<MetricsPort> port_;
};

TEST_F(MetricsPortTest, AnswersPrometheus) {
  Open({});
  const std::string answer = Ask("GET /metrics HTTP/1.1\r\nHost: localhost:9400\r\nAccept: text/plain;version=0.0.4\r\n\r\n");
  EXPECT_EQ(answer,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 14\r\nConnection: close\r\n\r\n"
            "poseidon_up 1\n");
  EXPECT_EQ(Ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), answer);
  EXPECT_EQ(Ask("HEAD /metrics HTTP/1.1\r\n\r\n"), answer.substr(0, answer.size() - 14));
}

TEST_F(MetricsPortTest, AnswersAnythingElseWithASentence) {
  Open({});
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("\r\n\r\nthere is nothing at this path, expected /metrics\n")));
  EXPECT_THAT(Ask("HEAD / HTTP/1.1\r\n\r\n"), AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("\r\n\r\n")));
  EXPECT_THAT(Ask("GET /metricsx HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD\r\n")));
  for (const char* request : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "GET metrics HTTP/1.1\r\n\r\n", "GET /metrics HTTP/2\r\n\r\n",
                              "\x16\x03\x01\x02\x03\xff\r\n\r\n", "GET /metrics HTTP/1.1 x\r\n\r\n", "  \r\n\r\n"}) {
    EXPECT_THAT(Ask(request), StartsWith("HTTP/1.1 400 ")) << request;
  }
}

TEST_F(MetricsPortTest, ARequestIsBounded) {
  Open({.request_bytes = 8192});
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nX: " + std::string(8000, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask(std::string(9000, '\0')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(MetricsPortTest, ASlowRequestIsCutOff) {
  Open({.time = milliseconds(300)});
  const Client client(port_->port());
  const auto begin = std::chrono::steady_clock::now();
  bool taken = true;
  while (taken && std::chrono::steady_clock::now() < begin + std::chrono::seconds(60)) {
    taken = client.Send("G");
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_FALSE(taken);
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsPortTest, WhoTakesNoAnswerIsCutOff) {
  metrics_ = std::string(64 << 20, 'x');  // more than the system holds
  Open({.time = milliseconds(300)});
  const Client client(port_->port());
  ASSERT_TRUE(client.Send("GET /metrics HTTP/1.1\r\n\r\n"));
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_LT(client.ReadAll().size(), metrics_.size());
}

TEST_F(MetricsPortTest, ManyIdleClientsKeepNobodyOutForLong) {
  Open({.time = milliseconds(500), .connections = 4});
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(std::make_unique<Client>(port_->port()));
  while (idle.size() < 40) idle.push_back(std::make_unique<Client>(port_->port()));
  for (const auto& client : idle) EXPECT_THAT(client->ReadAll(), testing::AnyOf("", "cut off"));  // all, within their time
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsPortTest, APortThatIsTakenIsNamed) {
  Open({});
  const auto second = MetricsPort::Open(port_->port(), [] { return std::string(); });
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(), "port " + std::to_string(port_->port()) + " of 127.0.0.1 cannot be listened at: Address already in use");
}

TEST_F(MetricsPortTest, EndsWhileSomebodyIsConnected) {
  Open({.time = std::chrono::minutes(10)});
  const Client client(port_->port());
  ASSERT_TRUE(client.Send("GET /met"));
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  port_.reset();
  EXPECT_THAT(client.ReadAll(), testing::AnyOf("", "cut off"));
}

}  // namespace
}  // namespace poseidon::tools
