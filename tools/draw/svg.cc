// SPDX-License-Identifier: Apache-2.0
#include "tools/draw/svg.h"

#include <array>
#include <cstddef>
#include <cstdio>

#include "poseidon/base/wrapped.h"

namespace poseidon::draw {
namespace {

// A tenth of a pixel is exact enough, and keeps documents short.
std::string Length(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  std::string length = text.data();
  if (length.ends_with(".0")) length.resize(length.size() - 2);
  return length == "-0" ? "0" : length;
}

std::string At(Point point) { return Length(point.x) + "," + Length(point.y); }

// How many bytes of a UTF-8 character begin here; 0: none does.
std::size_t CharacterAt(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80 ? 1 : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2 : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 3
                             : byte(0) >= 0xf0 && byte(0) < 0xf5                      ? 4
                                                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Encodings that are too long, surrogates, and what is beyond Unicode.
  if (length == 3 && ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) >= 0xa0))) return 0;
  if (length == 3 && byte(0) == 0xef && byte(1) == 0xbf && byte(2) >= 0xbe) return 0;  // no characters of XML
  if (length == 4 && ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) >= 0x90))) return 0;
  if (length == 1 && (byte(0) < 0x20 || byte(0) == 0x7f)) return 0;
  return length;
}

// RFC 4648.
std::string Base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U; };
    const unsigned word = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (unsigned digit = 0; digit < 4; ++digit) {
      text += i + digit <= bytes.size() ? kDigits[word >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const std::size_t length = CharacterAt(text);
    const char c = text.front();
    if (length == 0) {
      escaped += '?';
    } else if (length > 1) {
      escaped += text.substr(0, length);
    } else if (c == '<' || c == '>' || c == '&' || c == '"') {
      escaped += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : "&quot;";
    } else {
      escaped += c;
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return escaped;
}

double WidthOf(std::string_view text, double size) {
  return 0.58 * size * static_cast<double>(Columns(text));
}

Svg::Svg(double width, double height) : width_(width), height_(height) {}

void Svg::Rect(Point corner, double width, double height, double radius, std::string_view style) {
  body_ += "<rect x=\"" + Length(corner.x) + "\" y=\"" + Length(corner.y) + "\" width=\"" + Length(width) + "\" height=\"" +
           Length(height) + "\" rx=\"" + Length(radius) + "\" " + std::string(style) + "/>\n";
}

void Svg::Ellipse(Point centre, double width, double height, std::string_view style) {
  body_ += "<ellipse cx=\"" + Length(centre.x) + "\" cy=\"" + Length(centre.y) + "\" rx=\"" + Length(width / 2) + "\" ry=\"" +
           Length(height / 2) + "\" " + std::string(style) + "/>\n";
}

void Svg::Lines(const std::vector<Point>& points, std::string_view style) {
  body_ += "<polyline points=\"";
  for (std::size_t i = 0; i < points.size(); ++i) body_ += (i == 0 ? "" : " ") + At(points[i]);
  body_ += "\" fill=\"none\" " + std::string(style) + "/>\n";
}

void Svg::Curve(const std::vector<Point>& points, bool vertical, std::string_view style) {
  if (points.empty()) return;
  body_ += "<path d=\"M" + At(points.front());
  for (std::size_t i = 1; i < points.size(); ++i) {
    const Point a = points[i - 1], b = points[i];
    const Point middle{(a.x + b.x) / 2, (a.y + b.y) / 2};
    body_ += " C" + At(vertical ? Point{a.x, middle.y} : Point{middle.x, a.y}) + " " +
             At(vertical ? Point{b.x, middle.y} : Point{middle.x, b.y}) + " " + At(b);
  }
  body_ += "\" fill=\"none\" " + std::string(style) + "/>\n";
}

void Svg::Text(Point at, std::string_view text, double size, std::string_view anchor, std::string_view style) {
  body_ += "<text x=\"" + Length(at.x) + "\" y=\"" + Length(at.y) + "\" font-size=\"" + Length(size) + "\" text-anchor=\"" +
           std::string(anchor) + "\"" + (style.empty() ? "" : " " + std::string(style)) + ">" + Escaped(text) + "</text>\n";
}

void Svg::Image(Point corner, double width, double height, std::string_view file) {
  const std::string kind = file.starts_with("\xff\xd8") ? "jpeg" : "png";
  body_ += "<image x=\"" + Length(corner.x) + "\" y=\"" + Length(corner.y) + "\" width=\"" + Length(width) + "\" height=\"" + Length(height) +
           "\" image-rendering=\"pixelated\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" xlink:href=\"data:image/" + kind + ";base64," +
           Base64(file) + "\"/>\n";
}

std::string Svg::Document() const {
  const std::string width = Length(width_), height = Length(height_);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height + "\" viewBox=\"0 0 " + width + " " +
         height + "\" font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" + body_ +
         "</svg>\n";
}

}  // namespace poseidon::draw
