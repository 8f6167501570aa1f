// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_RUN_FILES_H_
#define POSEIDON_C_RUN_FILES_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/file.h"
#include "poseidon/base/log.h"
#include "poseidon/base/trace.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/session/session.h"

// What worker 0 of a program's job leaves in its run directory for `poseidon report`: the files that `poseidon train` writes,
// without weights, and with rank 0's spans alone.
namespace poseidon::c {

// Kept for them where the program asks for no trace; as many as the trainer keeps.
inline constexpr std::uint64_t kSpansOfARun = 30'000;

// What is known of a job before it is left.
struct Account {
  // A model that still trains.
  struct Model {
    std::size_t number = 0;  // among the session's
    std::vector<plan::LayerSpec> layers;
    plan::Plan plan;
    session::ModelStatistics counted;
  };

  Rank rank;
  std::uint16_t workers = 0;
  session::Statistics counted;
  std::vector<Model> models;
  std::vector<TraceSpan> spans;  // of these models
};

// The models without those that have been given back: a model whose last span is in the first half of all `spans` has, as where
// a layer is thawed and another model has its layers. `models`: all of the session's that have a plan.
void LeaveOutGivenBack(Account* account);

// The files of one run in one folder. A file that cannot be written ends no job: it is said to `log`. Thread: one.
class RunFiles {
 public:
  // Removes those of an earlier run, so that none is taken for one of this run. `log` outlives this.
  RunFiles(std::string folder, LogSink* log);

  // Adds a line of numbers, by name, to metrics.jsonl, as the trainer writes it. One that is not finite becomes null.
  void Note(std::uint64_t step, bool test, std::span<const std::pair<std::string, double>> numbers);

  // Writes summary.json, plan.json and trace.json. Counts are means over all steps. Blocks.
  void WriteAccount(const Account& account);

 private:
  Status AddLine(const std::string& line);

  const std::filesystem::path folder_;
  LogSink* const log_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::unique_ptr<File> curves_;  // open from the first line on
  bool failed_ = false;
};

}  // namespace poseidon::c

#endif  // POSEIDON_C_RUN_FILES_H_
