// SPDX-License-Identifier: Apache-2.0
// Measures what it costs to move bytes between two members over loopback: goodput, and CPU seconds per
// payload GB of both ends together, plain, authenticated (auth) and encrypted (tls), by size of chunk.
//
//   transport_bench [--mib=512] [--repeats=5]
//
// Each repeat sends frames of a 64-byte header and one chunk and receives them into one place, as
// the layers above do. Before it is timed, a connection proves itself on a chunk of random bytes.
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/transport/tcp/io_executor.h"
#include "poseidon/transport/tcp/record_cipher.h"
#include "poseidon/transport/tcp/tcp_context.h"

namespace poseidon::transport::tcp {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr unsigned kSeed = 1;

template <typename F>
void On(Executor& executor, F call) {
  std::promise<void> returned;
  executor.Post([&] {
    call();
    returned.set_value();
  });
  returned.get_future().wait();
}

void Require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "transport_bench: %s\n", status.message().c_str());
  std::exit(1);
}

// Two members, one thread each, and a connection between them.
class Pair {
 public:
  explicit Pair(Security::Mode mode) {
    Result<Token> token = Token::Generate();
    Require(token.status());
    const TcpOptions options{.security = {.mode = mode, .token = *token}};
    std::promise<void> accepted;
    std::promise<void> connected;
    Address address;
    On(receiver_, [&] {
      server_ = *TcpContext::Make(receiver_, options);
      Result<std::unique_ptr<Listener>> listener =
          server_->Listen({}, [&](std::unique_ptr<Connection> connection) {
            far_ = std::move(connection);
            accepted.set_value();
          });
      Require(listener.status());
      listener_ = *std::move(listener);
      address = listener_->address();
    });
    On(sender_, [&] {
      client_ = *TcpContext::Make(sender_, options);
      client_->Connect(address, std::chrono::seconds(5),
                       [&](Result<std::unique_ptr<Connection>> connection) {
                         Require(connection.status());
                         near_ = *std::move(connection);
                         connected.set_value();
                       });
    });
    connected.get_future().wait();
    accepted.get_future().wait();
  }
  ~Pair() {
    On(sender_, [this] {
      near_.reset();
      client_.reset();
    });
    On(receiver_, [this] {
      far_.reset();
      listener_.reset();
      server_.reset();
    });
  }

  // Sends `chunk` so many times, each behind a header; returns when the last has landed.
  void Move(const ByteBuffer& chunk, ByteBuffer& landing, std::size_t times) {
    Side out{.left = times, .done = {}};
    Side in{.left = times, .done = {}};
    receiver_.Post([&] { ReadNext(landing, in); });
    sender_.Post([&] { WriteNext(chunk, out); });
    out.done.get_future().wait();
    in.done.get_future().wait();
  }

 private:
  struct Side {
    std::size_t left = 0;
    std::promise<void> done;
  };
  void WriteNext(const ByteBuffer& chunk, Side& side) {
    if (side.left-- == 0) return side.done.set_value();
    const ConstBytes from[] = {header_out_, chunk};
    near_->Write(from, [this, &chunk, &side](const Status& status) {
      Require(status);
      WriteNext(chunk, side);
    });
  }
  void ReadNext(ByteBuffer& landing, Side& side) {
    if (side.left-- == 0) return side.done.set_value();
    const MutableBytes into[] = {header_in_, landing};
    far_->Read(into, kHeaderBytes + landing.size(),
               [this, &landing, &side](const Status& status, std::size_t) {
                 Require(status);
                 ReadNext(landing, side);
               });
  }

  ByteBuffer header_out_ = ByteBuffer(kHeaderBytes);
  ByteBuffer header_in_ = ByteBuffer(kHeaderBytes);
  IoExecutor sender_{"bench-send"};
  IoExecutor receiver_{"bench-receive"};
  std::unique_ptr<TcpContext> client_;
  std::unique_ptr<TcpContext> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> near_;
  std::unique_ptr<Connection> far_;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Rates {
  double gigabytes_per_second = 0;
  double cpu_seconds_per_gigabyte = 0;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Spread {
  Rates median;
  double slowest = 0;
  double fastest = 0;
};

Spread Measure(Security::Mode mode, std::size_t chunk_bytes, std::size_t bytes, int repeats) {
  Pair pair(mode);
  ByteBuffer chunk(chunk_bytes);
  std::mt19937 random(kSeed);
  for (std::byte& byte : chunk) byte = static_cast<std::byte>(random());
  ByteBuffer landing(chunk_bytes);
  pair.Move(chunk, landing, 1);
  if (landing != chunk) Require(DataLoss("what landed is not what was sent"));

  const std::size_t times = std::max<std::size_t>(bytes / chunk_bytes, 1);
  const double gigabytes = static_cast<double>(times * chunk_bytes) * 1e-9;
  std::vector<double> rates;
  std::vector<double> costs;
  for (int i = 0; i < repeats; ++i) {
    const double cpu = CpuSeconds();
    const auto start = std::chrono::steady_clock::now();
    pair.Move(chunk, landing, times);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    rates.push_back(gigabytes / wall.count());
    costs.push_back((CpuSeconds() - cpu) / gigabytes);
  }
  return {
      .median = {.gigabytes_per_second = Median(rates), .cpu_seconds_per_gigabyte = Median(costs)},
      .slowest = std::ranges::min(rates),
      .fastest = std::ranges::max(rates)};
}

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

int Main(std::size_t mebibytes, int repeats) {
  utsname system{};
  ::uname(&system);
  std::printf("machine: %s, %u cores, %s %s; network: loopback; seed %u; %zu MiB x %d\n",
              Processor().c_str(), std::thread::hardware_concurrency(), system.sysname,
              system.release, kSeed, mebibytes, repeats);
  const auto library = [](CipherKind kind) {
    return FastestLibrary(kind) == CipherLibrary::kIpsecMb ? "intel-ipsec-mb" : "OpenSSL";
  };
  std::printf("tls: AES-128-GCM of %s; auth: GMAC of %s\n", library(CipherKind::kAes128Gcm), library(CipherKind::kAes128Gmac));
  std::printf("%-6s %9s %22s %14s %14s\n", "mode", "chunk", "GB/s (slow..fast)", "CPU s/GB",
              "CPU / plain");
  for (const std::size_t kib : {64, 128, 256, 1024}) {
    double plain_cost = 0;
    for (const auto& [name, mode] : {std::pair("plain", Security::Mode::kPlain), std::pair("auth", Security::Mode::kAuth),
                                     std::pair("tls", Security::Mode::kTls)}) {
      const Spread spread = Measure(mode, kib << 10, mebibytes << 20, repeats);
      const Rates& rates = spread.median;
      if (mode == Security::Mode::kPlain) plain_cost = rates.cpu_seconds_per_gigabyte;
      std::printf("%-6s %5zu KiB %8.2f (%4.2f..%4.2f) %14.3f %14.2f\n", name, kib,
                  rates.gigabytes_per_second, spread.slowest, spread.fastest,
                  rates.cpu_seconds_per_gigabyte, rates.cpu_seconds_per_gigabyte / plain_cost);
    }
  }
  return 0;
}

// The number behind `--name=` in `argument`, or `value` when that is another argument.
long Number(std::string_view argument, std::string_view name, long value) {
  if (!argument.starts_with(name)) return value;
  return std::strtol(argument.data() + name.size(), nullptr, 10);
}

}  // namespace
}  // namespace poseidon::transport::tcp

int main(int argc, char** argv) {
  long mebibytes = 512;
  long repeats = 5;
  for (int i = 1; i < argc; ++i) {
    mebibytes = poseidon::transport::tcp::Number(argv[i], "--mib=", mebibytes);
    repeats = poseidon::transport::tcp::Number(argv[i], "--repeats=", repeats);
  }
  if (mebibytes < 1 || repeats < 1) {
    std::fprintf(stderr, "transport_bench: --mib and --repeats must be at least 1\n");
    return 1;
  }
  return poseidon::transport::tcp::Main(static_cast<std::size_t>(mebibytes),
                                        static_cast<int>(repeats));
}
