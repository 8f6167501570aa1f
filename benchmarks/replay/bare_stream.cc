// SPDX-License-Identifier: Apache-2.0
// The floor under an all-reduce: its bytes through plain TCP, neither summed nor checked.
//
//   poseidon_bare_stream --peers ADDRESS,ADDRESS --rank 0 --port 29500
//
// Orders come on standard input, "SIZE REPEATS", and are answered as poseidon_allreduce does. For each, a rank sends
// to every other one 2/P of the size over a connection of their own and receives as much, on one thread. The bytes are
// read from and land in memory of the size of the tensor, as those of a gradient are: what no way of summing that uses these
// sockets can be cheaper than.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/replay/member.h"
#include "benchmarks/replay/program.h"

namespace poseidon::replay {
namespace {

constexpr std::size_t kPiece = 256 * 1024;  // written or read at once, at most
constexpr auto kPatience = std::chrono::seconds(30);

struct Options {
  std::vector<std::string> peers;  // by rank
  std::size_t rank = 0;
  std::uint16_t port = 0;
};

Status Failed(const std::string& what) { return Unavailable(what + ": " + std::strerror(errno)); }

sockaddr_in At(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

class Streams {
 public:
  explicit Streams(const Options& options) : options_(options) {}
  ~Streams() {
    for (const int fd : fds_) ::close(fd);
  }

  // A connection to every other rank: to lower ones called, from higher ones taken.
  Status Connect() {
    const int door = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const sockaddr_in own = At(options_.peers[options_.rank], options_.port);
    if (::bind(door, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 || ::listen(door, 64) != 0) {
      return Failed("cannot listen at " + options_.peers[options_.rank]);
    }
    for (std::size_t peer = 0; peer < options_.peers.size(); ++peer) {
      if (peer == options_.rank) continue;
      const int fd = peer < options_.rank ? Called(options_.peers[peer]) : ::accept4(door, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return Failed("no connection to " + options_.peers[peer]);
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      ::fcntl(fd, F_SETFL, O_NONBLOCK);
      fds_.push_back(fd);
    }
    ::close(door);
    return OkStatus();
  }

  // Sends `count` bytes over each connection and receives as many, over and over through memory of `size` bytes.
  Status Exchange(std::size_t count, std::size_t size) {
    from_.resize(std::max(from_.size(), size));
    to_.resize(std::max(to_.size(), size));
    std::vector<std::size_t> sent(fds_.size(), 0), received(fds_.size(), 0);
    // Each connection has its own part of the memory, as a slice has.
    const std::size_t part = std::max<std::size_t>(size / fds_.size(), 1);
    const auto piece = [&](std::size_t i, std::size_t done) {
      return std::pair(i * part + done % part, std::min({kPiece, part - done % part, count - done}));
    };
    for (;;) {
      std::vector<pollfd> waiting;
      for (std::size_t i = 0; i < fds_.size(); ++i) {
        short events = 0;
        if (received[i] < count) {
          const auto [at, bytes] = piece(i, received[i]);
          const ssize_t n = ::recv(fds_[i], to_.data() + at, bytes, 0);
          if (n == 0) return Unavailable("a peer has gone");
          if (n < 0 && errno != EAGAIN) return Failed("receiving");
          received[i] += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
          if (received[i] < count) events |= POLLIN;
        }
        if (sent[i] < count) {
          const auto [at, bytes] = piece(i, sent[i]);
          const ssize_t n = ::send(fds_[i], from_.data() + at, bytes, MSG_NOSIGNAL);
          if (n < 0 && errno != EAGAIN) return Failed("sending");
          sent[i] += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
          if (sent[i] < count) events |= POLLOUT;
        }
        if (events != 0) waiting.push_back({fds_[i], events, 0});
      }
      if (waiting.empty()) return OkStatus();
      ::poll(waiting.data(), waiting.size(), -1);
    }
  }

 private:
  // A connection to a rank that may not listen yet.
  int Called(const std::string& host) const {
    const sockaddr_in where = At(host, options_.port);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) return fd;
      ::close(fd);
      if (std::chrono::steady_clock::now() > deadline) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  const Options& options_;
  std::vector<int> fds_;
  std::vector<char> from_;
  std::vector<char> to_;
};

Status Run(const Options& options) {
  if (options.rank >= options.peers.size() || options.peers.size() < 2) {
    return InvalidArgument("rank " + std::to_string(options.rank) + " is not one of several peers");
  }
  Streams streams(options);
  POSEIDON_RETURN_IF_ERROR(streams.Connect());
  std::size_t size = 0;
  std::size_t repeats = 0;
  while (std::cin >> size >> repeats) {
    POSEIDON_RETURN_IF_ERROR(streams.Exchange(1, size));  // all begin together
    const std::size_t bytes = repeats * std::max<std::size_t>(1, 2 * size / options.peers.size());
    POSEIDON_RETURN_IF_ERROR(AnswerOrder(size, repeats, [&] { return streams.Exchange(bytes, size); }));
  }
  return OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Moves the bytes of an all-reduce through plain TCP", "poseidon_bare_stream");
  app.add_option("--peers", options.peers, "all addresses, by rank")->required()->delimiter(',');
  app.add_option("--rank", options.rank)->required();
  app.add_option("--port", options.port)->required();
  return RunProgram(app, argc, argv, [&] { return Run(options); });
}

}  // namespace
}  // namespace poseidon::replay

int main(int argc, char** argv) { return poseidon::replay::Main(argc, argv); }
