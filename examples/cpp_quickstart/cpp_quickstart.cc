// SPDX-License-Identifier: Apache-2.0
// Poseidon from C++ in one page: three ranks agree on the minimum of a parabola. Here the ranks are
// threads of one program; as three processes they would do exactly the same.
//
// Build outside the tree, after `make build && cmake --install build/release --prefix DIR`:
//   c++ -std=c++17 -IDIR/include cpp_quickstart.cc -o cpp_quickstart -LDIR/lib -Wl,-rpath,DIR/lib -lposeidon -pthread
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <random>
#include <vector>

#include "poseidon/c/poseidon.hpp"

namespace {

constexpr std::uint32_t kRanks = 3;
constexpr std::size_t kWeights = 1000;

// The job's secret, and where rank 0 listens, once it does.
struct Job {
  std::array<std::uint8_t, 32> token{};
  std::promise<std::uint32_t> port;
  std::shared_future<std::uint32_t> port_known = port.get_future().share();

  // For a rank 0 that fails: the others do not wait for its port any more.
  void GiveUp(const std::exception_ptr& failure) {
    try {
      port.set_exception(failure);
    } catch (const std::future_error&) {  // it is known
    }
  }
};

void TellPort(void* job, const char* /*host*/, std::uint32_t port) {
  static_cast<Job*>(job)->port.set_value(port);
}

poseidon_options OptionsOf(Job& job, std::uint32_t rank) {
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.workers = kRanks;
  options.token_bytes = job.token.data();
  options.final_plan_step = POSEIDON_NEVER;  // nothing is measured here: one plan for the whole run
  if (rank == 0) {
    options.hosts_coordinator = 1;
    options.listening = TellPort;
    options.listening_user = &job;
  } else {
    options.requested_rank = static_cast<std::int32_t>(rank);
    options.coordinator_port = job.port_known.get();
  }
  return options;
}

// Each rank pulls the weights towards a target of its own; the mean of the gradients pulls them
// towards the targets' mean.
std::vector<float> Train(Job& job, std::uint32_t rank) {
  poseidon_cpp::Session session(OptionsOf(job, rank));
  poseidon_cpp::Model model = session.NewModel();
  poseidon_layer declared = POSEIDON_NEW(poseidon_layer);
  declared.name = "weights";
  declared.elements = kWeights;
  declared.dtype = POSEIDON_F32;
  const std::uint32_t layer = model.Declare(declared);
  model.Commit();

  const auto target = static_cast<float>(rank);  // 0, 1, 2: their mean is 1
  std::vector<float> weights(kWeights, 5.0f);
  std::vector<float> gradient(kWeights);
  for (std::uint64_t step = 0; step < 50; ++step) {
    model.BeginStep(step);
    for (std::size_t i = 0; i < kWeights; ++i) gradient[i] = weights[i] - target;
    model.Push(layer, step, poseidon_cpp::View(gradient));  // on its way to everybody
    model.Wait(layer);                                      // and back: the mean of all ranks
    for (std::size_t i = 0; i < kWeights; ++i) weights[i] -= 0.5f * gradient[i];
  }
  session.Leave();
  return weights;
}

}  // namespace

int main() {
  Job job;
  std::random_device device;
  for (std::uint8_t& byte : job.token) byte = static_cast<std::uint8_t>(device());

  std::array<std::future<std::vector<float>>, kRanks> ranks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks[rank] = std::async(std::launch::async, [&job, rank] {
      try {
        return Train(job, rank);
      } catch (...) {
        if (rank == 0) job.GiveUp(std::current_exception());
        throw;
      }
    });
  }
  try {
    const std::vector<float> first = ranks[0].get();
    bool equal = true;
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) equal = ranks[rank].get() == first && equal;
    std::printf("weight %.6f, expected 1; the ranks are %s\n", static_cast<double>(first[0]),
                equal ? "equal" : "different");
    return equal && std::abs(first[0] - 1.0f) < 1e-6f ? 0 : 1;
  } catch (const poseidon_cpp::Error& error) {
    std::fprintf(stderr, "cpp_quickstart: %s\n", error.what());
    return 1;
  }
}
