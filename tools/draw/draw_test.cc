// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tools/draw/chart.h"
#include "tools/draw/layered.h"
#include "tools/draw/svg.h"

namespace poseidon::draw {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Svg, TextIsEscapedAndBytesThatXmlDoesNotHaveAreReplaced) {
  EXPECT_EQ(Escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
  EXPECT_EQ(Escaped("Zürich ✓ 𝄞"), "Zürich ✓ 𝄞");
  EXPECT_EQ(Escaped(std::string("\x01\n\0\x7f", 4)), "????");
  // Cut, too long, a surrogate, beyond Unicode, U+FFFF.
  EXPECT_EQ(Escaped("\xc3"), "?");
  EXPECT_EQ(Escaped("\xc0\xaf"), "??");
  EXPECT_EQ(Escaped("\xed\xa0\x80"), "???");
  EXPECT_EQ(Escaped("\xf4\x90\x80\x80"), "????");
  EXPECT_EQ(Escaped("\xef\xbf\xbf"), "???");
}

// The numbers of RFC 4648.
TEST(Svg, AnImageIsPartOfTheDocument) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}};
  for (const auto& [bytes, text] : cases) {
    Svg svg(10, 10);
    svg.Image({1, 2}, 3, 4, bytes);
    EXPECT_THAT(svg.Document(), HasSubstr("xlink:href=\"data:image/png;base64," + text + "\"/>"));
  }
  Svg svg(10, 10);
  svg.Image({1, 2}, 3, 4, "\xff\xd8\xff");
  EXPECT_THAT(svg.Document(), HasSubstr("<image x=\"1\" y=\"2\" width=\"3\" height=\"4\" image-rendering=\"pixelated\" "));
  EXPECT_THAT(svg.Document(), HasSubstr("data:image/jpeg;base64,/9j/\""));
}

TEST(Ticks, AreRoundAndHoldAllValues) {
  EXPECT_THAT(Ticks(0, 1, 5), ElementsAre(0, DoubleNear(0.2, 1e-12), DoubleNear(0.4, 1e-12), DoubleNear(0.6, 1e-12),
                                          DoubleNear(0.8, 1e-12), DoubleNear(1, 1e-12)));
  EXPECT_THAT(Ticks(3, 997, 4), ElementsAre(0, 500, 1000));
  EXPECT_THAT(Ticks(-7, 2, 3), ElementsAre(-10, -5, 0, 5));
  for (const auto& [least, most] : {std::pair{5.0, 5.0}, {0.0, 0.0}, {-1e-300, 1e-300}, {1e15, 1e15 + 1}, {-1e308, 1e308},
                                    {1.0, 1 + 1e-16}, {0.00992565, 0.01}, {-3.0, -3.0}, {1e308, 1e308}}) {
    const std::vector<double> ticks = Ticks(least, most, 6);
    ASSERT_GE(ticks.size(), 2u) << least;
    EXPECT_LE(ticks.size(), 20u) << least;
    EXPECT_LE(ticks.front(), least);
    EXPECT_GE(ticks.back(), most - std::fabs(most) * 1e-9);
    for (std::size_t i = 1; i < ticks.size(); ++i) EXPECT_GT(ticks[i], ticks[i - 1]) << least;
  }
}

TEST(Chart, HasLinesTicksAndALegendAndLeavesOutWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = Draw({"Train loss vs. Iters", "Iters", "Train loss", false,
                                {{"one", {{0, 2}, {100, nan}, {200, 1}}}, {"<two>", {{0, 1}, {200, 0.5}}}}});
  EXPECT_THAT(svg, HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"500\""));
  EXPECT_THAT(svg, HasSubstr(">Train loss vs. Iters</text>"));
  EXPECT_THAT(svg, HasSubstr(">200</text>"));
  EXPECT_THAT(svg, HasSubstr(">&lt;two&gt;</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(Draw({"empty", "x", "y", false, {{"", {{nan, 1}}}}}), Not(HasSubstr("nan")));
}

// A diamond, a way past it, and a second source.
TEST(LayOut, RanksFollowTheLongestPathAndNothingOverlaps) {
  const std::vector<NodeSize> nodes(6, NodeSize{10, 40});
  const Layout layout = LayOut(nodes, {{0, 4}, {0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}, {5, 4}}, 20, 15);
  ASSERT_EQ(layout.centres.size(), 6u);
  EXPECT_EQ(layout.centres[0].y, 5);
  EXPECT_EQ(layout.centres[1].y, 35);
  EXPECT_EQ(layout.centres[1].y, layout.centres[2].y);
  EXPECT_EQ(layout.centres[4].y, 95);
  EXPECT_EQ(layout.centres[5].y, layout.centres[3].y);  // a source stands before what it leads to
  EXPECT_GE(std::fabs(layout.centres[1].x - layout.centres[2].x), 55 - 1e-6);
  // The edge that passes two ranks keeps its way beside their nodes.
  ASSERT_EQ(layout.routes[0].size(), 6u);
  for (const std::size_t point : {1, 2}) {
    EXPECT_EQ(layout.routes[0][point].y, point == 1 ? 30 : 40);
    for (const std::size_t node : {1, 2}) EXPECT_GE(std::fabs(layout.routes[0][point].x - layout.centres[node].x), 35 - 1e-6);
  }
  EXPECT_GE(layout.across, 95 - 1e-6);
}

TEST(LayOut, AChainIsAStraightLine) {
  std::vector<NodeSize> nodes;
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  for (std::size_t i = 0; i < 30; ++i) {
    nodes.push_back({10, 20.0 + 7 * static_cast<double>(i % 3)});
    if (i > 0) edges.emplace_back(i - 1, i);
  }
  const Layout layout = LayOut(nodes, edges, 10, 10);
  for (const Point& centre : layout.centres) EXPECT_NEAR(centre.x, 17, 1e-6);  // half of the widest
  EXPECT_NEAR(layout.across, 34, 1e-6);
  EXPECT_EQ(layout.along, 30 * 10 + 29 * 10);
}

TEST(LayOut, AGraphThatNobodyCanReadTakesLittleMemory) {
  const std::vector<NodeSize> nodes(3000, NodeSize{1, 1});
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    edges.emplace_back(i - 1, i);
    edges.emplace_back(0, i);
  }
  EXPECT_EQ(LayOut(nodes, edges, 1, 1).routes.size(), edges.size());
  EXPECT_EQ(LayOut({}, {}, 1, 1).along, 0);
}

}  // namespace
}  // namespace poseidon::draw
