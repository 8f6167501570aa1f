// SPDX-License-Identifier: Apache-2.0
// `poseidon profile`: measures a net into a profile that `poseidon plan` and the benchmarks read.
#include <iostream>
#include <memory>

#include "poseidon/base/file.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/measure_net.h"

namespace poseidon::tools {

void AddProfile(CLI::App& app) {
  struct Flags {
    profile::MeasureOptions measure;
    std::string out;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("profile", "Measure a Caffe net's layers into a profile (JSON) for plan");
  c->footer("  poseidon profile net.prototxt --out net.json\n  poseidon plan net.json --workers 8 --rate 10Gbit");
  c->add_option("net,--model", flags->measure.model, "Net, as Caffe has it (a prototxt)")
      ->type_name("PROTOTXT")
      ->required()
      ->check(InputFile());
  profile::AddMeasureFlags(*c, flags->measure);
  c->add_option("--out", flags->out, "File to write; without it standard output")->type_name("FILE")->check(OutputFile());
  c->callback([flags] {
    const Result<profile::Profile> measured = MeasureNet(flags->measure);
    if (!measured.ok()) Fail(measured.status().message());
    const std::string text = TextOf(*measured);
    if (flags->out.empty()) {
      std::cout << text << std::flush;
    } else if (const Status s = WriteFileAtomically(text, flags->out); !s.ok()) {
      Fail(s.message());
    }
  });
}

}  // namespace poseidon::tools
