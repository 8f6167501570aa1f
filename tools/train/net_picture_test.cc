// SPDX-License-Identifier: Apache-2.0
#include "tools/train/net_picture.h"

#include <gmock/gmock.h>

#include <string>

#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNet[] = R"(name: "small <net>"
layer { name: "train" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { batch_size: 64 } }
layer { name: "test" type: "Data" top: "data" top: "label" include { phase: TEST } data_param { batch_size: 100 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 20 kernel_size: 5 stride: 2 pad_h: 1 pad_w: 2 group: 2 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "ip" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
layer { name: "more" type: "Sigmoid" bottom: "elsewhere" top: "out" }
)";

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

caffe::NetParameter Net(const std::string& text) {
  caffe::NetParameter net;
  EXPECT_TRUE(caffe::ParseText(text, "net", &net).ok());
  EXPECT_TRUE(caffe::UpgradeNet("net", &net).ok());
  return net;
}

TEST(DrawNet, LayersAreBoxesBlobsAreEllipsesAndInPlaceLayersStandInTheirBlobsBox) {
  const std::string svg = DrawNet(Net(kNet), {.rankdir = "TB", .heading = "small <net>"});
  EXPECT_EQ(Count(svg, "<rect x="), 8u);    // nine layers, of which one works in place
  EXPECT_EQ(Count(svg, "<ellipse "), 9u);   // data and label once each; conv, pool, ip, ip2, loss, elsewhere, out
  EXPECT_EQ(Count(svg, "<path d=\"M"), 17u + 1);  // the edges, and the tip of an arrow
  EXPECT_THAT(svg, AllOf(HasSubstr(">small &lt;net&gt;</text>"), HasSubstr(">relu (ReLU)</text>"), HasSubstr(">TRAIN only</text>"),
                         HasSubstr(">20 outputs, kernel 5, stride 2, pad 1x2, group 2</text>"),
                         HasSubstr(">MAX, kernel 2, stride 2</text>"), HasSubstr(">batch 64</text>"), Not(HasSubstr("goes by"))));
}

TEST(DrawNet, SchemesStandAtTheirLayersByUniqueNames) {
  const std::string svg = DrawNet(Net(kNet), {.schemes = {{"ip#2", "sfb"}, {"conv", "kv"}, {"nobody", "fsc"}}});
  EXPECT_EQ(Count(svg, ">goes by kv</text>"), 1u);
  EXPECT_EQ(Count(svg, ">goes by sfb</text>"), 1u);
  EXPECT_EQ(Count(svg, "goes by"), 2u);
}

TEST(DrawNet, EveryDirectionIsDrawn) {
  const std::string down = DrawNet(Net(kNet), {.rankdir = "TB"});
  const std::string up = DrawNet(Net(kNet), {.rankdir = "BT"});
  const std::string right = DrawNet(Net(kNet), {.rankdir = "LR"});
  EXPECT_NE(down, up);
  EXPECT_EQ(down.size() > 0 && Count(down, "<rect") == Count(up, "<rect"), true);
  const auto width = [](const std::string& svg) { return std::stod(svg.substr(svg.find("width=\"") + 7)); };
  EXPECT_GT(width(right), 2 * width(down));
}

TEST(DrawNet, ANetThatMakesNoSenseIsDrawnAllTheSame) {
  EXPECT_THAT(DrawNet(Net(""), {}), HasSubstr("</svg>"));
  const std::string odd = R"(
layer { name: "a" type: "X" bottom: "t" bottom: "t" top: "t" top: "t" }
layer { name: "a" type: "X" bottom: "t" top: "u" }
layer { name: "b" top: "u" top: "t" }
layer { bottom: "u" top: "u" }
)";
  EXPECT_THAT(DrawNet(Net(odd), {.rankdir = "BT"}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace poseidon::tools
