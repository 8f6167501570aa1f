// SPDX-License-Identifier: Apache-2.0
// `poseidon plan`: what a net would do on a cluster, before there is one.
#include "tools/profile/plan_command.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontends/plan_file/plan_json.h"
#include "poseidon/base/file.h"
#include "poseidon/base/listed.h"
#include "poseidon/base/quantities.h"
#include "poseidon/base/wrapped.h"
#include "poseidon/plan/compression.h"
#include "poseidon/plan/explain.h"
#include "poseidon/plan/hosts.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/units.h"
#include "poseidon/sync/strategy.h"
#include "tools/console/fail.h"
#include "tools/console/nearest.h"
#include "tools/console/shared_flags.h"
#include "tools/console/values.h"
#include "tools/console/width.h"
#include "tools/profile/budget.h"
#include "tools/profile/published.h"
#include "tools/profile/sweep.h"

namespace poseidon::profile {
namespace {

using tools::Fail;
using tools::FailUsage;
using tools::Number;
using tools::OneOf;
using tools::Quantity;
using tools::WholeNumber;

struct Flags {
  std::string target;  // net prototxt, or a profile
  MeasureOptions measure;
  std::vector<std::string> measuring;  // the options of it that were given
  int workers = 0;
  std::string rate;
  std::string latency = "100us";
  std::string bandwidth;
  std::string copy_rate;
  std::string policy = "time";
  std::vector<std::string> schemes;
  bool sweep = false;
  bool budget = false;
  double images = 0;
  double epochs = 0;
  bool wide = false;
  std::string json;
  Setting setting;
};

template <typename T>
T ValueOrFail(Result<T> result) {
  if (!result.ok()) {
    Fail(result.status().message(), result.status().code() == StatusCode::kInvalidArgument ? tools::kExitUsage : tools::kExitFailed);
  }
  return std::move(result).value();
}

// The published profile of that name; null where there is none.
const Published* PublishedNamed(const std::string& name) {
  const auto& all = PublishedProfiles();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Published& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

void RefuseNoTarget(const std::string& target) {
  if (target == "-") return;
  std::string why = tools::InputFile()(target);
  if (why.empty()) return;
  if (target.find_first_of("./") == std::string::npos) {
    std::vector<std::string> names;
    std::string known;
    for (const Published& one : PublishedProfiles()) {
      names.push_back(one.name);
      AddListed(one.name, &known);
    }
    const std::string nearest = tools::DidYouMean(target, names);
    why = "there is no model " + target + (nearest.empty() ? ", expected a file, or one of " + known : nearest);
  }
  FailUsage(why);
}

void RefuseScript(const std::string& target) {
  if (target.ends_with(".py")) FailUsage(target + " is a script, expected the profile that poseidon profile " + target + " makes of it");
}

void CompleteSetting(Flags& flags) {
  flags.setting.latency = ValueOrFail(ParseDuration(flags.latency));
  if (!flags.copy_rate.empty()) {
    flags.setting.copy_rate = ValueOrFail(ParseRate(flags.copy_rate));
  }
  if (!flags.bandwidth.empty()) flags.setting.bandwidth = ValueOrFail(ParseRate(flags.bandwidth));
  flags.setting.options.policy = *plan::ParsePolicy(flags.policy);
  flags.setting.options = sync::PlanningUnder(ValueOrFail(sync::StrategyNamed(flags.setting.strategy)), std::move(flags.setting.options));
  for (const std::string& entry : flags.schemes) {
    const std::size_t equals = entry.rfind('=');
    const auto scheme =
        equals == std::string::npos ? std::nullopt : plan::ParseScheme(entry.substr(equals + 1));
    if (!scheme) FailUsage("--scheme " + entry + ": expected " + plan::SchemeNames("LAYER="));
    flags.setting.options.forced[entry.substr(0, equals)] = *scheme;
  }
}

std::string Sentence(const std::string& text, std::size_t width) { return Wrapped(text, width, 2) + "\n"; }

std::string Line(const std::string& what, double seconds, double speedup) {
  std::string line = "  " + what;
  line.resize(56, ' ');
  return line + Padded(plan::SecondsText(seconds), 8) + "   " + plan::FactorText(speedup) + "\n";
}

std::string PointText(const Point& point, const Profile& profile, const Setting& setting, std::size_t width) {
  const plan::Plan& plan = point.plan;
  const auto layers = LayersOf(profile);
  const auto speedup = [&](double step) {
    return step > 0 ? point.workers * plan.single_worker_seconds / step : 0;
  };
  std::string where = std::to_string(point.workers) + " workers";
  if (!plan.cluster.host_of_rank.empty()) {
    where += " on " + plan::HostsText(plan.cluster.contributors());
  }
  if (setting.servers > 0) where += " and " + std::to_string(setting.servers) + " servers";
  const std::string held = setting.bandwidth > 0 ? ", held to " + RateText(setting.bandwidth) : "";
  where += plan.cluster.factors_are_flat()
               ? held
               : " at " + RateText(point.rate) + held + " (" + plan::BytesText(static_cast<std::uint64_t>(plan.cluster.bandwidth)) +
                     "/s of payload each way)";
  where += ", latency " + plan::SecondsText(setting.latency) + ", policy " +
           std::string(NameOf(plan.policy)) + (setting.strategy == "poseidon" ? "" : ", strategy " + setting.strategy);
  std::string text = Sentence(where, width) + "\n" + PlanTable(plan, layers, {}, width) +
                     "\npredicted                                                   step   speed-up\n" +
                     Line("this plan", plan.step_seconds, plan.speedup) +
                     Line("this plan, the least possible (T*)", point.t_star_seconds, speedup(point.t_star_seconds)) +
                     Line("this plan, overlapped with backward only (T_wfbp)", plan.wfbp_seconds, speedup(plan.wfbp_seconds)) +
                     Line("key-value only, the least possible", plan.dense_step_seconds, speedup(plan.dense_step_seconds)) +
                     Line("key-value only, overlapped with backward only", point.dense_wfbp_seconds, point.dense_wfbp_speedup()) +
                     Line("computing alone, rebuilding included", plan.compute_seconds, speedup(plan.compute_seconds)) + "\n" +
                     Sentence(PlanSummary(plan), width) + Sentence(WhatBounds(plan, layers), width);
  const std::string spread = HowSpread(plan, layers);
  if (!spread.empty()) text += Sentence(spread, width);
  const std::string compressed = WhenFactorsAreCompressed(plan, plan::ZeroCompression::kAuto);
  if (!compressed.empty()) text += Sentence(compressed, width);
  if (!plan.cluster.host_of_rank.empty() && setting.copy_rate == 0) {
    text += Sentence(std::string("copies through a host's memory count as free") +
                         (plan.cluster.factors_are_flat() ? ", and so does what is sent there" : "") + "; --copy-rate 80Gbit charges them",
                     width);
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
                                     {"one_more_core", doubled.cores},
                                     {"copies", doubled.copies}};
  json["what_bounds"] = WhatBounds(point.plan, layers);
  return json;
}

void RunPlan(Flags& flags, const Measure& measure) {
  CompleteSetting(flags);
  const Published* const published = PublishedNamed(flags.target);
  if (published == nullptr) {
    RefuseScript(flags.target);
    RefuseNoTarget(flags.target);
  }
  // A profile is named *.json or comes on standard input; any other file is a net.
  const bool is_net = published == nullptr && flags.target != "-" && !flags.target.ends_with(".json");
  if (!is_net && !flags.measuring.empty()) {
    FailUsage(flags.measuring.front() + " is for a net that is measured here, and " + flags.target + " is a profile");
  }
  const bool one = flags.workers > 0 && !flags.rate.empty();
  if (!one && (!flags.sweep || flags.workers > 0 || !flags.rate.empty())) {
    FailUsage("a plan needs --workers N and --rate R (10Gbit), or --sweep alone");
  }
  if (flags.budget && !one) FailUsage("--budget needs --workers N and --rate R");
  if (flags.budget != (flags.images > 0) || flags.budget != (flags.epochs > 0)) FailUsage("--budget, --images N and --epochs N go together");
  const double rate = one ? ValueOrFail(ParseRate(flags.rate)) : 0;
  MeasureOptions options = flags.measure;
  options.model = flags.target;
  const Profile profile = ValueOrFail(is_net                 ? measure(options)
                                      : published != nullptr ? ParseProfile(published->text, published->name)
                                                             : ReadProfile(flags.target));
  nlohmann::json document = {{"format", 1},
                             {"model", profile.name},
                             {"source", profile.source},
                             {"parameters", profile.elements()},
                             {"policy", NameOf(flags.setting.options.policy)},
                             {"strategy", flags.setting.strategy},
                             {"latency_seconds", flags.setting.latency},
                             {"goodput", flags.setting.goodput},
                             {"bandwidth", flags.setting.bandwidth},
                             {"servers", flags.setting.servers},
                             {"per_host", flags.setting.per_host},
                             {"lanes", flags.setting.lanes},
                             {"copy_rate", flags.setting.copy_rate}};
  const std::size_t width = flags.wide ? std::string::npos : tools::OutputWidth();
  std::string text = Heading(profile, width);
  if (one) {
    const Point point = ValueOrFail(
        Predict(profile, flags.setting, static_cast<std::uint32_t>(flags.workers), rate));
    text += PointText(point, profile, flags.setting, width);
    document["prediction"] = PredictionJson(point, profile);
    if (flags.budget) {
      const std::vector<Cost> costs = CostsOf(point, profile, flags.setting, flags.images, flags.epochs);
      text += "\n" + BudgetText(costs, profile, flags.images, flags.epochs, width) +
              Sentence(WhatWouldHelp(point.plan, LayersOf(profile)), width);
      document["budget"] = BudgetJson(costs, flags.images, flags.epochs);
    }
  }
  if (flags.sweep) {
    const Sweep sweep = ValueOrFail(RunSweep(profile, flags.setting));
    text += "\n" + SweepText(sweep, profile, width);
    document["sweep"] = SweepJson(sweep, profile);
  }
  std::cout << text << std::flush;
  if (flags.json.empty()) return;
  const std::string json =
      document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (const Status s = WriteFileAtomically(json, flags.json); !s.ok()) Fail(s.message());
}

}  // namespace

std::string Heading(const Profile& profile, std::size_t width) {
  std::uint64_t bytes = 0;
  for (const Layer& layer : profile.layers) bytes += layer.spec.bytes();
  return Sentence(profile.name + ": " + std::to_string(profile.elements()) + " parameters (" +
         plan::BytesText(bytes) + ") in " + std::to_string(profile.layers.size()) + " layers and " +
         std::to_string(profile.tensor_count()) + " tensors, batch " +
         std::to_string(profile.batch) + " per worker, " +
         plan::SecondsText(profile.step_seconds()) + " per step on one worker (" + profile.source +
         ")", width);
}

void AddMeasureFlags(CLI::App& command, MeasureOptions& options) {
  command.add_option("--iterations", options.iterations, "Iterations to time a net for, rounded up to a multiple of 9")
      ->type_name("N")
      ->check(WholeNumber(1, 1 << 20));
  tools::AddThreadsFlag(command, options.threads);
  tools::AddStateFlags(command, options.level, options.stages);
}

void AddPlan(CLI::App& app, Measure measure) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("plan", "Predict a model's step on a cluster, layer by layer");
  c->footer("  poseidon plan alexnet --workers 8 --rate 10Gbit\n  poseidon plan net.prototxt --workers 4 --rate 1Gbit --sweep\n"
            "  poseidon plan vgg19 --workers 8 --rate 10G --budget --images 1.3e6 --epochs 74");
  c->add_option("target", flags->target,
                "A model with a published profile, by its name; a profile, *.json, or - for standard input; or a net of Caffe's, "
                "which is measured here")
      ->required();
  c->option_defaults()->group("Cluster");
  c->add_option("--workers", flags->workers, "Number of workers")->type_name("N")->check(WholeNumber(1, 1024))->default_str("");
  c->add_option("--rate", flags->rate, "Rate of every worker's link, as in 10Gbit, 10G, 400Mbit or 2.5Gbps")
      ->type_name("RATE")
      ->check(Quantity(ParseRate));
  c->add_option("--bandwidth", flags->bandwidth, "What a worker may use of its link, as poseidon train --bandwidth has it")
      ->type_name("RATE")
      ->check(Quantity(ParseRate));
  c->add_option("--latency", flags->latency, "Time of a message one way, as in 100us")->type_name("TIME")->check(Quantity(ParseDuration));
  c->add_option("--servers", flags->setting.servers, "Number of dedicated servers; with 0 the workers keep the shards")
      ->type_name("N")
      ->check(WholeNumber(0, 1024));
  c->add_option("--lanes", flags->setting.lanes,
                "Threads of the network of every worker, each with connections of its own; without it as many as the link and the cores need")
      ->type_name("N")
      ->check(WholeNumber(1, plan::kMaxLanes));
  c->add_option("--per-host", flags->setting.per_host,
                "Workers on a host, which combine through its memory first and share its link and cores")
      ->type_name("N")
      ->check(WholeNumber(1, 1024));
  c->add_option("--copy-rate", flags->copy_rate,
                "Rate at which a host's memory copies, with --per-host, as in 80Gbit; without it copies are free")
      ->type_name("RATE")
      ->check(Quantity(ParseRate));
  c->add_option("--goodput", flags->setting.goodput, "Share of the rate that payload gets")
      ->type_name("SHARE")
      ->check(Number(0.01, 1.0));
  c->add_flag("--sweep", flags->sweep, "Also 2 to 64 workers at 1 to 100 Gbit/s");
  c->option_defaults()->group("Budget");
  c->add_flag("--budget", flags->budget, "Also the days, machine-hours and bytes of a whole training");
  c->add_option("--images", flags->images, "Images of the data set")->type_name("N")->check(Number(1, 1e15))->default_str("");
  c->add_option("--epochs", flags->epochs, "Passes over the data set")->type_name("N")->check(Number(1e-6, 1e9))->default_str("");
  c->option_defaults()->group("Plan");
  c->add_option("--policy", flags->policy, "What the plan makes least: the time of a step, or its bytes")
      ->check(OneOf({"time", "bytes"}));
  c->add_option("--strategy", flags->setting.strategy, "How layers are scheduled: Poseidon's way, or that of a published system")
      ->check(OneOf(sync::StrategyNames()));
  c->add_option("--scheme", flags->schemes, plan::SchemeNames("LAYER=") + ": how this layer goes; repeatable")
      ->type_name("LAYER=SCHEME")
      ->allow_extra_args(false);
  c->add_option("--json", flags->json, "File to write all of it to")->type_name("FILE")->check(tools::OutputFile());
  c->add_flag("--wide", flags->wide, "One line a layer, however long");
  c->option_defaults()->group("Measuring a net");
  AddMeasureFlags(*c, flags->measure);
  c->callback([flags, c, measure = std::move(measure)] {
    for (const char* name : {"--iterations", "--threads", "--level", "--stage"}) {
      if (c->count(name) > 0) flags->measuring.emplace_back(name);
    }
    RunPlan(*flags, measure);
  });
}

}  // namespace poseidon::profile
