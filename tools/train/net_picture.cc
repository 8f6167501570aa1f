// SPDX-License-Identifier: Apache-2.0
#include "tools/train/net_picture.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "poseidon/base/listed.h"
#include "tools/draw/layered.h"
#include "tools/draw/svg.h"

namespace poseidon::tools {
namespace {

using caffe::LayerParameter;
using draw::Point;

constexpr double kFont = 12, kSmall = 10;
constexpr double kLine = 15;     // from one line of text to the next
constexpr double kPadding = 9;   // around the text of a box
constexpr double kMargin = 20;   // around everything
constexpr double kHeading = 28;  // for the line above the net

struct TextLine {
  std::string text;
  double size;
  bool bold = false;
  bool scheme = false;
};

// A layer with those that work in place behind it, or a blob.
struct Node {
  std::vector<TextLine> lines;
  std::string fill;
  bool blob = false;
  double width = 0;
  double height = 0;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<std::pair<std::size_t, std::size_t>> edges;
};

std::string Joined(const google::protobuf::RepeatedField<google::protobuf::uint32>& each) {
  std::string text;
  for (const unsigned size : each) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

// `text` is what is said of all axes at once; nothing is said of the usual value.
std::string Sizes(const std::string& what, std::string text, unsigned height, unsigned width, unsigned usual) {
  if (height > 0 || width > 0) text = std::to_string(height) + "x" + std::to_string(width);
  return text.empty() || text == std::to_string(usual) ? "" : ", " + what + " " + text;
}

std::string ConvolutionText(const caffe::ConvolutionParameter& p) {
  std::string text = std::to_string(p.num_output()) + " outputs";
  text += Sizes("kernel", Joined(p.kernel_size()), p.kernel_h(), p.kernel_w(), 0);
  text += Sizes("stride", Joined(p.stride()), p.stride_h(), p.stride_w(), 1);
  text += Sizes("pad", Joined(p.pad()), p.pad_h(), p.pad_w(), 0);
  if (p.group() > 1) text += ", group " + std::to_string(p.group());
  return text;
}

std::string PoolingText(const caffe::PoolingParameter& p) {
  std::string text = caffe::PoolingParameter::PoolMethod_Name(p.pool());
  if (p.global_pooling()) return text + ", global";
  text += Sizes("kernel", std::to_string(p.kernel_size()), p.kernel_h(), p.kernel_w(), 0);
  text += Sizes("stride", std::to_string(p.stride()), p.stride_h(), p.stride_w(), 1);
  return text + Sizes("pad", std::to_string(p.pad()), p.pad_h(), p.pad_w(), 0);
}

// What a layer's parameters say of it, in a line; often nothing.
std::string DetailsOf(const LayerParameter& layer) {
  if (layer.has_convolution_param()) return ConvolutionText(layer.convolution_param());
  if (layer.has_pooling_param()) return PoolingText(layer.pooling_param());
  if (layer.has_inner_product_param()) return std::to_string(layer.inner_product_param().num_output()) + " outputs";
  if (layer.has_lrn_param()) return "local size " + std::to_string(layer.lrn_param().local_size());
  if (layer.has_data_param()) return "batch " + std::to_string(layer.data_param().batch_size());
  if (layer.has_eltwise_param()) return caffe::EltwiseParameter::EltwiseOp_Name(layer.eltwise_param().operation());
  return "";
}

std::string PhaseOf(const LayerParameter& layer) {
  std::string phases;
  for (const caffe::NetStateRule& rule : layer.include()) {
    if (rule.has_phase()) AddListed(caffe::Phase_Name(rule.phase()), &phases);
  }
  return phases.empty() ? "" : phases + " only";
}

std::string FillOf(const LayerParameter& layer) {
  const std::string& type = layer.type();
  const auto has = [&type](const char* word) { return type.find(word) != std::string::npos; };
  if (layer.bottom_size() == 0) return "#e3e3e3";
  if (has("Loss")) return "#f6c9c4";
  if (has("Accuracy") || has("ArgMax") || has("Silence")) return "#e8dff0";
  if (has("Convolution")) return "#f7c9a3";
  if (has("InnerProduct") || has("Embed") || has("LSTM") || has("RNN")) return "#c9d8f0";
  if (has("Pool") || has("SPP")) return "#cfe8c5";
  return "#f3efcf";
}

void AddLines(const LayerParameter& layer, const std::string& unique_name, const PictureOptions& options, std::vector<TextLine>* lines) {
  lines->push_back({layer.name() + " (" + layer.type() + ")", kFont, /*bold=*/true});
  for (const std::string& more : {DetailsOf(layer), PhaseOf(layer)}) {
    if (!more.empty()) lines->push_back({more, kSmall});
  }
  if (const auto scheme = options.schemes.find(unique_name); scheme != options.schemes.end()) {
    lines->push_back({"goes by " + scheme->second, kSmall, false, /*scheme=*/true});
  }
}

class Builder {
 public:
  explicit Builder(const PictureOptions& options) : options_(options) {}

  Graph Build(const caffe::NetParameter& net) {
    for (const LayerParameter& layer : net.layer()) Add(layer);
    for (Node& node : graph_.nodes) Measure(&node);
    return std::move(graph_);
  }

 private:
  void Add(const LayerParameter& layer) {
    const int nth = ++names_[layer.name()];
    const std::string unique = nth == 1 ? layer.name() : layer.name() + "#" + std::to_string(nth);
    if (const auto box = BoxInPlace(layer)) {
      AddLines(layer, unique, options_, &graph_.nodes[*box].lines);
      return;
    }
    // What nothing makes is drawn too: an old net's input.
    for (const std::string& bottom : layer.bottom()) {
      if (!blobs_.contains(bottom)) blobs_[bottom].node = AddBlob(bottom);
    }
    const std::size_t box = graph_.nodes.size();
    graph_.nodes.push_back({.lines = {}, .fill = FillOf(layer)});
    AddLines(layer, unique, options_, &graph_.nodes[box].lines);
    for (const std::string& bottom : layer.bottom()) {
      blobs_[bottom].read = true;
      Connect(blobs_[bottom].node, box);
    }
    for (const std::string& top : layer.top()) {
      // A source of another phase has its tops in common with the first; else what was made already is another blob from here on.
      const auto made = blobs_.find(top);
      const bool shared = made != blobs_.end() && !made->second.read && layer.bottom_size() == 0;
      if (!shared) blobs_[top] = {AddBlob(top), box, false};
      Connect(box, blobs_[top].node);
    }
  }

  struct Blob {
    std::size_t node = 0;
    std::optional<std::size_t> maker;  // the box that made it
    bool read = false;
  };

  // The box in which a layer that changes its one bottom in place is drawn.
  std::optional<std::size_t> BoxInPlace(const LayerParameter& layer) const {
    if (layer.bottom_size() != 1 || layer.top_size() != 1 || layer.bottom(0) != layer.top(0)) return std::nullopt;
    const auto blob = blobs_.find(layer.bottom(0));
    return blob == blobs_.end() ? std::nullopt : blob->second.maker;
  }

  std::size_t AddBlob(const std::string& name) {
    graph_.nodes.push_back({.lines = {{name, kSmall}}, .fill = "#fff", .blob = true});
    return graph_.nodes.size() - 1;
  }

  void Connect(std::size_t from, std::size_t to) {
    const std::pair<std::size_t, std::size_t> edge(from, to);
    if (std::find(graph_.edges.begin(), graph_.edges.end(), edge) == graph_.edges.end()) graph_.edges.push_back(edge);
  }

  static void Measure(Node* node) {
    double height = 0;
    for (const TextLine& line : node->lines) {
      node->width = std::max(node->width, draw::WidthOf(line.text, line.size) * (line.bold ? 1.08 : 1));
      height += kLine;
    }
    node->width += node->blob ? 26 : 2 * kPadding;
    node->height = height + (node->blob ? 6 : kPadding);
  }

  const PictureOptions& options_;
  Graph graph_;
  std::map<std::string, int> names_;
  std::map<std::string, Blob> blobs_;  // by name, the newest of it
};

void DrawNode(const Node& node, Point centre, draw::Svg* svg) {
  if (node.blob) {
    svg->Ellipse(centre, node.width, node.height, "fill=\"" + node.fill + R"(" stroke="#888")");
  } else {
    svg->Rect({centre.x - node.width / 2, centre.y - node.height / 2}, node.width, node.height, 5,
              "fill=\"" + node.fill + R"(" stroke="#555")");
  }
  double base = centre.y - kLine * static_cast<double>(node.lines.size()) / 2 + 11;
  for (const TextLine& line : node.lines) {
    svg->Text({centre.x, base}, line.text, line.size, "middle",
              line.bold ? R"(font-weight="bold")" : line.scheme ? R"(fill="#a03000" font-style="italic")" : "");
    base += kLine;
  }
}

}  // namespace

std::string DrawNet(const caffe::NetParameter& net, const PictureOptions& options) {
  const Graph graph = Builder(options).Build(net);
  const bool sideways = options.rankdir == "LR";
  std::vector<draw::NodeSize> sizes;
  for (const Node& node : graph.nodes) {
    sizes.push_back({.along = sideways ? node.width : node.height, .across = sideways ? node.height : node.width});
  }
  const draw::Layout layout = LayOut(sizes, graph.edges, sideways ? 28 : 20, sideways ? 14 : 18);
  const double heading = options.heading.empty() ? 0 : kHeading;
  const double width = std::max(sideways ? layout.along : layout.across, draw::WidthOf(options.heading, kFont)) + 2 * kMargin;
  draw::Svg svg(width, (sideways ? layout.across : layout.along) + heading + 2 * kMargin);
  const auto at = [&](Point point) {
    if (options.rankdir == "BT") point.y = layout.along - point.y;
    const Point turned = sideways ? Point{point.y, point.x} : point;
    return Point{turned.x + kMargin, turned.y + kMargin + heading};
  };
  svg.Raw(R"(<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">)"
          R"(<path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker>)");
  svg.Text({kMargin, kMargin + 10}, options.heading, kFont, "start");
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    std::vector<Point> route;
    for (const Point& point : layout.routes[i]) route.push_back(at(point));
    const bool tip = !graph.nodes[graph.edges[i].second].blob;
    svg.Curve(route, !sideways, std::string(R"(stroke="#666" stroke-width="1.1")") + (tip ? " marker-end=\"url(#tip)\"" : ""));
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) DrawNode(graph.nodes[i], at(layout.centres[i]), &svg);
  return svg.Document();
}

}  // namespace poseidon::tools
