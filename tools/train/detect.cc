// SPDX-License-Identifier: Apache-2.0
// `poseidon detect`: what a trained net says of windows of images, with the command line of Caffe's python/detect.py.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "frontends/caffe/data/image_file.h"
#include "frontends/caffe/data/image_input.h"
#include "frontends/caffe/data/window_file.h"
#include "frontends/caffe/solver/classifier.h"
#include "poseidon/base/file.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/image_flags.h"

namespace poseidon::tools {
namespace {

constexpr const char* kColumns[] = {"filename", "ymin", "xmin", "ymax", "xmax"};
constexpr double kFarthestEdge = 1 << 24;

struct DetectFlags {
  ImageFlags image;
  std::string input, output, window_file, crop_mode = "list";
  int context_pad = 16;
  bool json = false;
};

struct DetectedImage {
  std::string file;
  std::vector<caffe::DetectorWindow> windows;
};

// ---- what is looked at

// The cells of a line of a CSV file, in which one in double quotes may have commas, and double quotes twice.
std::vector<std::string> CellsOf(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[i++];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += line[i];
  }
  return cells;
}

std::string Trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> LinesIn(const std::string& path) {
  std::string text;
  OrFail(caffe::ReadFileBytes(path, &text));
  std::vector<std::string> lines;
  for (std::string_view left = text; !left.empty();) {
    std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  }
  return lines;
}

// Where each of kColumns is.
std::vector<std::size_t> PlacesOfColumns(const std::string& path, const std::string& header) {
  std::vector<std::string> names = CellsOf(header);
  for (std::string& name : names) name = Trimmed(name);
  std::vector<std::size_t> places;
  for (const char* const column : kColumns) {
    const auto found = std::find(names.begin(), names.end(), column);
    if (found == names.end())
      Fail(path + ", line 1 has no column " + column + ", expected filename,ymin,xmin,ymax,xmax");
    places.push_back(static_cast<std::size_t>(found - names.begin()));
  }
  return places;
}

// A whole number, which may be written with a fraction of zero, as pandas does.
std::int64_t EdgeIn(const std::string& cell, const char* column, const std::string& where) {
  const std::string text = Trimmed(cell);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = read.ec == std::errc() && read.ptr == text.data() + text.size() &&
                        std::abs(number) <= kFarthestEdge && std::trunc(number) == number;
  if (!is_whole) Fail(where + " has '" + text.substr(0, 100) + "' for " + column + ", expected a whole number");
  return static_cast<std::int64_t>(number);
}

// The windows of an image together, images in the order in which they first come.
std::vector<DetectedImage> ReadWindowsCsv(const std::string& path) {
  const std::vector<std::string> lines = LinesIn(path);
  if (lines.empty()) Fail(path + " is empty, expected a line with filename,ymin,xmin,ymax,xmax and windows");
  const std::vector<std::size_t> places = PlacesOfColumns(path, lines[0]);
  std::vector<DetectedImage> images;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (Trimmed(lines[i]).empty()) continue;
    const std::string where = path + ", line " + std::to_string(i + 1);
    const std::vector<std::string> cells = CellsOf(lines[i]);
    if (cells.size() <= *std::max_element(places.begin(), places.end())) {
      Fail(where + " has " + std::to_string(cells.size()) + " cells, expected those of line 1");
    }
    std::int64_t edges[4];
    for (std::size_t edge = 0; edge < 4; ++edge)
      edges[edge] = EdgeIn(cells[places[edge + 1]], kColumns[edge + 1], where);
    const auto [image, is_new] = known.try_emplace(cells[places[0]], images.size());
    if (is_new) images.push_back({.file = image->first, .windows = {}});
    images[image->second].windows.push_back({.ymin = edges[0], .xmin = edges[1], .ymax = edges[2], .xmax = edges[3]});
  }
  if (images.empty()) Fail(path + " has no windows, expected some behind its first line");
  return images;
}

// Of the images that `list` names, one a line, their windows in a window file, whose boxes include their ends.
std::vector<DetectedImage> ReadListedWindows(const std::string& list, const std::string& window_file) {
  const caffe::WindowFile file = OrFail(caffe::ReadWindowFile(window_file));
  std::map<std::string, std::vector<caffe::DetectorWindow>> windows;
  for (const caffe::WindowFile::Image& image : file.images) windows[image.file];
  for (const caffe::WindowFile::Window& window : file.windows) {
    const caffe::WindowBox& box = window.box;
    windows[file.images[window.image].file].push_back(
        {.ymin = box.y1, .xmin = box.x1, .ymax = std::int64_t{box.y2} + 1, .xmax = std::int64_t{box.x2} + 1});
  }
  std::vector<DetectedImage> images;
  std::size_t line = 0;
  for (const std::string& text : LinesIn(list)) {
    ++line;
    const std::string name = Trimmed(text);
    if (name.empty()) continue;
    const auto found = windows.find(name);
    if (found == windows.end())
      Fail(list + ", line " + std::to_string(line) + ": " + name + " is not in window file " + window_file);
    images.push_back({.file = name, .windows = found->second});
  }
  if (images.empty()) Fail(list + " names no image, expected one a line");
  return images;
}

constexpr const char* kGiveWindows =
    "; give the windows: a .csv with filename,ymin,xmin,ymax,xmax, or a list of images in a .txt and their windows "
    "with --window_file";

std::vector<DetectedImage> ReadImages(const DetectFlags& flags) {
  if (flags.crop_mode == "selective_search")
    FailUsage(std::string("--crop_mode selective_search needs a MATLAB program that is not part of this") +
              kGiveWindows);
  if (flags.input.ends_with(".csv")) {
    if (!flags.window_file.empty()) FailUsage("both a .csv of windows and --window_file are given, expected one");
    return ReadWindowsCsv(flags.input);
  }
  if (!flags.input.ends_with(".txt")) FailUsage(flags.input + " is neither a .csv nor a .txt" + kGiveWindows);
  if (flags.window_file.empty()) FailUsage(flags.input + " has images without windows" + std::string(kGiveWindows));
  return ReadListedWindows(flags.input, flags.window_file);
}

// ---- looking

// Scores windows in batches of the net's own size, and hands them on in order.
class WindowScorer {
 public:
  explicit WindowScorer(caffe::Classifier* classifier) : classifier_(classifier) {}

  // `take` gets the scores of every window that was added, and what was added with it.
  template <typename Take>
  void Add(const std::string& file, const caffe::DetectorWindow& window, const std::vector<float>& row,
           const Take& take) {
    waiting_.emplace_back(&file, window);
    rows_.insert(rows_.end(), row.begin(), row.end());
    if (waiting_.size() == classifier_->batch()) Flush(take);
  }
  template <typename Take>
  void Flush(const Take& take) {
    if (waiting_.empty()) return;
    const std::vector<float> scores = OrFail(classifier_->ScoreEach(rows_));
    const std::size_t classes = scores.size() / waiting_.size();
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      const auto first = scores.begin() + static_cast<std::ptrdiff_t>(i * classes);
      take(*waiting_[i].first, waiting_[i].second,
           std::vector<float>(first, first + static_cast<std::ptrdiff_t>(classes)));
    }
    waiting_.clear();
    rows_.clear();
  }

 private:
  caffe::Classifier* const classifier_;
  std::vector<std::pair<const std::string*, caffe::DetectorWindow>> waiting_;
  std::vector<float> rows_;
};

// Calls `take` with the file, the window and the scores of each, in order.
template <typename Take>
void DetectAll(const DetectFlags& flags, const std::vector<DetectedImage>& images, const Take& take) {
  const NetFlags named = NetOf(flags.image, "detect");
  caffe::InputOptions options = InputOf(flags.image);
  options.mean = caffe::ValuePerChannel(options.mean);  // as detect.py does
  options.context_pad = flags.context_pad;
  const std::unique_ptr<caffe::Net> net = BuildNet(named);
  LoadWeights(named, net.get());
  caffe::Classifier classifier = OrFail(caffe::Classifier::Make(net.get()));
  const caffe::ImageInput input = OrFail(caffe::ImageInput::Make(options, classifier.input()));
  WindowScorer scorer(&classifier);
  caffe::Image image;
  std::vector<float> row;
  for (const DetectedImage& each : images) {
    OrFail(caffe::ReadImageFile(each.file, input.channels(), {}, &image));
    for (const caffe::DetectorWindow& window : each.windows) {
      if (const Status applied = input.ApplyWindow(image, window, &row); !applied.ok())
        Fail(each.file + ": " + applied.message());
      scorer.Add(each.file, window, row, take);
    }
  }
  scorer.Flush(take);
}

// ---- what is said

// The shortest digits that are read back as the same number.
std::string Digits(float number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string CellOf(const std::string& text) {
  if (text.find_first_of("\",\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string CsvOf(const DetectFlags& flags, const std::vector<DetectedImage>& images, std::size_t* count) {
  std::string text;
  DetectAll(flags, images,
            [&](const std::string& file, const caffe::DetectorWindow& window, const std::vector<float>& scores) {
              if ((*count)++ == 0) {
                text = "filename,ymin,xmin,ymax,xmax";
                for (std::size_t i = 0; i < scores.size(); ++i) text += ",class" + std::to_string(i);
                text += '\n';
              }
              text += CellOf(file);
              for (const std::int64_t edge : {window.ymin, window.xmin, window.ymax, window.xmax})
                text += "," + std::to_string(edge);
              for (const float score : scores) text += "," + Digits(score);
              text += '\n';
            });
  return text;
}

std::string JsonOf(const DetectFlags& flags, const std::vector<DetectedImage>& images, std::size_t* count) {
  nlohmann::json all = nlohmann::json::array();
  DetectAll(flags, images,
            [&](const std::string& file, const caffe::DetectorWindow& window, const std::vector<float>& scores) {
              ++*count;
              all.push_back({{"filename", file},
                             {"window", {window.ymin, window.xmin, window.ymax, window.xmax}},
                             {"prediction", scores}});
            });
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void Detect(const DetectFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f s.",
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return std::string(text);
  };
  const char* const ending = flags.json ? ".json" : ".csv";
  if (!flags.output.empty() && !flags.output.ends_with(ending)) {
    FailUsage("the output is " + flags.output + ", expected a " + ending +
              (flags.json ? "" : ", or a .json with --json"));
  }
  const std::vector<DetectedImage> images = ReadImages(flags);
  if (!flags.output.empty()) std::cout << "CPU mode\nLoading input..." << std::endl;
  std::size_t count = 0;
  const std::string text = flags.json ? JsonOf(flags, images, &count) : CsvOf(flags, images, &count);
  if (flags.output.empty()) {
    std::cout << text << std::flush;
    return;
  }
  std::cout << "Processed " << count << " windows in " << seconds() << std::endl;
  FileDraft draft = OrFail(FileDraft::Write(text, flags.output));
  OrFail(draft.Commit());
  std::cout << "Saved to " << flags.output << " in " << seconds() << std::endl;
}

}  // namespace

void AddDetect(CLI::App& app) {
  auto flags = std::make_shared<DetectFlags>();
  CLI::App* c = app.add_subcommand("detect", "Say what a trained net takes windows of images for");
  c->footer(
      "  poseidon detect --model deploy.prototxt --weights net.caffemodel windows.csv\n"
      "  poseidon detect --model_def net.prototxt --pretrained_model net.caffemodel \\\n"
      "    images.txt --window_file windows.txt detections.csv");
  c->add_option("input", flags->input,
                "Windows, a .csv with filename,ymin,xmin,ymax,xmax; or images, a .txt with one a line")
      ->required()
      ->check(InputFile());
  c->add_option("output", flags->output, "Their scores, a .csv; without it they are printed")->check(OutputFile());
  c->add_option("--window_file", flags->window_file, "Windows of the images of a .txt, as layer WindowData reads them")
      ->type_name("FILE")
      ->check(InputFile());
  c->add_option("--crop_mode", flags->crop_mode, "Where windows come from; selective_search is refused")
      ->check(OneOf({"list", "selective_search"}));
  c->add_option("--context_pad", flags->context_pad, "Pixels of the input that are context, on each side of a window")
      ->type_name("N")
      ->check(WholeNumber(0, 1 << 14));
  AddImageFlags(*c, flags->image);
  c->add_flag("--json", flags->json, "Print or write JSON");
  c->callback([flags] { Detect(*flags); });
}

}  // namespace poseidon::tools
