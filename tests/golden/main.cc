// SPDX-License-Identifier: Apache-2.0
// poseidon_golden [--gpu | --device LIBRARY] DIR [NAME...]: runs the cases in the folders of DIR (all, or those named), prints
// one line for each and a closing count. Exit status 1 when one failed, 2 for a wrong call. --gpu: on the first GPU; --device: on the
// device that LIBRARY makes known to the engine.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/subnormals.h"
#include "tests/golden/kinds.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char* name;
  Result<CaseOutcome> (*run)(const GoldenCase& golden, const Placement& placement);
};

constexpr Kind kKinds[] = {
#define POSEIDON_GOLDEN_KIND(kind, function) {kind, function},
#include "tests/golden/kinds.inc"
#undef POSEIDON_GOLDEN_KIND
};

Result<CaseOutcome> Run(const std::string& folder, const Placement& placement) {
  POSEIDON_ASSIGN_OR_RETURN(const GoldenCase golden, ReadCase(folder));
  const std::string kind = golden.json["kind"].get<std::string>();
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const Kind& known) { return kind == known.name; });
  if (found == std::end(kKinds)) return CaseOutcome{Verdict::kUnsupported, "kind " + kind};
  if (std::string missing = MissingLayerTypes(golden); !missing.empty()) {
    return CaseOutcome{Verdict::kUnsupported, missing};
  }
  // Paths inside the prototxts are relative to the case.
  fs::current_path(folder);
  EngineGuard guard;
  return found->run(golden, placement);
}

// A wrong field in case.json throws; that is a failed case like any other.
Result<CaseOutcome> RunCaught(const std::string& folder, const Placement& placement) {
  try {
    return Run(folder, placement);
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
}

int RunAll(const Placement& placement, const std::string& dir, const std::vector<std::string>& names) {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (!fs::exists(entry.path() / "case.json")) continue;
    if (names.empty() || std::find(names.begin(), names.end(), name) != names.end()) {
      folders.push_back(fs::absolute(entry.path()).string());
    }
  }
  if (folders.empty()) {
    std::fprintf(stderr, "poseidon_golden: %s holds no such case\n", dir.c_str());
    return 2;
  }
  std::sort(folders.begin(), folders.end());
  int passed = 0;
  int failed = 0;
  int skipped = 0;
  for (const std::string& folder : folders) {
    const Result<CaseOutcome> result = RunCaught(folder, placement);
    const CaseOutcome outcome =
        result.ok() ? *result : CaseOutcome{Verdict::kFail, result.status().ToString()};
    const char* verdict = "unsupported";
    if (outcome.verdict == Verdict::kPass) verdict = "pass";
    if (outcome.verdict == Verdict::kFail) verdict = "fail";
    (outcome.verdict == Verdict::kPass   ? passed
     : outcome.verdict == Verdict::kFail ? failed
                                         : skipped)++;
    std::printf("%-24s %-11s %s\n", fs::path(folder).filename().c_str(), verdict,
                outcome.detail.c_str());
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed, %d skipped, on %s\n", passed, failed, skipped, placement.name().c_str());
  return failed == 0 ? 0 : 1;
}

int Main(std::vector<std::string> words) {
  Placement placement;
  if (!words.empty() && words.front().starts_with("--")) {
    if (words.front() == "--device" && words.size() > 1) {
      if (::dlopen(words[1].c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        std::fprintf(stderr, "poseidon_golden: %s\n", ::dlerror());
        return 2;
      }
      // Late by less than usual: many thousand operators run.
      if (auto* const set_delays = reinterpret_cast<void (*)(int, int)>(::dlsym(RTLD_DEFAULT, "late_set_delays"))) set_delays(60, 30);
      words.erase(words.begin());
    }
    words.erase(words.begin());
    const Result<Placement> found = Placement::OnAccelerator(0);
    if (!found.ok()) {
      std::fprintf(stderr, "poseidon_golden: %s\n", found.status().message().c_str());
      return 2;
    }
    placement = *found;
  }
  if (words.empty()) {
    std::fprintf(stderr, "usage: poseidon_golden [--gpu | --device LIBRARY] DIR [NAME...]\n");
    return 2;
  }
  FlushSubnormals();  // as the trainer does
  return RunAll(placement, words.front(), {words.begin() + 1, words.end()});
}

}  // namespace
}  // namespace poseidon::caffe

int main(int argc, char** argv) { return poseidon::caffe::Main({argv + 1, argv + argc}); }
