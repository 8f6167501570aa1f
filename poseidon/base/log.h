// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_LOG_H_
#define POSEIDON_BASE_LOG_H_

#include <string_view>

namespace poseidon {

enum class LogLevel { kDebug, kNotice, kWarning, kError };

// Where the core's few log lines go. The front end brings one (spdlog, a test's recorder); the core
// never writes to a stream of its own. `line` has no final newline.
// Thread: Log may be called from any thread. Lifetime: outlives every object it is handed to.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Log(LogLevel level, std::string_view line) = 0;
};

// Drops everything.
class NullLogSink final : public LogSink {
 public:
  void Log(LogLevel, std::string_view) override {}
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_LOG_H_
