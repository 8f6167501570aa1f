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
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "poseidon/session/session.h"
#include "poseidon/sfb/rebuild.h"

namespace poseidon::replay {
namespace {

constexpr std::uint64_t kNeverFinal = std::uint64_t{1} << 60;  // the provisional plan is dense

struct Options {
  std::vector<std::uint64_t> sizes;
  std::uint16_t workers = 2;
  std::uint16_t rank = 0;
  std::string listen = "127.0.0.1";
  std::string coordinator = "127.0.0.1";
  std::uint16_t port = 0;
  std::string token_file;
  std::string wire = "auth";
  std::size_t chunk = 0;
  int send_buffer = -1;
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

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
    POSEIDON_RETURN_IF_ERROR(session_->Commit(layers).status());
    const std::uint64_t most = *std::max_element(options_.sizes.begin(), options_.sizes.end());
    memory_ = sfb::AllocateAligned(most);
    std::uint64_t size = 0;
    std::uint64_t repeats = 0;
    while (std::cin >> size >> repeats) POSEIDON_RETURN_IF_ERROR(Obey(size, repeats));
    return session_->Leave();
  }

 private:
  Status Join() {
    session::SessionOptions options;
    session::NodeOptions& node = options.node;
    node.workers = options_.workers;
    node.requested_rank = options_.rank;
    node.hosts_coordinator = options_.rank == 0;
    node.host = options_.listen;
    node.listen = {options_.listen, options_.rank == 0 ? options_.port : std::uint16_t{0}};
    node.coordinator = {options_.coordinator, options_.port};
    node.final_plan_step = kNeverFinal;
    node.cores = std::max(1u, std::thread::hardware_concurrency());
    POSEIDON_ASSIGN_OR_RETURN(transport::tcp::Token token,
                              transport::tcp::Token::FromFile(options_.token_file));
    if (options_.chunk > 0) {
      node.flow = {options_.chunk, options_.chunk};
      node.flow_is_fixed = true;
    }
    transport::tcp::TcpOptions tcp{
        .security = {options_.wire == "tls" ? transport::tcp::Security::Mode::kTls
                                            : transport::tcp::Security::Mode::kAuth,
                     token}};
    if (options_.send_buffer >= 0) {
      tcp.socket.send_buffer_bytes = options_.send_buffer;
      node.flow_is_fixed = true;
    }
    POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<session::Runtime> runtime,
                              session::MakeTcpRuntime(tcp));
    POSEIDON_ASSIGN_OR_RETURN(session_, session::Session::Open(std::move(runtime), options));
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
    std::fill_n(values, view.elements, static_cast<float>(options_.rank + 1));
    POSEIDON_RETURN_IF_ERROR(AllReduce(layer, view));
    const float mean = static_cast<float>(options_.workers + 1) / 2;
    if (!std::all_of(values, values + view.elements, [&](float x) { return x == mean; })) {
      return DataLoss("the mean of " + std::to_string(size) + " bytes is wrong");
    }
    POSEIDON_RETURN_IF_ERROR(session_->Barrier());
    const auto began = std::chrono::steady_clock::now();
    const double used = CpuSeconds();
    for (std::uint64_t i = 0; i < repeats; ++i) POSEIDON_RETURN_IF_ERROR(AllReduce(layer, view));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const auto count = static_cast<double>(repeats);
    const nlohmann::json answer = {{"bytes", size},
                                   {"repeats", repeats},
                                   {"seconds", took.count() / count},
                                   {"cpu_seconds", (CpuSeconds() - used) / count}};
    std::printf("%s\n", answer.dump().c_str());
    std::fflush(stdout);
    return OkStatus();
  }

  Status AllReduce(LayerId layer, const TensorView& view) {
    session_->Push({.layer = layer, .step = Step(step_++), .gradient = view});
    return session_->Wait(layer);
  }

  const Options& options_;
  std::unique_ptr<session::Session> session_;
  sfb::AlignedBytes memory_;
  std::uint64_t step_ = 0;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Sums tensors of ordered sizes through the Poseidon core", "poseidon_allreduce");
  app.add_option("--sizes", options.sizes, "bytes that may be ordered")
      ->required()
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{4}, std::uint64_t{1} << 34));
  app.add_option("--workers", options.workers)->check(CLI::Range(1, 64));
  app.add_option("--rank", options.rank);
  app.add_option("--listen", options.listen, "this worker's address");
  app.add_option("--coordinator", options.coordinator, "rank 0's address");
  app.add_option("--port", options.port, "rank 0's port")->required();
  app.add_option("--token-file", options.token_file)->required();
  app.add_option("--chunk", options.chunk, "bytes of a frame, instead of what the link asks for");
  app.add_option("--send-buffer", options.send_buffer, "SO_SNDBUF instead of what the link asks for, 0: the system's");
  app.add_option("--wire", options.wire)->check(CLI::IsMember({"auth", "tls"}));
  CLI11_PARSE(app, argc, argv);
  const Status status = Worker(options).Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "poseidon_allreduce: %s\n", status.message().c_str());
  return 1;
}

}  // namespace
}  // namespace poseidon::replay

int main(int argc, char** argv) { return poseidon::replay::Main(argc, argv); }
