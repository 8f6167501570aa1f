// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/engine/engine_failure.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "poseidon/base/exception.h"

namespace poseidon::caffe {
namespace {

constexpr std::int32_t kOutOfMemory = 2;  // cudaErrorMemoryAllocation: of what torch's own allocator did not ask for

// Of `text`, what is between `begin` and `end`; empty where either is missing.
std::string_view Between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t found = text.find(begin);
  if (found == std::string_view::npos) return {};
  text.remove_prefix(found + begin.size());
  const std::size_t ended = text.find(end);
  return ended == std::string_view::npos ? std::string_view() : text.substr(0, ended);
}

// "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free. ...", which goes on with advice.
Status DeviceMemoryFailure(std::string_view text) {
  const std::string_view asked = Between(text, "Tried to allocate ", ". ");
  const std::string_view has = Between(text, std::string(asked) + ". ", " is free");
  if (asked.empty() || has.empty()) return ResourceExhausted(std::string(text.substr(0, text.find('\n'))));
  return ResourceExhausted("out of memory of the device: cannot allocate " + std::string(asked) + "; " + std::string(has) +
                           " is free; expected a smaller batch_size, or fewer workers that share it");
}

}  // namespace

Status EngineFailure(const std::exception& error) {
  const auto* const engine = dynamic_cast<const c10::Error*>(&error);
  if (engine == nullptr) return ThrownStatus(error);
  std::string text = engine->what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return DeviceMemoryFailure(text);
  if (const auto* const failed = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    text = text.substr(0, text.find('\n'));  // the other lines say how to look for the cause in a debugger
    if (failed->get_error_code() != kOutOfMemory) return Unavailable("the device fails: " + text);
    return ResourceExhausted("out of memory of the device, or of the host that copies reach: " + text + "; expected fewer workers that share it");
  }
  if (std::optional<Status> missing = MissingMemory(text)) return *std::move(missing);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Internal(std::move(text));
}

}  // namespace poseidon::caffe
