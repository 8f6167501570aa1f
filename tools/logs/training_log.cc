// SPDX-License-Identifier: Apache-2.0
#include "tools/logs/training_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "poseidon/base/file.h"
#include "tools/logs/log_lines.h"

namespace poseidon::logs {
namespace {

using nlohmann::json;

// What is behind these in a line is nobody's loss or name.
constexpr std::size_t kLongestLine = std::size_t{1} << 20;

// Calls `take` with every line, without its end.
Status EachLine(const std::string& path, const std::function<void(std::string_view)>& take) {
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenToRead(path));
  std::array<char, 1 << 16> buffer{};
  std::string line;
  bool begun = false;
  for (;;) {
    const ssize_t got = ::read(file->fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DataLoss("cannot read " + path + ": " + ErrnoText(errno));
    if (got == 0) break;
    std::string_view rest(buffer.data(), static_cast<std::size_t>(got));
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      line.append(rest.substr(0, std::min(end, kLongestLine - line.size())));
      begun = true;
      if (end == rest.size()) break;
      take(line);
      line.clear();
      begun = false;
      rest.remove_prefix(end + 1);
    }
  }
  if (begun) take(line);
  return OkStatus();
}

void Set(std::string name, double value, Row* row) {
  for (auto& [known, number] : row->outputs) {
    if (known == name) {
      number = value;
      return;
    }
  }
  row->outputs.emplace_back(std::move(name), value);
}

// The rows of one kind, put together from lines as parse_log.py does: a row is whole once it has as many outputs as the first one;
// the first is whole when the next iteration begins.
class RowMaker {
 public:
  explicit RowMaker(std::vector<Row>* rows) : rows_(*rows) {}
  void Take(const std::optional<OutputFound>& output, double iteration, double seconds, double rate) {
    if (output) {
      if (!row_ || row_->iteration != iteration) {
        if (row_) rows_.push_back(*std::move(row_));
        row_ = Row{iteration, seconds, rate, {}};
      }
      Set(output->name, output->value, &*row_);
    }
    if (row_ && !rows_.empty() && row_->outputs.size() == rows_.front().outputs.size()) {
      rows_.push_back(*std::move(row_));
      row_.reset();
    }
  }
  // At the end of the log. A row that is not whole is dropped, but where it is the only one.
  void Finish() {
    if (row_ && rows_.empty()) rows_.push_back(*std::move(row_));
    // The rate is shown behind the first test and the first outputs.
    if (rows_.size() > 1) rows_[0].rate = rows_[1].rate;
  }

 private:
  std::vector<Row>& rows_;
  std::optional<Row> row_;
};

class CaffeReader {
 public:
  explicit CaffeReader(int year) : clock_(year) {}
  void Take(std::string_view line) {
    if (!begin_) {
      if (line.find("Solving") != std::string_view::npos) begin_ = clock_.TimeOf(line);
      return;
    }
    if (const auto found = IterationIn(line)) iteration_ = found;
    if (!iteration_) return;
    const auto time = clock_.TimeOf(line);
    if (!time) return;
    const double seconds = static_cast<double>(*time - *begin_) / 1e6;
    if (line.find("Iteration") != std::string_view::npos) log_.seconds.push_back(seconds);
    if (const auto loss = LossIn(line)) log_.losses.push_back({*iteration_, seconds, *loss});
    if (const auto rate = RateIn(line)) {
      rate_ = *rate;
      log_.rates.push_back({*iteration_, seconds, rate_});
    }
    train_.Take(OutputIn(line, "Train"), *iteration_, seconds, rate_);
    test_.Take(OutputIn(line, "Test"), *iteration_, seconds, rate_);
  }
  bool begun() const { return begin_.has_value(); }
  TrainingLog Finish() {
    train_.Finish();
    test_.Finish();
    return std::move(log_);
  }

 private:
  LogClock clock_;
  TrainingLog log_;
  RowMaker train_{&log_.train};
  RowMaker test_{&log_.test};
  std::optional<std::int64_t> begin_;
  std::optional<double> iteration_;
  double rate_ = std::numeric_limits<double>::quiet_NaN();
};

std::optional<double> NumberOf(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

class MetricsReader {
 public:
  // Returns false where the line is none of a metrics.jsonl.
  bool Take(std::string_view line) {
    const json metric = json::parse(line, nullptr, false);
    if (!metric.is_object() || !metric.contains("kind") || !metric["kind"].is_string()) return false;
    const std::string kind = metric["kind"];
    const auto iteration = NumberOf(metric, "iteration");
    if (!iteration) return false;
    // Files of earlier versions have the time of training alone.
    if (kind == "train" && NumberOf(metric, "seconds")) seconds_ = *NumberOf(metric, "seconds");
    if (const auto elapsed = NumberOf(metric, "elapsed")) seconds_ = *elapsed;
    if (kind == "train") TakeTrain(metric, *iteration);
    if (kind == "test") TakeTest(metric, *iteration);
    return true;
  }
  TrainingLog Finish() {
    for (std::vector<Row>* const rows : {&log_.train, &log_.test}) {
      if (rows->size() > 1) rows->front().rate = (*rows)[1].rate;
    }
    return std::move(log_);
  }

 private:
  // In Caffe's log the rate comes behind the outputs, so a row has the one of the display before.
  void TakeTrain(const json& metric, double iteration) {
    log_.seconds.push_back(seconds_);
    if (const auto loss = NumberOf(metric, "loss")) log_.losses.push_back({iteration, seconds_, *loss});
    const auto rate = NumberOf(metric, "rate");
    if (!rate) return;  // the pass after the last iteration, whose outputs Caffe does not show
    AddOutputs(metric, iteration, &log_.train);
    log_.seconds.push_back(seconds_);
    rate_ = *rate;
    log_.rates.push_back({iteration, seconds_, rate_});
  }
  void TakeTest(const json& metric, double iteration) {
    log_.seconds.push_back(seconds_);
    AddOutputs(metric, iteration, &log_.test);
  }
  void AddOutputs(const json& metric, double iteration, std::vector<Row>* rows) {
    const auto outputs = metric.find("outputs");
    if (outputs == metric.end() || !outputs->is_object() || outputs->empty()) return;
    if (rows->empty() || rows->back().iteration != iteration) rows->push_back({iteration, seconds_, rate_, {}});
    for (const auto& [name, value] : outputs->items()) {
      const json& number = value.is_array() && !value.empty() ? value.back() : value;
      if (number.is_number()) Set(name, number.get<double>(), &rows->back());
    }
  }

  TrainingLog log_;
  double seconds_ = 0;
  double rate_ = std::numeric_limits<double>::quiet_NaN();
};

// Of the file's last change: its log may have begun the year before, as Caffe's scripts do not know either.
int YearOf(const std::string& path) {
  struct stat found {};
  const std::time_t time = stat(path.c_str(), &found) == 0 ? found.st_ctime : std::time(nullptr);
  std::tm local{};
  localtime_r(&time, &local);
  return 1900 + local.tm_year;
}

}  // namespace

Result<TrainingLog> ReadTrainingLog(const std::string& path) {
  CaffeReader caffe(YearOf(path));
  MetricsReader metrics;
  bool is_metrics = false, seen = false;
  POSEIDON_RETURN_IF_ERROR(EachLine(path, [&](std::string_view line) {
    if (!seen && line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    if (!std::exchange(seen, true)) is_metrics = metrics.Take(line);
    else if (is_metrics) metrics.Take(line);
    if (!is_metrics) caffe.Take(line);
  }));
  if (is_metrics) return metrics.Finish();
  if (caffe.begun()) return caffe.Finish();
  return InvalidArgument(path + " is no log of training: it has no line '... Solving NAME' of Caffe's log and is no metrics.jsonl");
}

}  // namespace poseidon::logs
