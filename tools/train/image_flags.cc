// SPDX-License-Identifier: Apache-2.0
#include "tools/train/image_flags.h"

#include "tools/console/shared_flags.h"

namespace poseidon::tools {
namespace {

caffe::MeanPixels MeanIn(const ImageFlags& flags) {
  if (!flags.mean.empty() && !flags.mean_value.empty())
    FailUsage("both --mean and --mean-value are given, expected one");
  if (!flags.mean.empty()) return OrFail(caffe::ReadMeanPixels(flags.mean));
  const std::vector<float> values = NumbersIn<float>(flags.mean_value, "--mean-value");
  return {.shape = {static_cast<std::int64_t>(values.size()), 1, 1}, .values = values};
}

}  // namespace

void AddImageFlags(CLI::App& command, ImageFlags& flags) {
  command.add_option("--model,--model_def", flags.model, "Net for deployment")
      ->type_name("PROTOTXT")
      ->check(InputFile());
  command.add_option("--weights,--pretrained_model", flags.weights, "Trained .caffemodel or .caffemodel.h5")
      ->type_name("FILE")
      ->check(SnapshotFiles());
  command.add_option("--mean,--mean_file", flags.mean, "Mean image, .binaryproto or .npy")
      ->type_name("FILE")
      ->check(InputFile());
  command.add_option("--mean-value", flags.mean_value, "Mean of each channel instead, blue, green, red")
      ->type_name("B,G,R");
  command.add_option("--raw_scale", flags.raw_scale, "Times pixels from 0 to 1, before the mean is subtracted")
      ->type_name("X")
      ->check(Number(-1e9, 1e9));
  command.add_option("--input_scale", flags.input_scale, "Times what is left then")
      ->type_name("X")
      ->check(Number(-1e9, 1e9));
  command
      .add_option("--channel_swap", flags.channel_swap,
                  "Channels of the net's input among red, green, blue; without it 2,1,0")
      ->type_name("R,G,B");
  command.add_flag("--gpu", flags.gpu, "Compute on the first GPU");
  AddThreadsFlag(command, flags.threads);
}

NetFlags NetOf(const ImageFlags& flags, const std::string& command) {
  if (flags.model.empty() || flags.weights.empty())
    FailUsage("--model and --weights are both needed (see poseidon " + command + " --help)");
  return {.model = flags.model, .weights = flags.weights, .phase = "TEST", .gpu = flags.gpu ? "0" : "", .threads = flags.threads};
}

caffe::InputOptions InputOf(const ImageFlags& flags) {
  caffe::InputOptions input;
  input.raw_scale = flags.raw_scale;
  input.input_scale = flags.input_scale;
  input.channel_swap = NumbersIn<int>(flags.channel_swap, "--channel_swap");
  input.mean = MeanIn(flags);
  return input;
}

}  // namespace poseidon::tools
