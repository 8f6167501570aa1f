// SPDX-License-Identifier: Apache-2.0
// `poseidon plan`: what a net would do on a cluster, before there is one.
#include "tools/profile/plan_command.h"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "frontends/plan_file/plan_json.h"
#include "poseidon/base/file.h"
#include "poseidon/plan/explain.h"
#include "poseidon/plan/units.h"
#include "tools/console/fail.h"
#include "tools/profile/quantities.h"
#include "tools/profile/sweep.h"

namespace poseidon::profile {
namespace {

using tools::Fail;

struct Flags {
  std::string target;  // net prototxt, or a profile
  MeasureOptions measure;
  std::vector<std::string> measuring;  // the options of it that were given
  int workers = 0;
  std::string rate;
  std::string latency = "100us";
  std::string copy_rate;
  std::string policy = "time";
  std::vector<std::string> schemes;
  bool sweep = false;
  std::string json;
  Setting setting;
};

template <typename T>
T ValueOrFail(Result<T> result) {
  if (!result.ok()) Fail(result.status().message());
  return std::move(result).value();
}

// A profile is named *.json or comes on standard input; anything else is a net, and is measured.
Profile ProfileOf(const Flags& flags, const Measure& measure) {
  if (flags.target == "-" || flags.target.ends_with(".json")) {
    if (!flags.measuring.empty()) {
      Fail(flags.measuring.front() + " is for a net that is measured here, and " + flags.target +
           " is a profile");
    }
    return ValueOrFail(ReadProfile(flags.target));
  }
  MeasureOptions options = flags.measure;
  options.model = flags.target;
  return ValueOrFail(measure(options));
}

void CompleteSetting(Flags& flags) {
  flags.setting.latency = ValueOrFail(ParseDuration(flags.latency));
  if (!flags.copy_rate.empty()) {
    flags.setting.copy_rate = ValueOrFail(ParseRate(flags.copy_rate));
  }
  flags.setting.options.policy = *plan::ParsePolicy(flags.policy);
  for (const std::string& entry : flags.schemes) {
    const std::size_t equals = entry.rfind('=');
    const auto scheme =
        equals == std::string::npos ? std::nullopt : plan::ParseScheme(entry.substr(equals + 1));
    if (!scheme) Fail("--scheme " + entry + ": expected " + plan::SchemeNames("LAYER="));
    flags.setting.options.forced[entry.substr(0, equals)] = *scheme;
  }
}

std::string Heading(const Profile& profile) {
  std::uint64_t bytes = 0;
  for (const Layer& layer : profile.layers) bytes += layer.spec.bytes();
  return profile.name + ": " + std::to_string(profile.elements()) + " parameters (" +
         plan::BytesText(bytes) + ") in " + std::to_string(profile.layers.size()) + " layers and " +
         std::to_string(profile.tensor_count()) + " tensors, batch " +
         std::to_string(profile.batch) + " per worker, " +
         plan::SecondsText(profile.step_seconds()) + " per step on one worker (" + profile.source +
         ")\n";
}

std::string Line(const std::string& what, double seconds, double speedup) {
  std::string line = "  " + what;
  line.resize(62, ' ');
  std::string time = plan::SecondsText(seconds);
  time.insert(0, time.size() < 8 ? 8 - time.size() : 0, ' ');
  return line + time + "   " + plan::FactorText(speedup) + "\n";
}

std::string PointText(const Point& point, const Profile& profile, const Setting& setting) {
  const plan::Plan& plan = point.plan;
  const auto layers = LayersOf(profile);
  const auto speedup = [&](double step) {
    return step > 0 ? point.workers * plan.single_worker_seconds / step : 0;
  };
  std::string text = std::to_string(point.workers) + " workers";
  if (!plan.cluster.host_of_rank.empty()) {
    text += " on " + std::to_string(plan.cluster.contributors()) + " hosts";
  }
  if (setting.servers > 0) text += " and " + std::to_string(setting.servers) + " servers";
  text +=
      " at " + RateText(point.rate) + " (" +
      plan::BytesText(static_cast<std::uint64_t>(plan.cluster.bandwidth)) +
      "/s of payload each way), latency " + plan::SecondsText(setting.latency) + ", policy " +
      std::string(NameOf(plan.policy)) + "\n\n" + PlanTable(plan, layers) +
      "\npredicted                                                         step   speed-up over "
      "one worker\n" +
      Line("this plan", plan.step_seconds, plan.speedup) +
      Line("this plan, the least possible (T*)", point.t_star_seconds,
           speedup(point.t_star_seconds)) +
      Line("this plan, overlapped with backward only (T_wfbp)", plan.wfbp_seconds,
           speedup(plan.wfbp_seconds)) +
      Line("key-value only, the least possible", plan.dense_step_seconds,
           speedup(plan.dense_step_seconds)) +
      Line("key-value only, overlapped with backward only", point.dense_wfbp_seconds,
           point.dense_wfbp_speedup()) +
      Line("computing alone, rebuilding included", plan.compute_seconds,
           speedup(plan.compute_seconds)) +
      "\n" + PlanSummary(plan) + "\n" + WhatBounds(plan, layers) + "\n";
  if (!plan.cluster.host_of_rank.empty() && setting.copy_rate == 0) {
    text += "copies through a host's memory count as free; --copy-rate 80Gbit charges them\n";
  }
  return text;
}

nlohmann::json PredictionJson(const Point& point, const Profile& profile) {
  const auto layers = LayersOf(profile);
  const plan::Doubled doubled = DoubledOf(point.plan, layers);
  nlohmann::json json = PointJson(point, profile);
  json["plan"] = plan_file::PlanToJson(point.plan, layers);
  json["step_seconds_with_twice"] = {{"computing", doubled.computing},
                                     {"rebuilding", doubled.rebuilding},
                                     {"network", doubled.network},
                                     {"half_the_latency", doubled.latency},
                                     {"one_more_core", doubled.cores}};
  json["what_bounds"] = WhatBounds(point.plan, layers);
  return json;
}

void RunPlan(Flags& flags, const Measure& measure) {
  CompleteSetting(flags);
  const bool one = flags.workers > 0 && !flags.rate.empty();
  if (!one && (!flags.sweep || flags.workers > 0 || !flags.rate.empty())) {
    Fail("a plan needs --workers N and --rate R (10Gbit), or --sweep alone");
  }
  const double rate = one ? ValueOrFail(ParseRate(flags.rate)) : 0;
  const Profile profile = ProfileOf(flags, measure);
  nlohmann::json document = {{"format", 1},
                             {"model", profile.name},
                             {"source", profile.source},
                             {"parameters", profile.elements()},
                             {"policy", flags.policy},
                             {"latency_seconds", flags.setting.latency},
                             {"goodput", flags.setting.goodput},
                             {"servers", flags.setting.servers},
                             {"per_host", flags.setting.per_host},
                             {"copy_rate", flags.setting.copy_rate}};
  std::string text = Heading(profile);
  if (one) {
    const Point point = ValueOrFail(
        Predict(profile, flags.setting, static_cast<std::uint32_t>(flags.workers), rate));
    text += PointText(point, profile, flags.setting);
    document["prediction"] = PredictionJson(point, profile);
  }
  if (flags.sweep) {
    const Sweep sweep = ValueOrFail(RunSweep(profile, flags.setting));
    text += "\n" + SweepText(sweep, profile);
    document["sweep"] = SweepJson(sweep, profile);
  }
  std::cout << text << std::flush;
  if (flags.json.empty()) return;
  const std::string json =
      document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (const Status s = WriteFileAtomically(json, flags.json); !s.ok()) Fail(s.message());
}

}  // namespace

void AddPlan(CLI::App& app, Measure measure) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("plan", "Predict a net's step on a cluster, layer by layer");
  c->add_option(
       "target", flags->target,
       "Net prototxt (is measured here), or a profile: a .json file, or - for standard input")
      ->required();
  c->add_option("--workers", flags->workers, "Number of workers")->check(CLI::Range(1, 1024));
  c->add_option("--rate", flags->rate, "Rate of every worker's link: 10Gbit, 100Mbit");
  c->add_option("--latency", flags->latency, "One way: 100us");
  c->add_option("--servers", flags->setting.servers,
                "Dedicated server processes (0: workers host the shards)")
      ->check(CLI::Range(0, 1024));
  c->add_option("--per-host", flags->setting.per_host,
                "Workers on a host, which combine through its memory first and share its link and cores")
      ->check(CLI::Range(1, 1024));
  c->add_option("--copy-rate", flags->copy_rate,
                "Rate at which a host's memory copies, with --per-host: 80Gbit (without it copies are free)");
  c->add_option("--policy", flags->policy, "What the plan makes least: time or bytes")
      ->check(CLI::IsMember({"time", "bytes"}));
  c->add_option("--scheme", flags->schemes, plan::SchemeNames("LAYER=") + ", repeatable")
      ->allow_extra_args(false);
  c->add_option("--goodput", flags->setting.goodput, "Share of the rate that payload gets")
      ->check(CLI::Range(0.01, 1.0));
  c->add_flag("--sweep", flags->sweep, "Also 2 to 64 workers at 1 to 100 Gbit/s");
  c->add_option("--json", flags->json, "File to write all of it to");
  c->add_option("--iterations", flags->measure.iterations,
                "Iterations to time a net for, rounded up to a multiple of 9")
      ->check(CLI::Range(1, 1 << 20));
  c->add_option("--threads", flags->measure.threads, "Compute threads")->check(CLI::Range(1, 1024));
  c->add_option("--level", flags->measure.level, "Network level");
  c->add_option("--stage", flags->measure.stages, "Network stages, comma-separated");
  c->callback([flags, c, measure = std::move(measure)] {
    for (const char* name : {"--iterations", "--threads", "--level", "--stage"}) {
      if (c->count(name) > 0) flags->measuring.emplace_back(name);
    }
    RunPlan(*flags, measure);
  });
}

}  // namespace poseidon::profile
