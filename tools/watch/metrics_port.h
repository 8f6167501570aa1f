// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_WATCH_METRICS_PORT_H_
#define POSEIDON_TOOLS_WATCH_METRICS_PORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "poseidon/base/result.h"

namespace poseidon::tools {

// Answers HTTP/1.1 GET /metrics at a port of 127.0.0.1, in a thread of its own. Each connection has one request and one answer, with
// bounds on the request, on the time for both, and on how many there are at once; who is beyond them is cut off.
class MetricsPort {
 public:
  struct Bounds {
    std::size_t request_bytes = 8192;
    std::chrono::milliseconds time{5000};
    std::size_t connections = 16;
  };

  // Listens. `metrics` is called in that thread. kUnavailable naming the port where it cannot.
  static Result<std::unique_ptr<MetricsPort>> Open(std::uint16_t port, std::function<std::string()> metrics, const Bounds& bounds);
  static Result<std::unique_ptr<MetricsPort>> Open(std::uint16_t port, std::function<std::string()> metrics) {
    return Open(port, std::move(metrics), Bounds());
  }
  // Ends at once, what is being answered too.
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

  std::uint16_t port() const;  // where 0 was asked for, the one that was free

 private:
  class Server;
  explicit MetricsPort(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_WATCH_METRICS_PORT_H_
