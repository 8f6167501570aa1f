// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_TEXT_WORDS_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_TEXT_WORDS_H_

#include <cstddef>
#include <string_view>

// What protobuf's text form takes for names and for blanks, for those who look into a text that it refuses.
namespace poseidon::caffe {

inline bool IsOfName(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// The first place from `at` on that is not blank; the end of the text where there is none.
inline std::size_t BehindBlanks(std::string_view text, std::size_t at) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  while (at < text.size() && kBlanks.find(text[at]) != std::string_view::npos) ++at;
  return at;
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_TEXT_WORDS_H_
