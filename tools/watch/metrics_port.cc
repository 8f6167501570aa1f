// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/metrics_port.h"

#include <signal.h>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <array>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/base/take_until.h"

namespace poseidon::tools {
namespace {

using asio::ip::tcp;

constexpr std::string_view kEndOfHead = "\r\n\r\n";

std::string Answer(std::string_view status, const std::string& body, std::string_view type, bool head_only, std::string_view more = "") {
  std::string answer = "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
                       "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + std::string(more) + "Connection: close\r\n\r\n";
  return head_only ? answer : answer + body;
}

std::string Sentence(std::string_view status, const std::string& sentence, bool head_only = false, std::string_view more = "") {
  return Answer(status, sentence + "\n", "text/plain; charset=utf-8", head_only, more);
}

// Of the request whose head this is; the fields of its header change nothing.
std::string AnswerTo(std::string_view head, const std::function<std::string()>& metrics) {
  std::string_view line = head.substr(0, head.find("\r\n"));
  const std::string_view method = TakeUntil(" ", &line);
  std::string_view target = TakeUntil(" ", &line);
  const bool is_http = line == "HTTP/1.1" || line == "HTTP/1.0";
  if (!is_http || method.empty() || !target.starts_with('/')) {
    return Sentence("400 Bad Request", "the request is no HTTP/1.1, expected GET /metrics");
  }
  const bool head_only = method == "HEAD";
  if (method != "GET" && !head_only) {
    return Sentence("405 Method Not Allowed", "the method is not served, expected GET /metrics", false, "Allow: GET, HEAD\r\n");
  }
  if (TakeUntil("?", &target) != "/metrics") return Sentence("404 Not Found", "there is nothing at this path, expected /metrics", head_only);
  return Answer("200 OK", metrics(), "text/plain; version=0.0.4; charset=utf-8", head_only);
}

}  // namespace

class MetricsPort::Server {
 public:
  Server(std::function<std::string()> metrics, const Bounds& bounds) : metrics_(std::move(metrics)), bounds_(bounds) {}
  ~Server() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  std::error_code Listen(std::uint16_t port) {
    const tcp::endpoint here(asio::ip::address_v4::loopback(), port);
    std::error_code error;
    acceptor_.open(here.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(here, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    return error;
  }
  void Begin() {
    Accept();
    // Signals are for the thread that launches.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    thread_ = std::thread([this] { context_.run(); });
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }
  std::uint16_t port() const { return port_; }

 private:
  // Lives as long as somebody has to call it back.
  struct Connection : std::enable_shared_from_this<Connection> {
    Connection(Server& server, tcp::socket peer) : of(server), socket(std::move(peer)), timer(server.context_) { ++of.connections_; }
    ~Connection() { --of.connections_; }

    void Begin() {
      timer.expires_after(of.bounds_.time);
      timer.async_wait([self = shared_from_this()](std::error_code error) {
        if (!error) self->Close();
      });
      Read();
    }
    void Read() {
      socket.async_read_some(asio::buffer(piece), [self = shared_from_this()](std::error_code error, std::size_t bytes) {
        if (error) return self->Close();
        // The end of the head may lie across two pieces.
        const std::size_t from = self->request.size() < kEndOfHead.size() ? 0 : self->request.size() - kEndOfHead.size();
        self->request.append(self->piece.data(), bytes);
        const std::size_t end = self->request.find(kEndOfHead, from);
        if (end != std::string::npos) return self->Write(AnswerTo(std::string_view(self->request).substr(0, end), self->of.metrics_));
        if (self->request.size() < self->of.bounds_.request_bytes) return self->Read();
        self->Write(Sentence("431 Request Header Fields Too Large",
                             "the request is longer than " + std::to_string(self->of.bounds_.request_bytes) + " bytes, expected GET /metrics"));
      });
    }
    void Write(std::string text) {
      answer = std::move(text);
      asio::async_write(socket, asio::buffer(answer), [self = shared_from_this()](std::error_code error, std::size_t) {
        if (error) return self->Close();
        self->Finish();
      });
    }
    // Reads what the peer still sends, until it closes or its time is over: bytes that lie unread would make the system reset the
    // connection, and the peer lose the answer.
    void Finish() {
      std::error_code ignored;
      socket.shutdown(tcp::socket::shutdown_send, ignored);
      Drain();
    }
    void Drain() {
      socket.async_read_some(asio::buffer(piece), [self = shared_from_this()](std::error_code error, std::size_t) {
        return error ? self->Close() : self->Drain();
      });
    }
    void Close() {
      std::error_code ignored;
      socket.close(ignored);
      timer.cancel();
    }

    Server& of;
    tcp::socket socket;
    asio::steady_timer timer;
    std::array<char, 2048> piece{};
    std::string request;
    std::string answer;
  };

  // Who comes while there are as many as may be is cut off.
  void Accept() {
    acceptor_.async_accept([this](std::error_code error, tcp::socket peer) {
      if (!error && connections_ < bounds_.connections) std::make_shared<Connection>(*this, std::move(peer))->Begin();
      if (error == asio::error::operation_aborted) return;
      if (!error) return Accept();
      // No descriptor is free: not at once again.
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this](std::error_code cancelled) {
        if (!cancelled) Accept();
      });
    });
  }

  const std::function<std::string()> metrics_;
  const Bounds bounds_;
  std::size_t connections_ = 0;
  std::uint16_t port_ = 0;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer retry_{context_};
  std::thread thread_;
};

MetricsPort::MetricsPort(std::unique_ptr<Server> server) : server_(std::move(server)) {}
MetricsPort::~MetricsPort() = default;
std::uint16_t MetricsPort::port() const { return server_->port(); }

Result<std::unique_ptr<MetricsPort>> MetricsPort::Open(std::uint16_t port, std::function<std::string()> metrics, const Bounds& bounds) {
  auto server = std::make_unique<Server>(std::move(metrics), bounds);
  if (const std::error_code error = server->Listen(port)) {
    return Unavailable("port " + std::to_string(port) + " of 127.0.0.1 cannot be listened at: " + error.message());
  }
  server->Begin();
  return std::unique_ptr<MetricsPort>(new MetricsPort(std::move(server)));
}

}  // namespace poseidon::tools
