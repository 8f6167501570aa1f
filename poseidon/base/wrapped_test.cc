// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/wrapped.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

TEST(Wrapped, CutsAtBlanksAndIndentsWhatFollows) {
  EXPECT_EQ(Wrapped("one two three", 80), "one two three");
  EXPECT_EQ(Wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(Wrapped("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(Wrapped("one two three", 12, 4, 6), "one\n    two\n    three");
  EXPECT_EQ(Wrapped("", 10, 2), "");
}

TEST(Wrapped, AWordThatIsTooLongHasALineToItself) {
  EXPECT_EQ(Wrapped("a /very/long/path b", 6), "a\n/very/long/path\nb");
  EXPECT_EQ(Wrapped("/very/long/path b", 6, 2), "/very/long/path\n  b");
}

TEST(Wrapped, CountsCharactersAndNotBytes) {
  EXPECT_EQ(Columns("\xc3\xa9t\xc3\xa9"), 3u);
  EXPECT_EQ(Wrapped("\xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9", 7), "\xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9");
}

}  // namespace
}  // namespace poseidon
