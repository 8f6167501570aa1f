// SPDX-License-Identifier: Apache-2.0
// Any bytes, cut anywhere, for any number of words: they are refused, or every path expands them to the same words,
// which compress to no more bytes (a word that a bitmap names may be zero) and expand again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/factors/zero_compression.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace poseidon;
  using namespace poseidon::factors;
  if (size < 3) return 0;
  const std::size_t bytes = kWordBytes * (1u + input[0] + 256u * (input[1] & 3u));
  const std::size_t cut = 1 + input[2];
  const ConstBytes compressed(reinterpret_cast<const std::byte*>(input) + 3, size - 3);
  std::vector<ByteBuffer> expanded;
  for (const CompressionPath path : CompressionPaths()) {
    ByteBuffer out(bytes);  // of just the size, so that a write beyond it is found
    Expander expander(out, compressed.size(), path);
    bool ok = !compressed.empty();
    for (std::size_t at = 0; ok && at < compressed.size(); at += cut) {
      // In memory of its own, so that a read beyond it is found.
      const auto piece = compressed.subspan(at, std::min(cut, compressed.size() - at));
      const ByteBuffer own(piece.begin(), piece.end());
      ok = expander.Take(own).ok();
    }
    POSEIDON_CHECK(!ok || expander.expanded() == bytes, "bytes that are not all were accepted");
    expanded.push_back(ok ? out : ByteBuffer{});
    POSEIDON_CHECK(expanded.back() == expanded.front(), "two paths differ");
  }
  if (expanded.front().empty()) return 0;
  ByteBuffer again(compressed.size());
  const auto count = Compress(expanded.front(), again);
  POSEIDON_CHECK(count.has_value(), "words became more bytes than they were");
  ByteBuffer out(bytes);
  Expander expander(out, *count);
  POSEIDON_CHECK(expander.Take(ConstBytes(again).first(*count)).ok() && out == expanded.front(), "words changed");
  return 0;
}
