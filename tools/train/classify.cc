// SPDX-License-Identifier: Apache-2.0
// `poseidon classify`: what a trained net takes images for. Our command line, that of Caffe's example in C++, and that of its
// python/classify.py.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "frontends/caffe/data/image_file.h"
#include "frontends/caffe/data/image_input.h"
#include "frontends/caffe/data/npy_file.h"
#include "frontends/caffe/solver/classifier.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/draw/picture_file.h"
#include "tools/train/classify_picture.h"
#include "tools/train/commands.h"
#include "tools/train/image_flags.h"
#include "tools/train/net_flags.h"

namespace poseidon::tools {
namespace {

namespace fs = std::filesystem;

struct ClassifyFlags {
  std::vector<std::string> places;
  ImageFlags image;
  std::string labels, images_dim, picture, extension = "jpg";
  bool ten_crops = false, centre_only = false, json = false;
  int top = 5;
};

// A command line in any of the three forms.
struct Classification {
  NetFlags net;
  std::vector<std::string> images, labels;
  caffe::InputOptions input;
  bool as_stored = false;  // images are decoded as Caffe's example decodes them: as they are stored, and then converted
  std::string npy;  // where the scores go; empty: they are printed
};

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  if (!file.eof() || lines.empty()) Fail("cannot read labels from " + path + ", expected one a line");
  return lines;
}

void RefuseUnreadable(const CLI::Validator& check, std::string path) {
  if (const std::string why = check(path); !why.empty()) FailUsage(why);
}

// deploy.prototxt network.caffemodel mean.binaryproto labels.txt image
bool IsOfExample(const ClassifyFlags& flags) { return flags.places.size() == 5 && flags.places[0].ends_with(".prototxt"); }
// image-or-folder scores.npy
bool IsOfPython(const ClassifyFlags& flags) { return flags.places.size() == 2 && flags.places[1].ends_with(".npy"); }

std::vector<std::string> ImagesIn(const std::string& path, const std::string& extension) {
  std::error_code error;
  if (path.ends_with(".npy")) FailUsage(path + " is an array, expected an image or a folder of images");
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> images;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == "." + extension) images.push_back(entry->path().string());
  }
  if (error || images.empty()) Fail("folder " + path + " has no images with the ending ." + extension);
  std::sort(images.begin(), images.end());
  return images;
}

caffe::ImageSize SizeIn(const std::string& text) {
  const std::vector<int> sides = NumbersIn<int>(text, "--images-dim");
  if (sides.size() != 2 || std::min(sides[0], sides[1]) < 1 || std::max(sides[0], sides[1]) > 1 << 14) {
    FailUsage("--images-dim is '" + text + "', expected height,width, each from 1 to 16384");
  }
  return {sides[0], sides[1]};
}

Classification ReadClassification(ClassifyFlags flags) {
  Classification made;
  made.images = flags.places;
  if (IsOfExample(flags)) {
    flags.image.model = flags.places[0];
    flags.image.weights = flags.places[1];
    flags.image.mean = flags.places[2];
    flags.labels = flags.places[3];
    made.images = {flags.places[4]};
    made.as_stored = true;
    for (const std::string& path : {flags.image.model, flags.image.mean, flags.labels}) {
      RefuseUnreadable(InputFile(), path);
    }
    RefuseUnreadable(SnapshotFiles(), flags.image.weights);
  } else if (IsOfPython(flags)) {
    made.images = ImagesIn(flags.places[0], flags.extension);
    made.npy = flags.places[1];
    flags.ten_crops = !flags.centre_only;
    if (flags.images_dim.empty()) flags.images_dim = "256,256";
  }
  if (made.images.empty()) FailUsage("there is no image (see poseidon classify --help)");
  made.net = NetOf(flags.image, "classify");
  if (flags.ten_crops && flags.centre_only) FailUsage("both --oversample and --center_only are given, expected one");
  made.input = InputOf(flags.image);
  made.input.ten_crops = flags.ten_crops;
  const bool crops = flags.ten_crops || flags.centre_only || !flags.images_dim.empty();
  if (crops) made.input.scaled = SizeIn(flags.images_dim.empty() ? "256,256" : flags.images_dim);
  else made.input.mean = caffe::ValuePerChannel(made.input.mean);  // as the example in C++ does
  if (!flags.labels.empty()) made.labels = LinesOf(flags.labels);
  return made;
}

// Calls `take` with the scores of every image, in order.
template <typename Take>
void ScoreAll(const Classification& what, const Take& take) {
  const std::unique_ptr<caffe::Net> net = BuildNet(what.net);
  LoadWeights(what.net, net.get());
  caffe::Classifier classifier = OrFail(caffe::Classifier::Make(net.get()));
  const caffe::ImageInput input = OrFail(caffe::ImageInput::Make(what.input, classifier.input()));
  const caffe::Channels channels = what.as_stored ? caffe::Channels::kAsStored : input.channels();
  caffe::Image image;
  std::vector<float> rows;
  for (const std::string& path : what.images) {
    if (const Status read = caffe::ReadImageFile(path, channels, {}, &image); !read.ok()) Fail(read.message());
    if (what.as_stored) caffe::ConvertChannels(classifier.input().channels, &image);
    if (const Status applied = input.Apply(image, &rows); !applied.ok()) Fail(path + ": " + applied.message());
    const std::vector<float> scores = OrFail(classifier.Score(rows));
    if (!what.labels.empty() && what.labels.size() != scores.size()) {
      Fail("there are " + std::to_string(what.labels.size()) + " labels and the net has " + std::to_string(scores.size()) + " outputs, expected as many");
    }
    take(path, scores);
  }
}

std::string LabelOf(const Classification& what, std::size_t place) {
  return what.labels.empty() ? std::to_string(place) : what.labels[place];
}

// `picture` is an SVG or PNG file to write as well; empty: none.
void PrintText(const Classification& what, int top, const std::string& picture) {
  std::vector<ClassifiedImage> images;
  ScoreAll(what, [&](const std::string& path, const std::vector<float>& scores) {
    ClassifiedImage shown{.name = path, .file = {}, .classes = {}};
    if (!picture.empty()) OrFail(caffe::ReadFileBytes(path, &shown.file));
    std::cout << "---------- Prediction for " << path << " ----------\n";
    for (const std::size_t place : caffe::TopPlaces(scores, static_cast<std::size_t>(top))) {
      char score[32];
      std::snprintf(score, sizeof score, "%.4f", static_cast<double>(scores[place]));
      std::cout << score << " - \"" << LabelOf(what, place) << "\"\n";
      shown.classes.push_back({LabelOf(what, place), static_cast<double>(scores[place])});
    }
    std::cout << std::flush;
    if (!picture.empty()) images.push_back(std::move(shown));
  });
  if (picture.empty()) return;
  OrFail(draw::WritePicture(ClassifyPicture(images), picture));
}

void PrintJson(const Classification& what, int top) {
  nlohmann::json all = nlohmann::json::array();
  ScoreAll(what, [&](const std::string& path, const std::vector<float>& scores) {
    nlohmann::json predictions = nlohmann::json::array();
    for (const std::size_t place : caffe::TopPlaces(scores, static_cast<std::size_t>(top))) {
      predictions.push_back({{"class", place}, {"label", LabelOf(what, place)}, {"score", scores[place]}});
    }
    all.push_back({{"image", path}, {"predictions", predictions}});
  });
  std::cout << all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

void WriteScores(const Classification& what) {
  std::cout << "CPU mode\nClassifying " << what.images.size() << " inputs." << std::endl;
  const auto start = std::chrono::steady_clock::now();
  caffe::NpyArray array;
  ScoreAll(what, [&](const std::string&, const std::vector<float>& scores) {
    array.shape = {static_cast<std::int64_t>(what.images.size()), static_cast<std::int64_t>(scores.size())};
    array.values.insert(array.values.end(), scores.begin(), scores.end());
  });
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  std::cout << "Done in " << seconds << " s.\nSaving results into " << what.npy << std::endl;
  if (const Status written = caffe::WriteNpy(array, what.npy); !written.ok()) Fail(written.message());
}

}  // namespace

void AddClassify(CLI::App& app) {
  auto flags = std::make_shared<ClassifyFlags>();
  CLI::App* c = app.add_subcommand("classify", "Say what a trained net takes images for");
  c->footer("  poseidon classify --model deploy.prototxt --weights net.caffemodel cat.jpg\n"
            "  poseidon classify net.prototxt net.caffemodel m.binaryproto names.txt a.jpg\n"
            "  poseidon classify --model_def net.prototxt --pretrained_model net.caffemodel \\\n"
            "    cat.jpg scores.npy");
  c->add_option("images", flags->places, "Images, JPEG or PNG; or what Caffe's two programs take, as below");
  AddImageFlags(*c, flags->image);
  c->add_option("--labels", flags->labels, "Names of the classes, one a line")->type_name("FILE")->check(InputFile());
  c->add_flag("--oversample", flags->ten_crops, "Mean over ten crops: corners, centre and these mirrored");
  c->add_flag("--center_only", flags->centre_only, "The centre crop alone");
  c->add_option("--images-dim", flags->images_dim,
                "Size to which an image is scaled before crops; without crops it is the net's")
      ->type_name("H,W");
  c->add_option("--top", flags->top, "Number of classes to print")->type_name("N")->check(WholeNumber(1, 1 << 30));
  c->add_flag("--json", flags->json, "Print JSON");
  c->add_option("--picture", flags->picture, "Draw the images and their classes into this file, an .svg or .png")
      ->type_name("FILE")
      ->check(OutputFile());
  c->add_option("--ext", flags->extension, "Ending of the images in a folder")->type_name("NAME");
  c->callback([flags] {
    if (!flags->picture.empty()) OrFailUsage(draw::CheckPictureFile(flags->picture));
    const Classification what = ReadClassification(*flags);
    if (!flags->picture.empty() && (flags->json || !what.npy.empty())) FailUsage("--picture is drawn beside printed lines alone");
    if (!what.npy.empty()) WriteScores(what);
    else if (flags->json) PrintJson(what, flags->top);
    else PrintText(what, flags->top, flags->picture);
  });
}

}  // namespace poseidon::tools
