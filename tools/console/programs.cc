// SPDX-License-Identifier: Apache-2.0
#include "tools/console/programs.h"

#include <algorithm>

namespace poseidon::tools {

const std::vector<std::string>& CaffePrograms() {
  static const std::vector<std::string> programs = {
      "caffe", "classify", "compute_image_mean", "convert_cifar_data", "convert_imageset", "convert_mnist_data", "detect",
      "draw_net", "extract_features", "extract_seconds", "parse_log", "partition_data", "plot_training_log",
      "upgrade_net_proto_binary", "upgrade_net_proto_text", "upgrade_solver_proto_text"};
  return programs;
}

bool SameName(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_')); });
}

std::string CommandCalledBy(std::string_view program) {
  program.remove_prefix(program.rfind('/') + 1);  // npos + 1 is 0
  if (program.ends_with(".bin")) program.remove_suffix(4);  // so Caffe's build calls them
  if (program == "classification") return "classify";  // Caffe's example in C++
  for (const std::string& name : CaffePrograms()) {
    if (name != "caffe" && SameName(name, program)) return name;
  }
  return "";
}

}  // namespace poseidon::tools
