// SPDX-License-Identifier: Apache-2.0
// The bounds of a replayed job for schemes that are known, without playing it: what poseidon_replay says of them
// in its summary, for results that were recorded before the formulas changed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/replay/program.h"
#include "benchmarks/replay/rules.h"
#include "benchmarks/replay/scaled_model.h"
#include "poseidon/base/quantities.h"
#include "poseidon/plan/schemes.h"

namespace poseidon::replay {
namespace {

struct Options {
  std::string profile;
  double scale = 1;
  std::uint16_t workers = 2;
  std::uint16_t per_host = 1;
  std::string mode = "poseidon";
  Wishes wishes;
  std::vector<std::string> layer_schemes;
  std::string rate;
  std::uint64_t steps = 20;
  std::uint64_t warm_up = 5;
  double jitter = 0;
  double straggler = 1;
};

Result<plan::Plan> PlanOf(const Options& options, const ScaledModel& model) {
  std::map<std::string, plan::Scheme> schemes;
  for (const std::string& entry : options.layer_schemes) {
    const std::size_t equals = entry.rfind('=');
    const auto scheme =
        equals == std::string::npos ? std::nullopt : plan::ParseScheme(entry.substr(equals + 1));
    const bool fits = scheme && std::any_of(model.layers.begin(), model.layers.end(), [&](const ScaledLayer& layer) {
      return layer.spec.name == entry.substr(0, equals) && plan::RowOf(*scheme).applies(layer.spec);
    });
    if (!fits) {
      return InvalidArgument("--layer-scheme " + entry + ": expected " + plan::SchemeNames("LAYER=") +
                             " with a layer of the profile" +
                             (options.mode == "ps-2017" ? ", one that is not cut into pairs," : "") +
                             " that the scheme applies to");
    }
    schemes[entry.substr(0, equals)] = *scheme;
  }
  plan::Plan plan;
  plan.cluster.workers = options.workers;
  for (std::uint32_t r = 0; options.per_host > 1 && r < options.workers; ++r) {
    plan.cluster.host_of_rank.push_back(r / options.per_host);
  }
  for (const ScaledLayer& layer : model.layers) {
    const auto given = schemes.find(layer.spec.name);
    plan.layers.emplace_back().scheme = given != schemes.end() ? given->second : plan::kDense;
  }
  return plan;
}

Status Run(const Options& options) {
  POSEIDON_ASSIGN_OR_RETURN(const Mode mode, ModeNamed(options.mode));
  POSEIDON_ASSIGN_OR_RETURN(const profile::Profile profile, profile::ReadProfile(options.profile));
  POSEIDON_ASSIGN_OR_RETURN(const double rate, ParseRate(options.rate));
  POSEIDON_ASSIGN_OR_RETURN(const ScaledModel model,
                            AsModeSeesIt(options.wishes, mode, Scale(profile, options.scale), options.workers,
                                         PairElements(kPairMib, options.scale)));
  POSEIDON_ASSIGN_OR_RETURN(const plan::Plan plan, PlanOf(options, model));
  const ComputeTimes times(model, {options.workers, options.jitter, options.straggler});
  const Bounds bounds = BoundsOf(model, times, plan, options.workers, PayloadRate(rate), options.warm_up, options.steps);
  std::uint64_t most = 0;
  for (const auto& layers : TrafficOf(model, plan, options.workers)) most = std::max(most, SentOf(layers));
  const nlohmann::json line = {
      {"t_star", bounds.least}, {"t_wfbp", bounds.wait_free}, {"payload_bytes_per_step", most}};
  std::printf("%s\n", line.dump().c_str());
  return OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Prints the bounds of a replayed job", "poseidon_bounds");
  app.add_option("--profile", options.profile, "JSON profile, - for standard input")->required();
  app.add_option("--scale", options.scale, "sizes divided by this")->check(CLI::Range(1.0, 1e6));
  app.add_option("--workers", options.workers)->check(CLI::Range(1, 1024));
  app.add_option("--per-host", options.per_host, "workers that combine first")->check(CLI::Range(1, 1024));
  app.add_option("--mode", options.mode, "poseidon, wfbp, p3, dear, ps-2017 or dense");
  app.add_option("--policy", options.wishes.policy, "what decides which layers ps-2017 cuts into pairs")
      ->check(CLI::IsMember({"time", "bytes"}));
  app.add_option("--scheme", options.wishes.scheme, "the same, for every layer")
      ->check(SchemeFlag());
  app.add_option("--layer-scheme", options.layer_schemes,
                 plan::SchemeNames("LAYER=") + ", repeatable; whole gradients else")
      ->allow_extra_args(false);
  app.add_option("--rate", options.rate, "a worker's, 1Gbit")->required();
  app.add_option("--steps", options.steps)->check(CLI::Range(1, 100000));
  app.add_option("--warm-up", options.warm_up);
  app.add_option("--jitter", options.jitter)->check(CLI::Range(0.0, 0.5));
  app.add_option("--straggler", options.straggler)->check(CLI::Range(0.1, 10.0));
  return RunProgram(app, argc, argv, [&] { return Run(options); });
}

}  // namespace
}  // namespace poseidon::replay

int main(int argc, char** argv) { return poseidon::replay::Main(argc, argv); }
