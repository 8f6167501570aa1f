// SPDX-License-Identifier: Apache-2.0
// `poseidon draw_net`: what Caffe's draw_net.py draws, as SVG and with each layer's scheme.
#include "tools/train/draw_net.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/net/filter.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/plan_file/plan_json.h"
#include "poseidon/base/quantities.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/draw/picture_file.h"
#include "tools/profile/sweep.h"
#include "tools/train/net_picture.h"

namespace poseidon::tools {
namespace {

struct DrawFlags {
  std::string model;
  std::string output;
  std::string rankdir = "LR";
  std::string phase = "ALL";
  int workers = 0;
  std::string rate;
  std::string plan;
};

caffe::NetParameter ReadFiltered(const DrawFlags& flags) {
  caffe::NetParameter net = OrFail(caffe::ReadNet(flags.model));
  if (flags.phase == "ALL") return net;
  caffe::NetState state = net.state();
  state.set_phase(flags.phase == "TEST" ? caffe::TEST : caffe::TRAIN);
  return OrFail(caffe::FilterNet(net, state));
}

// What `poseidon plan` chooses for workers with links of that rate.
std::map<std::string, std::string> PlannedSchemes(const DrawFlags& flags, const profile::Measure& measure) {
  const Result<double> rate = ParseRate(flags.rate);
  if (!rate.ok()) FailUsage("--rate: " + rate.status().message());
  profile::MeasureOptions options;
  options.model = flags.model;
  const profile::Profile measured = OrFail(measure(options));
  const profile::Point point = OrFail(profile::Predict(measured, {}, static_cast<std::uint32_t>(flags.workers), *rate));
  std::map<std::string, std::string> schemes;
  for (std::size_t i = 0; i < measured.layers.size() && i < point.plan.layers.size(); ++i) {
    schemes[measured.layers[i].spec.name] = std::string(NameOf(point.plan.layers[i].scheme));
  }
  return schemes;
}

// What the plan.json of a run says; of layers that went together, each has their scheme.
std::map<std::string, std::string> SchemesOf(const plan_file::PinnedPlan& plan) {
  std::map<std::string, std::string> schemes;
  for (const auto& [layer, scheme] : plan.schemes) schemes[layer] = std::string(NameOf(scheme));
  for (const auto& names : plan.joined) {
    const auto first = names.empty() ? schemes.end() : schemes.find(names.front());
    if (first == schemes.end()) continue;
    const std::string scheme = first->second;
    for (const std::string& name : names) schemes[name] = scheme;
  }
  return schemes;
}

void DrawTo(const DrawFlags& flags, const profile::Measure& measure) {
  OrFailUsage(draw::CheckPictureFile(flags.output));
  const bool predicts = flags.workers > 0 && !flags.rate.empty();
  if (!predicts && (flags.workers > 0 || !flags.rate.empty())) {
    FailUsage("schemes are shown with --workers N and --rate R (10Gbit) together, or with --plan FILE");
  }
  const caffe::NetParameter net = ReadFiltered(flags);
  if (net.layer_size() == 0) Fail(flags.model + " has no layers" + (flags.phase == "ALL" ? "" : " in phase " + flags.phase));
  PictureOptions options{.rankdir = flags.rankdir, .heading = "", .schemes = {}};
  std::string heading = net.name().empty() ? flags.model : net.name();
  if (!flags.plan.empty()) {
    options.schemes = SchemesOf(OrFail(plan_file::ReadPlan(flags.plan)));
    heading += ", schemes of " + flags.plan;
  } else if (predicts) {
    options.schemes = PlannedSchemes(flags, measure);
    heading += ", schemes for " + std::to_string(flags.workers) + " workers at " + flags.rate;
  }
  options.heading = heading;
  OrFail(draw::WritePicture(DrawNet(net, options), flags.output));
}

}  // namespace

void AddDrawNet(CLI::App& app, profile::Measure measure) {
  auto flags = std::make_shared<DrawFlags>();
  CLI::App* c = app.add_subcommand("draw_net", "Draw a Caffe net");
  c->footer("  poseidon draw_net train_val.prototxt net.svg --rankdir TB --phase TRAIN\n"
            "  poseidon draw_net train_val.prototxt net.svg --workers 8 --rate 10Gbit");
  c->add_option("input_net_proto_file", flags->model, "Net, as Caffe has it")->required()->check(InputFile());
  c->add_option("output_image_file", flags->output, "Picture, *.svg, or *.png by rsvg-convert")->required();
  c->add_option("--rankdir", flags->rankdir, "Where the data go: to the right, down or up")->check(OneOf({"LR", "TB", "BT"}));
  c->add_option("--phase", flags->phase, "Layers of one phase, or of all")->check(OneOf({"TRAIN", "TEST", "ALL"}));
  c->option_defaults()->group("Schemes");
  c->add_option("--workers", flags->workers, "Shows what poseidon plan chooses for so many workers; the net is measured for it")
      ->type_name("N")
      ->check(WholeNumber(2, 1024))
      ->default_str("");
  c->add_option("--rate", flags->rate, "Rate of every worker's link, as in 10Gbit")->type_name("RATE");
  c->add_option("--plan", flags->plan, "Shows the schemes of this plan.json, as runs leave it")->type_name("FILE")->check(InputFile());
  c->callback([flags, measure = std::move(measure)] { DrawTo(*flags, measure); });
}

}  // namespace poseidon::tools
