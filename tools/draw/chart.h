// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_DRAW_CHART_H_
#define POSEIDON_TOOLS_DRAW_CHART_H_

#include <string>
#include <vector>

#include "tools/draw/svg.h"

namespace poseidon::draw {

// A line of a chart. Points that are not finite are left out.
struct Series {
  std::string name;
  std::vector<Point> points;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool legend_at_bottom = false;  // else at the top; both right
  std::vector<Series> series;
};

// Numbers at which an axis from `least` to `most`, both finite, has its ticks: multiples of 1, 2 or 5 times a power of ten, about
// `count` of them, the first at most `least` and the last at least `most`.
std::vector<double> Ticks(double least, double most, int count);

// The chart as an SVG document: axes with ticks, a grid, a legend where it has several lines.
std::string Draw(const Chart& chart);

}  // namespace poseidon::draw

#endif  // POSEIDON_TOOLS_DRAW_CHART_H_
