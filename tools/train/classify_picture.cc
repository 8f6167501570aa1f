// SPDX-License-Identifier: Apache-2.0
#include "tools/train/classify_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "tools/draw/svg.h"

namespace poseidon::tools {
namespace {

// Lengths in pixels.
constexpr double kMargin = 16, kImage = 112, kLabel = 150, kBar = 220, kScore = 60;
constexpr double kLine = 22, kText = 13;

double HeightOf(const ClassifiedImage& image) {
  return std::max(kImage, kLine * static_cast<double>(image.classes.size())) + kLine + kMargin;
}

std::string Rounded(double score) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4f", score);
  return text.data();
}

// What there is room for, in whole characters of UTF-8.
std::string Cut(std::string text, double width) {
  while (text.size() > 1 && draw::WidthOf(text, kText) > width) {
    while (text.size() > 1 && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
    text.pop_back();
  }
  return text;
}

void DrawImage(const ClassifiedImage& image, double top, draw::Svg* svg) {
  svg->Text({kMargin, top + kText}, image.name, kText, "start", "fill=\"#666\"");
  top += kLine;
  svg->Image({kMargin, top}, kImage, kImage, image.file);
  const double labels = kMargin + kImage + kMargin;
  for (std::size_t i = 0; i < image.classes.size(); ++i) {
    const ClassifiedImage::Class& one = image.classes[i];
    const double line = top + kLine * static_cast<double>(i), bar = labels + kLabel + kMargin / 2;
    const double share = std::isfinite(one.score) ? std::clamp(one.score, 0.0, 1.0) : 0;
    svg->Text({labels + kLabel, line + kText}, Cut(one.label, kLabel), kText, "end", i == 0 ? "font-weight=\"bold\"" : "");
    svg->Rect({bar, line + 1}, std::max(1.0, kBar * share), kText + 1, 2, i == 0 ? "fill=\"#1f6fb4\"" : "fill=\"#a9c9e4\"");
    svg->Text({bar + kBar + kMargin / 2, line + kText}, Rounded(one.score), kText, "start");
  }
}

}  // namespace

std::string ClassifyPicture(const std::vector<ClassifiedImage>& images) {
  double height = kMargin;
  for (const ClassifiedImage& image : images) height += HeightOf(image);
  draw::Svg svg(kMargin + kImage + kMargin + kLabel + kMargin / 2 + kBar + kMargin / 2 + kScore + kMargin, height);
  double top = kMargin;
  for (const ClassifiedImage& image : images) {
    DrawImage(image, top, &svg);
    top += HeightOf(image);
  }
  return svg.Document();
}

}  // namespace poseidon::tools
