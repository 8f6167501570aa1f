// SPDX-License-Identifier: Apache-2.0
// `poseidon convert_imageset`: the images of a list become a database of Datums.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "frontends/caffe/data/convert_imageset.h"
#include "frontends/caffe/net/random.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/database_flags.h"

namespace poseidon::tools {
namespace {

struct ImagesetFlags {
  caffe::ImagesetOptions options;
  std::string backend;
  bool shuffle = false;
};

// Always the same order of a list: a database can be made again.
caffe::EpochDraw ShuffleOfTool() {
  return [](std::uint64_t epoch) -> caffe::EpochBits {
    const caffe::RandomStream stream(1, caffe::RandomPurpose::kShuffle, "convert_imageset", epoch);
    return [stream](std::uint64_t number) { return stream.Draw(number, 0)[0]; };
  };
}

void ConvertImages(ImagesetFlags& flags) {
  caffe::ImagesetOptions& options = flags.options;
  if ((options.size.height > 0) != (options.size.width > 0)) FailUsage("--resize_height and --resize_width go together, expected both or none");
  options.backend = BackendOf(flags.backend);
  options.encoded = options.encoded || !options.encode_type.empty();
  if (flags.shuffle) options.shuffle = ShuffleOfTool();
  std::uint64_t left_out = 0;
  const auto say = [](std::uint64_t count) { std::cout << "Processed " << count << " files." << std::endl; };
  const std::uint64_t written = OrFail(caffe::ConvertImageset(
      options, {.images = [](std::uint64_t count) { std::cout << "A total of " << count << " images." << std::endl; },
                .done = say,
                .left_out = [&](const std::string& why) { ++left_out, std::cerr << "poseidon: left out: " << why << std::endl; }}));
  if (written % 1000 != 0) say(written);
  if (left_out > 0) std::cout << left_out << " images are left out" << std::endl;
}

}  // namespace

void AddConvertImageset(CLI::App& app) {
  auto flags = std::make_shared<ImagesetFlags>();
  CLI::App* c = app.add_subcommand("convert_imageset", "Convert the images of a list to a database");
  c->footer("  poseidon convert_imageset --shuffle images/ train.txt train_lmdb");
  c->add_option("ROOTFOLDER", flags->options.root_folder, "Put before every path of the list, with its last slash")->required();
  c->add_option("LISTFILE", flags->options.list, "Lines with a path, a space and a label")->required()->check(InputFile());
  c->add_option("DB_NAME", flags->options.database, "Database to make")->required();
  c->add_flag("--gray", flags->options.grey, "Grey instead of colours");
  c->add_flag("--shuffle", flags->shuffle, "In an order that is random, and always the same");
  AddBackendFlag(*c, flags->backend);
  c->add_option("--resize_width", flags->options.size.width, "Width that images are scaled to")->type_name("PIXELS")->check(WholeNumber(0, 65536));
  c->add_option("--resize_height", flags->options.size.height, "Height that images are scaled to")->type_name("PIXELS")->check(WholeNumber(0, 65536));
  c->add_flag("--check_size", flags->options.check_size, "Fail where an image has another size than the first");
  c->add_flag("--encoded", flags->options.encoded, "Records hold the files' bytes, which are decoded while training");
  c->add_option("--encode_type", flags->options.encode_type, "The same, of files of this type alone")->check(OneOf({"jpg", "png"}));
  c->callback([flags] { ConvertImages(*flags); });
}

}  // namespace poseidon::tools
