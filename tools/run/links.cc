// SPDX-License-Identifier: Apache-2.0
// `poseidon links`: makes links to this program by whose names it behaves as Caffe's programs.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tools/console/fail.h"
#include "tools/console/programs.h"
#include "tools/launch/cluster_flags.h"
#include "tools/run/commands.h"

namespace poseidon::tools {
namespace {

namespace fs = std::filesystem;

// What the links lead to: the Python package's command, which became this program, or the program itself.
std::string Target() {
  const char* const command = std::getenv("POSEIDON_COMMAND");
  return command != nullptr && *command != '\0' ? command : launch::OwnProgram();
}

// Those that are commands here; `caffe` takes all commands.
std::vector<std::string> Programs(const CLI::App& app) {
  std::vector<std::string> names;
  for (const std::string& name : CaffePrograms()) {
    const auto same = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
    if (name == "caffe" || !same.empty()) names.push_back(name);
  }
  return names;
}

// All or, where one is somebody else's file, none.
void MakeLinks(const std::vector<std::string>& names, const fs::path& folder) {
  const std::string target = Target();
  std::error_code error;
  std::vector<fs::path> absent;
  for (const std::string& name : names) {
    const fs::path link = folder / name;
    if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) continue;
    if (fs::exists(fs::symlink_status(link, error))) Fail(link.string() + " exists already and is no link to " + target + "; remove it, or name another folder");
    absent.push_back(link);
  }
  fs::create_directories(folder, error);
  for (const fs::path& link : absent) {
    if (!error) fs::create_symlink(target, link, error);
    if (error) Fail("cannot make " + link.string() + ": " + error.message());
  }
}

}  // namespace

void AddLinks(CLI::App& app) {
  auto folder = std::make_shared<std::string>();
  CLI::App* const c = app.add_subcommand("links", "Make links to this program named caffe, convert_imageset and so on, which behave as those");
  c->footer("  poseidon links ~/bin\n  PATH=~/bin:$PATH caffe train -solver solver.prototxt");
  c->add_option("folder", *folder, "Folder for the links")->required();
  c->callback([&app, folder] {
    const std::vector<std::string> names = Programs(app);
    MakeLinks(names, *folder);
    std::cout << names.size() << " links in " << *folder << ":";
    for (const std::string& name : names) std::cout << " " << name;
    std::cout << std::endl;
  });
}

}  // namespace poseidon::tools
