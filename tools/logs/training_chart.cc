// SPDX-License-Identifier: Apache-2.0
#include "tools/logs/training_chart.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "tools/logs/training_log.h"

namespace poseidon::logs {
namespace {

// In the order of Caffe's script: by the name of y, each over both x.
constexpr std::array<const char*, 4> kFields = {"Test accuracy", "Test loss", "Train learning rate", "Train loss"};

bool ByIterations(int type) { return type % 2 == 0; }

bool Names(const std::string& name, const std::vector<std::string>& words) {
  std::string lower;
  for (const char c : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return lower.find(word) != std::string::npos; });
}

std::vector<std::string> TestOutputs(const TrainingLog& log, bool loss) {
  std::vector<std::string> all, losses, accuracies;
  for (const Row& row : log.test) {
    for (const auto& [name, value] : row.outputs) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
  }
  for (const std::string& name : all) {
    const std::string last = name.substr(name.rfind('/') + 1);  // GoogLeNet has loss1/top-5
    if (Names(last, {"acc", "top"})) accuracies.push_back(name);
    else if (Names(last, {"loss"})) losses.push_back(name);
  }
  std::vector<std::string>& wanted = loss ? losses : accuracies;
  if (losses.empty() && accuracies.empty() && all.size() > (loss ? 1 : 0)) return {all[loss ? 1 : 0]};
  return wanted;
}

std::vector<draw::Series> TestSeries(int type, const TrainingLog& log) {
  std::vector<draw::Series> series;
  for (const std::string& name : TestOutputs(log, /*loss=*/type / 2 == 1)) {
    series.push_back({name, {}});
    for (const Row& row : log.test) {
      for (const auto& [output, value] : row.outputs) {
        if (output == name) series.back().points.push_back({ByIterations(type) ? row.iteration : row.seconds, value});
      }
    }
  }
  return series;
}

std::vector<draw::Series> TrainSeries(int type, const TrainingLog& log) {
  draw::Series series;
  for (const Sample& sample : type / 2 == 3 ? log.losses : log.rates) {
    series.points.push_back({ByIterations(type) ? sample.iteration : sample.seconds, sample.value});
  }
  return {series};
}

// A metrics.jsonl is called after its run, a log after itself.
std::string LabelOf(const std::string& path) {
  const std::filesystem::path file(path);
  if (file.filename() == "metrics.jsonl" && file.has_parent_path()) return file.parent_path().filename().string();
  return file.extension() == ".log" ? file.stem().string() : file.filename().string();
}

}  // namespace

std::string ChartName(int type) {
  return std::string(kFields.at(static_cast<std::size_t>(type / 2))) + " vs. " + (ByIterations(type) ? "Iters" : "Seconds");
}

Result<draw::Chart> MakeChart(int type, const std::vector<std::string>& logs) {
  draw::Chart chart{.title = ChartName(type),
                    .x_label = ByIterations(type) ? "Iters" : "Seconds",
                    .y_label = kFields.at(static_cast<std::size_t>(type / 2)),
                    .legend_at_bottom = type / 2 == 0,
                    .series = {}};
  for (const std::string& path : logs) {
    POSEIDON_ASSIGN_OR_RETURN(const TrainingLog log, ReadTrainingLog(path));
    std::vector<draw::Series> found = type / 2 < 2 ? TestSeries(type, log) : TrainSeries(type, log);
    std::erase_if(found, [](const draw::Series& series) { return series.points.empty(); });
    if (found.empty()) return InvalidArgument(path + " has no " + chart.y_label + " to show");
    for (draw::Series& series : found) {
      series.name = LabelOf(path) + (found.size() > 1 ? " " + series.name : "");
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

}  // namespace poseidon::logs
