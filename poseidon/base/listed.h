// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_LISTED_H_
#define POSEIDON_BASE_LISTED_H_

#include <string>
#include <string_view>

namespace poseidon {

// A list in a sentence, "conv1, conv2, fc": puts `item` at the end of `list`, after a comma unless it is the first.
inline void AddListed(std::string_view item, std::string* list) {
  if (!list->empty()) *list += ", ";
  *list += item;
}

}  // namespace poseidon

#endif  // POSEIDON_BASE_LISTED_H_
