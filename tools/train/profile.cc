// SPDX-License-Identifier: Apache-2.0
// `poseidon profile`: measures a net into a profile that `poseidon plan` and the benchmarks read.
#include <iostream>
#include <memory>

#include "poseidon/base/file.h"
#include "tools/console/fail.h"
#include "tools/train/commands.h"
#include "tools/train/measure_net.h"

namespace poseidon::tools {

void AddProfile(CLI::App& app) {
  struct Flags {
    profile::MeasureOptions measure;
    std::string out;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("profile", "Measure a net's layers into a profile (JSON)");
  c->add_option("net,--model", flags->measure.model, "Net prototxt")->required();
  c->add_option("--iterations", flags->measure.iterations,
                "Iterations to time, rounded up to a multiple of 9")
      ->check(CLI::Range(1, 1 << 20));
  c->add_option("--threads", flags->measure.threads, "Compute threads")->check(CLI::Range(1, 1024));
  c->add_option("--level", flags->measure.level, "Network level");
  c->add_option("--stage", flags->measure.stages, "Network stages, comma-separated");
  c->add_option("--out", flags->out, "File to write (otherwise standard output)");
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
