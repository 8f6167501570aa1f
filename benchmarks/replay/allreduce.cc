// SPDX-License-Identifier: Apache-2.0
// The dense path alone: one worker of a job that sums tensors of ordered sizes, one at a time, as a front
// end does: push, wait. benchmarks/performance starts one per network namespace, beside the peer's.
//
//   poseidon_allreduce --sizes 1024,1048576 --workers 2 --rank 0 ...
//
// Orders come on standard input, the same to every rank: "SIZE REPEATS". Each is answered with a JSON line,
// {"bytes", "repeats", "seconds", "cpu_seconds"}: the mean all-reduce of so many behind one another, and
// what this process burnt on it. Before it is timed, a size proves its mean. The end of the input ends
// the job.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/replay/member.h"
#include "benchmarks/replay/program.h"
#include "poseidon/session/session.h"
#include "poseidon/factors/rebuild.h"

namespace poseidon::replay {
namespace {

constexpr std::uint64_t kNeverFinal = std::uint64_t{1} << 60;  // the provisional plan is dense

struct Options {
  Member member;
  std::vector<std::uint64_t> sizes;
};

class Worker {
 public:
  explicit Worker(const Options& options) : options_(options) {}

  Status Run() {
    POSEIDON_RETURN_IF_ERROR(Join());
    std::vector<plan::LayerSpec> layers;
    for (const std::uint64_t size : options_.sizes) {
      layers.push_back({.name = std::to_string(size) + " bytes",
                        .elements = size / sizeof(float),
                        .forward_position = static_cast<std::uint32_t>(layers.size())});
    }
    POSEIDON_ASSIGN_OR_RETURN(model_, session_->NewModel());
    POSEIDON_RETURN_IF_ERROR(model_->Commit(layers).status());
    const std::uint64_t most = *std::max_element(options_.sizes.begin(), options_.sizes.end());
    memory_ = factors::AllocateAligned(most);
    std::uint64_t size = 0;
    std::uint64_t repeats = 0;
    while (std::cin >> size >> repeats) POSEIDON_RETURN_IF_ERROR(Obey(size, repeats));
    return session_->Leave();
  }

 private:
  Status Join() {
    session::SessionOptions options;
    options.node.final_plan_step = kNeverFinal;
    POSEIDON_ASSIGN_OR_RETURN(session_, Open(options_.member, options));
    return OkStatus();
  }

  Status Obey(std::uint64_t size, std::uint64_t repeats) {
    const auto found = std::find(options_.sizes.begin(), options_.sizes.end(), size);
    if (found == options_.sizes.end() || repeats == 0) {
      return InvalidArgument("an order of " + std::to_string(size) + " bytes, " +
                             std::to_string(repeats) + " times is not possible");
    }
    const LayerId layer(static_cast<std::uint32_t>(found - options_.sizes.begin()));
    const TensorView view{memory_.get(), size / sizeof(float), DType::kF32};
    float* const values = reinterpret_cast<float*>(memory_.get());
    std::fill_n(values, view.elements, static_cast<float>(options_.member.rank + 1));
    POSEIDON_RETURN_IF_ERROR(AllReduce(layer, view));
    const float mean = static_cast<float>(options_.member.workers + 1) / 2;
    if (!std::all_of(values, values + view.elements, [&](float x) { return x == mean; })) {
      return DataLoss("the mean of " + std::to_string(size) + " bytes is wrong");
    }
    POSEIDON_RETURN_IF_ERROR(session_->Barrier());
    return AnswerOrder(size, repeats, [&] {
      for (std::uint64_t i = 0; i < repeats; ++i) POSEIDON_RETURN_IF_ERROR(AllReduce(layer, view));
      return OkStatus();
    });
  }

  Status AllReduce(LayerId layer, const TensorView& view) {
    POSEIDON_RETURN_IF_ERROR(model_->Push(layer, {{.step = Step(step_++), .gradient = view}}));
    return model_->Wait(layer);
  }

  const Options& options_;
  std::unique_ptr<session::Session> session_;
  session::Model* model_ = nullptr;
  factors::AlignedBytes memory_;
  std::uint64_t step_ = 0;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Sums tensors of ordered sizes through the Poseidon core", "poseidon_allreduce");
  app.add_option("--sizes", options.sizes, "bytes that may be ordered")
      ->required()
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{4}, std::uint64_t{1} << 34));
  AddFlags(app, options.member);
  return RunProgram(app, argc, argv, [&] { return Worker(options).Run(); });
}

}  // namespace
}  // namespace poseidon::replay

int main(int argc, char** argv) { return poseidon::replay::Main(argc, argv); }
