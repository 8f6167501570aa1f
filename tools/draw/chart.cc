// SPDX-License-Identifier: Apache-2.0
#include "tools/draw/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

namespace poseidon::draw {
namespace {

constexpr double kWidth = 800, kHeight = 500;
constexpr double kLeft = 84, kRight = 24, kTop = 44, kBottom = 56;
constexpr double kFont = 13;
// Fewer points than these have a marker each.
constexpr std::size_t kFewPoints = 60;
// Colours that also those who do not see red and green alike can tell apart (Okabe and Ito, 2008).
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};

std::string TickText(double value, double step) {
  std::array<char, 40> text{};
  if (std::fabs(value) < step / 2) value = 0;
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

struct Axis {
  std::vector<double> ticks;
  double from = 0, to = 1;  // in pixels
  double At(double value) const { return from + (value - ticks.front()) / (ticks.back() - ticks.front()) * (to - from); }
};

Axis AxisOf(const std::vector<Series>& series, double Point::*coordinate, int count, double from, double to) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Series& one : series) {
    for (const Point& point : one.points) {
      least = std::min(least, point.*coordinate);
      most = std::max(most, point.*coordinate);
    }
  }
  if (!(least <= most)) least = 0, most = 1;
  return {Ticks(least, most, count), from, to};
}

std::vector<Series> FiniteOf(const std::vector<Series>& series) {
  std::vector<Series> finite = series;
  for (Series& one : finite) {
    std::erase_if(one.points, [](const Point& p) { return !std::isfinite(p.x) || !std::isfinite(p.y); });
  }
  return finite;
}

void DrawAxes(const Chart& chart, const Axis& x, const Axis& y, Svg& svg) {
  const auto step = [](const Axis& axis) { return axis.ticks[1] - axis.ticks[0]; };
  for (const double tick : x.ticks) {
    svg.Lines({{x.At(tick), y.from}, {x.At(tick), y.to}}, R"(stroke="#e4e4e4")");
    svg.Text({x.At(tick), y.from + 19}, TickText(tick, step(x)), kFont, "middle");
  }
  for (const double tick : y.ticks) {
    svg.Lines({{x.from, y.At(tick)}, {x.to, y.At(tick)}}, R"(stroke="#e4e4e4")");
    svg.Text({x.from - 8, y.At(tick) + 4.5}, TickText(tick, step(y)), kFont, "end");
  }
  svg.Lines({{x.from, y.to}, {x.from, y.from}, {x.to, y.from}}, R"(stroke="#444" stroke-width="1.2")");
  svg.Text({(x.from + x.to) / 2, kTop - 18}, chart.title, kFont + 2, "middle", R"(font-weight="bold")");
  svg.Text({(x.from + x.to) / 2, kHeight - 14}, chart.x_label, kFont, "middle");
  const double middle = (y.from + y.to) / 2;
  svg.Text({20, middle}, chart.y_label, kFont, "middle", "transform=\"rotate(-90 20 " + std::to_string(middle) + ")\"");
}

std::string StyleOf(std::size_t series) {
  // Colours come again with another pattern of dashes.
  const std::size_t round = series / kColours.size();
  std::string style = std::string("stroke=\"") + kColours[series % kColours.size()] + "\" stroke-width=\"1.8\"";
  if (round > 0) style += " stroke-dasharray=\"" + std::to_string(2 + 4 * (round % 4)) + " 3\"";
  return style;
}

void DrawLegend(const Chart& chart, const Axis& x, const Axis& y, Svg& svg) {
  double width = 0;
  for (const Series& one : chart.series) width = std::max(width, WidthOf(one.name, kFont));
  const double height = 18 * static_cast<double>(chart.series.size()) + 10;
  const Point corner{x.to - width - 58, chart.legend_at_bottom ? y.from - height - 8 : y.to + 8};
  svg.Rect(corner, width + 50, height, 4, R"(fill="#fff" fill-opacity="0.85" stroke="#bbb")");
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const double line = corner.y + 14 + 18 * static_cast<double>(i);
    svg.Lines({{corner.x + 8, line}, {corner.x + 34, line}}, StyleOf(i));
    svg.Text({corner.x + 41, line + 4.5}, chart.series[i].name, kFont, "start");
  }
}

}  // namespace

std::vector<double> Ticks(double least, double most, int count) {
  // A flat line has room around it. Halves, so that no difference of two large numbers is infinite.
  if (!(most > least)) {
    const double room = least == 0 ? 0.5 : std::fabs(least) / 10;
    least -= room;
    most += room;
  }
  const double wanted = 2 * ((most / 2 - least / 2) / std::max(1, count));
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (step < wanted * (1 - 1e-9)) step = power * factor;
  }
  std::vector<double> ticks;
  const double first = std::floor(least / step);
  // Numbers so close that doubles do not tell their ticks apart, or so large that these are not finite, have two ticks.
  if (!std::isfinite(step) || !(step > 0) || !(first * step + step > first * step)) return {least, most};
  for (int i = 0; i < 4 * std::max(1, count) + 4; ++i) {
    ticks.push_back((first + i) * step);
    if (i > 0 && ticks.back() >= most - step * 1e-9) break;
  }
  return ticks;
}

std::string Draw(const Chart& chart) {
  const std::vector<Series> series = FiniteOf(chart.series);
  const Axis x = AxisOf(series, &Point::x, 8, kLeft, kWidth - kRight);
  const Axis y = AxisOf(series, &Point::y, 6, kHeight - kBottom, kTop);
  Svg svg(kWidth, kHeight);
  DrawAxes(chart, x, y, svg);
  for (std::size_t i = 0; i < series.size(); ++i) {
    std::vector<Point> line;
    for (const Point& point : series[i].points) line.push_back({x.At(point.x), y.At(point.y)});
    if (line.empty()) continue;
    svg.Lines(line, StyleOf(i) + " stroke-linejoin=\"round\"");
    if (line.size() >= kFewPoints) continue;
    const std::string fill = std::string("fill=\"") + kColours[i % kColours.size()] + "\"";
    for (const Point& point : line) svg.Ellipse(point, 5, 5, fill);
  }
  if (series.size() > 1) DrawLegend(chart, x, y, svg);
  return svg.Document();
}

}  // namespace poseidon::draw
