// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_TAKE_UNTIL_H_
#define POSEIDON_BASE_TAKE_UNTIL_H_

#include <string_view>

namespace poseidon {

// Takes off `rest` what comes before the first `end`, and that; all where it is not there. Returns what came before. Thread: any.
inline std::string_view TakeUntil(std::string_view end, std::string_view* rest) {
  const std::size_t at = rest->find(end);
  const std::string_view taken = rest->substr(0, at);
  *rest = at == std::string_view::npos ? std::string_view() : rest->substr(at + end.size());
  return taken;
}

}  // namespace poseidon

#endif  // POSEIDON_BASE_TAKE_UNTIL_H_
