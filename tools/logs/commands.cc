// SPDX-License-Identifier: Apache-2.0
#include "tools/logs/commands.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "poseidon/base/file.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/draw/picture_file.h"
#include "tools/logs/csv.h"
#include "tools/logs/training_chart.h"
#include "tools/logs/training_log.h"

namespace poseidon::logs {
namespace {

using tools::FailUsage;
using tools::InputFile;
using tools::OrFail;
using tools::OutputFile;
using tools::WholeNumber;

// ---- parse_log

struct ParseLogFlags {
  std::string log;
  std::string folder;
  std::string delimiter = ",";
  bool verbose = false;
};

void WriteRows(const std::vector<Row>& rows, const std::string& kind, const ParseLogFlags& flags) {
  const std::string path = (std::filesystem::path(flags.folder) / std::filesystem::path(flags.log).filename()).string() + "." + kind;
  if (!rows.empty()) OrFail(WriteFileAtomically(Csv(rows, flags.delimiter.front()), path));
  if (flags.verbose) std::cout << (rows.empty() ? "Not writing " + path + "; no lines to write" : "Wrote " + path) << "\n";
}

void AddParseLog(CLI::App& app) {
  auto flags = std::make_shared<ParseLogFlags>();
  CLI::App* c = app.add_subcommand("parse_log", "Make tables (CSV) of a training log");
  c->footer("  poseidon parse_log train.log .\n  poseidon parse_log run/metrics.jsonl tables --verbose");
  c->add_option("log", flags->log, "Log of Caffe or poseidon train, or a run's metrics.jsonl")->required()->check(InputFile());
  c->add_option("output_dir", flags->folder, "Folder for LOG.train and LOG.test")->required()->check(CLI::ExistingDirectory);
  c->add_flag("--verbose", flags->verbose, "Say which files are written");
  c->add_option("--delimiter", flags->delimiter, "Between columns, one character")->type_name("CHARACTER");
  c->callback([flags] {
    if (flags->delimiter.size() != 1 || flags->delimiter.find_first_of("\"\r\n") != std::string::npos) {
      FailUsage("--delimiter is '" + flags->delimiter + "', expected one character that is no quote and no line end");
    }
    const TrainingLog log = OrFail(ReadTrainingLog(flags->log));
    WriteRows(log.train, "train", *flags);
    WriteRows(log.test, "test", *flags);
  });
}

// ---- extract_seconds

void AddExtractSeconds(CLI::App& app) {
  struct Flags {
    std::string log;
    std::string output;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("extract_seconds", "List the seconds of a training log's iterations");
  c->footer("  poseidon extract_seconds train.log seconds.txt");
  c->add_option("log", flags->log, "Log of Caffe or poseidon train, or a run's metrics.jsonl")->required()->check(InputFile());
  c->add_option("output", flags->output, "File with a number a line")->required()->check(OutputFile());
  c->callback([flags] {
    std::string text;
    const TrainingLog log = OrFail(ReadTrainingLog(flags->log));
    for (const double seconds : log.seconds) {
      std::array<char, 64> line{};
      std::snprintf(line.data(), line.size(), "%f\n", seconds);
      text += line.data();
    }
    OrFail(WriteFileAtomically(text, flags->output));
  });
}

// ---- plot_training_log

void AddPlot(CLI::App& app) {
  struct Flags {
    int type = 0;
    std::string output;
    std::vector<std::string> logs;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("plot_training_log", "Draw accuracy, loss or learning rate of training logs");
  std::string types = "Number of a chart:";
  for (int type = 0; type < kChartTypes; ++type) types += " " + std::to_string(type) + " " + ChartName(type) + ",";
  types.back() = '.';
  c->footer("  poseidon plot_training_log 6 loss.svg train.log\n  poseidon plot_training_log 0 accuracy.svg run/metrics.jsonl");
  c->add_option("chart_type", flags->type, types)->required()->check(WholeNumber(0, kChartTypes - 1));
  c->add_option("output", flags->output, "Picture, *.svg, or *.png by rsvg-convert")->required();
  c->add_option("log", flags->logs, "Logs of Caffe or poseidon train, or metrics.jsonl of runs")->required()->check(InputFile());
  c->callback([flags] {
    tools::OrFailUsage(draw::CheckPictureFile(flags->output));
    OrFail(draw::WritePicture(Draw(OrFail(MakeChart(flags->type, flags->logs))), flags->output));
  });
}

}  // namespace

void AddLogCommands(CLI::App& app) {
  AddParseLog(app);
  AddExtractSeconds(app);
  AddPlot(app);
}

}  // namespace poseidon::logs
