// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_DRAW_SVG_H_
#define POSEIDON_TOOLS_DRAW_SVG_H_

#include <string>
#include <string_view>
#include <vector>

namespace poseidon::draw {

struct Point {
  double x = 0;
  double y = 0;
};

// Text as it may stand in an SVG document: <, >, & and quotes are escaped, bytes that XML or UTF-8 does not have become '?'.
std::string Escaped(std::string_view text);

// How wide a text in the documents' font of that size is, about; never less than it is in common fonts.
double WidthOf(std::string_view text, double size);

// A picture as an SVG 1.1 document, lengths in pixels. `style` is attributes as they stand in SVG: fill="#fff" stroke="#444".
// What is drawn later covers what was drawn before. Thread: one.
class Svg {
 public:
  Svg(double width, double height);
  void Rect(Point corner, double width, double height, double radius, std::string_view style);
  void Ellipse(Point centre, double width, double height, std::string_view style);
  void Lines(const std::vector<Point>& points, std::string_view style);
  // A smooth curve through the points, which leaves the first and reaches the last along `vertical` or the other axis.
  void Curve(const std::vector<Point>& points, bool vertical, std::string_view style);
  // `anchor`: start, middle or end. (x, y) is on the base line.
  void Text(Point at, std::string_view text, double size, std::string_view anchor, std::string_view style = "");
  // A JPEG or PNG file as part of the document, as large as it can be in the middle of that place; pixels that it enlarges keep their edges.
  void Image(Point corner, double width, double height, std::string_view file);
  // Any element, as it is.
  void Raw(std::string_view element) { body_ += std::string(element) + "\n"; }
  // The whole document.
  std::string Document() const;

 private:
  double width_;
  double height_;
  std::string body_;
};

}  // namespace poseidon::draw

#endif  // POSEIDON_TOOLS_DRAW_SVG_H_
