// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_WRAPPED_H_
#define POSEIDON_BASE_WRAPPED_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace poseidon {

// How many characters of a terminal `text` (UTF-8) takes, each of one column.
std::size_t Columns(std::string_view text);

// The text behind blanks, together `width` bytes, or the text alone where it has more: a cell of a table.
std::string Padded(const std::string& text, std::size_t width);

// Returns `text` in lines of at most `width` columns, cut at blanks, each after the first behind `indent` blanks. The first
// begins in column `begin`. A word that is longer than a line has one to itself. No newline at the end.
std::string Wrapped(std::string_view text, std::size_t width, std::size_t indent = 0, std::size_t begin = 0);

}  // namespace poseidon

#endif  // POSEIDON_BASE_WRAPPED_H_
