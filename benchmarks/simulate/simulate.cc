// SPDX-License-Identifier: Apache-2.0
// Plays a whole training job on virtual time and prints what it found as one JSON object.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/replay/program.h"
#include "benchmarks/simulate/scene.h"
#include "poseidon/base/quantities.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/wire/frame.h"
#include "tools/profile/profile.h"

namespace poseidon::simulate {
namespace {

using nlohmann::json;

struct Flags {
  std::string profile;
  double scale = 1;
  std::uint16_t workers = 2;
  std::string rate;
  double goodput = 0.956;
  std::string latency = "50us";
  std::string mode = "poseidon";
  std::string policy;  // empty: the mode's
  std::string scheme;
  double jitter = 0;
  double straggler = 1;
  std::size_t segment = 16 * 1024;
  std::size_t chunk = 0;
  std::size_t send_buffer = 0;
  double cpu_per_byte = 0;
  double cpu_per_wake = 0;
  std::uint16_t lanes = 1;
  std::size_t shared_cores = 0;
  std::size_t computing_cores = 0;
  std::uint64_t warm_up = 3;
  std::uint64_t steps = 5;
};

Result<Scene> SceneOf(const Flags& flags, const profile::Profile& profile) {
  Scene scene;
  POSEIDON_ASSIGN_OR_RETURN(scene.mode, replay::ModeNamed(flags.mode));
  const replay::Wishes wishes{flags.policy, flags.scheme};
  POSEIDON_ASSIGN_OR_RETURN(
      scene.model, replay::AsModeSeesIt(wishes, scene.mode, replay::Scale(profile, flags.scale),
                                        flags.workers,
                                        replay::PairElements(replay::kPairMib, flags.scale)));
  POSEIDON_ASSIGN_OR_RETURN(scene.planning,
                            replay::PlanningOf(wishes, scene.mode, scene.model));
  POSEIDON_ASSIGN_OR_RETURN(const double rate, ParseRate(flags.rate));
  POSEIDON_ASSIGN_OR_RETURN(const double latency, ParseDuration(flags.latency));
  scene.unevenness = {flags.workers, flags.jitter, flags.straggler};
  scene.bytes_per_second = rate / flags.scale / 8 * flags.goodput;
  scene.latency = FromSeconds(latency + 0.5e-9);
  scene.segment_bytes = flags.segment;
  scene.costs = {flags.cpu_per_wake * 1e-6, flags.cpu_per_byte * 1e-9 / 2, flags.cpu_per_byte * 1e-9 / 2};
  scene.lanes = flags.lanes;
  scene.shared_cores = flags.shared_cores;
  scene.computing_cores = flags.computing_cores;
  if (flags.chunk > 0 || flags.send_buffer > 0) {
    scene.flow = messaging::FlowFor({scene.bytes_per_second, latency}, flags.workers - 1u);
    if (flags.chunk > 0) scene.flow->chunk_bytes = scene.flow->write_bytes = flags.chunk;
    if (flags.send_buffer > 0) scene.flow->send_buffer_bytes = flags.send_buffer;
  }
  scene.warm_up = flags.warm_up;
  scene.steps = flags.steps;
  return scene;
}

json JsonOf(const Flags& flags, const profile::Profile& profile, const Scene& scene,
            const Findings& found) {
  json schemes = json::object();
  for (std::size_t i = 0; i < found.plan.layers.size(); ++i) {
    const plan::LayerSpec& spec = scene.model.layers[i].spec;
    if (spec.factors) schemes[spec.name] = plan::NameOf(found.plan.layers[i].scheme);
  }
  json waited = json::object();
  for (std::size_t i = 0; i < found.waited_seconds.size(); ++i) {
    if (found.waited_seconds[i] > 0) {
      waited[scene.model.layers[i].spec.name] = found.waited_seconds[i];
    }
  }
  const double median = found.median_seconds();
  const double single = scene.model.step_seconds();
  return {{"model", profile.name},
          {"mode", scene.mode.strategy.name},
          {"workers", flags.workers},
          {"rate_bits_per_second", scene.bytes_per_second * flags.scale * 8 / flags.goodput},
          {"goodput", flags.goodput},
          {"latency_seconds", ToSeconds(scene.latency)},
          {"scale", flags.scale},
          {"jitter", flags.jitter},
          {"straggler", flags.straggler},
          {"segment_bytes", scene.segment_bytes},
          {"chunk_bytes", found.flow.chunk_bytes},
          {"send_buffer_bytes", found.flow.send_buffer_bytes},
          {"median_seconds", median},
          {"seconds", found.step_seconds},
          {"t_star", found.bounds.least},
          {"t_wfbp", found.bounds.wait_free},
          {"ratio", median / found.bounds.least},
          {"predicted_seconds", found.plan.step_seconds},
          {"single_worker_seconds", single},
          {"speedup", flags.workers * single / median},
          {"link_bytes_per_second", found.link.bytes_per_second},
          {"link_latency_seconds", found.link.latency_seconds},
          {"payload_bytes_per_step", found.plan.bytes_sent},
          {"wire_bytes_per_step", std::round(found.mean_bytes)},
          {"max_to_mean_bytes", found.max_to_mean},
          {"peak_to_mean", found.peak_to_mean},
          {"schemes", schemes},
          {"waited_seconds", waited},
          {"io_seconds_per_step", found.io_seconds},
          {"io_wakes_per_step", found.io_wakes},
          {"events", found.events}};
}

Status Run(const Flags& flags) {
  POSEIDON_ASSIGN_OR_RETURN(const profile::Profile profile, profile::ReadProfile(flags.profile));
  POSEIDON_ASSIGN_OR_RETURN(const Scene scene, SceneOf(flags, profile));
  const auto begin = std::chrono::steady_clock::now();
  POSEIDON_ASSIGN_OR_RETURN(const Findings found, Play(scene));
  json document = JsonOf(flags, profile, scene, found);
  document["took_seconds"] =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%s\n", document.dump().c_str());
  return OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Plays a training job of many workers on virtual time", "poseidon_simulate");
  app.add_option("--profile", flags.profile, "JSON profile, - for standard input")->required();
  app.add_option("--workers", flags.workers)->check(CLI::Range(2, 1024));
  app.add_option("--rate", flags.rate, "of every worker's link, before scaling: 10Gbit")->required();
  app.add_option("--goodput", flags.goodput, "share of the rate that our frames get")
      ->check(CLI::Range(0.01, 1.0));
  app.add_option("--latency", flags.latency, "one way: 50us");
  app.add_option("--scale", flags.scale, "sizes and rate divided by this")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--mode", flags.mode, "poseidon, wfbp, p3, dear, ps-2017 or dense");
  app.add_option("--policy", flags.policy, "instead of the mode's")
      ->check(CLI::IsMember({"time", "bytes"}));
  app.add_option("--scheme", flags.scheme, "for every fully connected layer")
      ->check(replay::SchemeFlag());
  app.add_option("--jitter", flags.jitter, "relative standard deviation of computing")
      ->check(CLI::Range(0.0, 0.5));
  app.add_option("--straggler", flags.straggler, "factor on the last rank's computing")
      ->check(CLI::Range(0.1, 10.0));
  app.add_option("--segment", flags.segment, "bytes in which connections share a port")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--chunk", flags.chunk, "bytes of a frame, instead of what the link asks for")
      ->check(CLI::Range(1u, wire::kMaxPayload));
  app.add_option("--send-buffer", flags.send_buffer,
                 "bytes a connection holds undelivered, instead of what the link asks for");
  app.add_option("--cpu-per-byte", flags.cpu_per_byte,
                 "nanoseconds of processor time that a byte takes, at both ends together: 0.6 without encryption")
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--cpu-per-wake", flags.cpu_per_wake,
                 "microseconds that the I/O thread takes each time that it is woken")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--lanes", flags.lanes, "I/O threads of every worker; 0: as many as the links need")->check(CLI::Range(0, int{plan::kMaxLanes}));
  app.add_option("--shared-cores", flags.shared_cores, "cores that all workers' I/O threads share, instead of one each");
  app.add_option("--computing-cores", flags.computing_cores,
                 "cores of a worker that compute and have no other beside them for its I/O thread");
  app.add_option("--steps", flags.steps)->check(CLI::Range(1, 100000));
  app.add_option("--warm-up", flags.warm_up)->check(CLI::Range(3, 1000));
  return replay::RunProgram(app, argc, argv, [&] { return Run(flags); });
}

}  // namespace
}  // namespace poseidon::simulate

int main(int argc, char** argv) { return poseidon::simulate::Main(argc, argv); }
