// SPDX-License-Identifier: Apache-2.0
// poseidon_golden DIR [NAME...]: runs the cases in the folders of DIR (all, or those named), prints
// one line for each and a closing count. Exit status 1 when one failed, 2 for a wrong call.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/golden/kinds.h"
#include "frontends/caffe/net/engine.h"
#include "frontends/caffe/net/subnormals.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char* name;
  Result<CaseOutcome> (*run)(const GoldenCase& golden);
};

constexpr Kind kKinds[] = {
#define POSEIDON_GOLDEN_KIND(kind, function) {kind, function},
#include "tests/golden/kinds.inc"
#undef POSEIDON_GOLDEN_KIND
};

Result<CaseOutcome> Run(const std::string& folder) {
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
  return found->run(golden);
}

// A wrong field in case.json throws; that is a failed case like any other.
Result<CaseOutcome> RunCaught(const std::string& folder) {
  try {
    return Run(folder);
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
}

int RunAll(const std::string& dir, const std::vector<std::string>& names) {
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
    const Result<CaseOutcome> result = RunCaught(folder);
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
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace poseidon::caffe

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: poseidon_golden DIR [NAME...]\n");
    return 2;
  }
  poseidon::caffe::FlushSubnormals();  // as the trainer does
  return poseidon::caffe::RunAll(argv[1], {argv + 2, argv + argc});
}
