// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/solver/features.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Net> NetOf(const std::string& text) {
  NetParameter parameters;
  EXPECT_TRUE(ParseText(text, "net", &parameters).ok());
  NetState state;
  state.set_phase(TEST);
  auto net = Net::Create(parameters, state, MakeLayer, NetOptions{});
  EXPECT_TRUE(net.ok()) << net.status().ToString();
  return *std::move(net);
}

constexpr char kInput[] = R"(layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 10 dim: 1 dim: 1 dim: 3 } } } )";

TEST(Classifier, IsTheMeanOverTheRows) {
  auto net = NetOf(std::string(kInput) + R"(layer { name: "p" type: "Power" bottom: "data" top: "p" power_param { power: 2 } })");
  auto classifier = Classifier::Make(net.get());
  ASSERT_TRUE(classifier.ok()) << classifier.status().ToString();
  EXPECT_EQ(classifier->input(), (ImageShape{1, 1, 3}));
  for (int twice = 0; twice < 2; ++twice) {  // batches of two sizes
    auto scores = classifier->Score({1, 2, 3});
    ASSERT_TRUE(scores.ok()) << scores.status().ToString();
    EXPECT_THAT(*scores, ElementsAre(1, 4, 9));
    scores = classifier->Score({1, 2, 3, 3, 0, 1});
    ASSERT_TRUE(scores.ok()) << scores.status().ToString();
    EXPECT_THAT(*scores, ElementsAre(5, 2, 5));
    scores = classifier->ScoreEach({1, 2, 3, 3, 0, 1});
    ASSERT_TRUE(scores.ok()) << scores.status().ToString();
    EXPECT_THAT(*scores, ElementsAre(1, 4, 9, 9, 0, 1));
    EXPECT_EQ(classifier->batch(), 10u);  // whatever the last one was
  }
}

TEST(Classifier, RefusesOtherNets) {
  const auto refusal = [](const std::string& text) {
    const auto net = NetOf(text);
    return Classifier::Make(net.get()).status().message();
  };
  EXPECT_THAT(refusal(R"(layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 2 } } })"), HasSubstr("no Input layer"));
  EXPECT_THAT(refusal(R"(layer { name: "in" type: "Input" top: "a" top: "b" input_param { shape { dim: 2 } } })"),
              HasSubstr("inputs 'a', 'b', expected one"));
  EXPECT_THAT(refusal(R"(layer { name: "in" type: "Input" top: "a" input_param { shape { dim: 2 } } })"), HasSubstr("1 axes, expected 4"));
  EXPECT_THAT(refusal(std::string(kInput) + R"(layer { name: "s" type: "Slice" bottom: "data" top: "x" top: "y" slice_param { axis: 3 slice_point: 1 } })"),
              HasSubstr("outputs 'x', 'y', expected one, or one named 'prob'"));
}

TEST(TopPlaces, LargestFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(TopPlaces({0.1f, 0.5f, nan, 0.5f, 0.2f}, 4), ElementsAre(1, 3, 4, 0));
  EXPECT_THAT(TopPlaces({nan, 1}, 9), ElementsAre(1, 0));
}

TEST(Features, AreRowsWithTheShapeOfTheBlob) {
  auto net = NetOf(R"(
    layer { name: "in" type: "Input" top: "a" top: "label" input_param { shape { dim: 2 dim: 3 dim: 1 dim: 2 } shape { dim: 2 } } }
    layer { name: "long" type: "Input" top: "b" input_param { shape { dim: 1 dim: 1 dim: 1 dim: 1 dim: 2 } } })");
  for (int i = 0; i < 12; ++i) net->blob("a")->data.mutable_data_ptr<float>()[i] = static_cast<float>(i);
  net->blob("label")->data.mutable_data_ptr<float>()[1] = 7;
  for (const FeatureForm form : {FeatureForm::kCaffe, FeatureForm::kPoseidon}) {
    const auto rows = FeaturesOf(*net, "a", form);
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    ASSERT_EQ(rows->size(), 2u);
    Datum datum;
    ASSERT_TRUE(datum.ParseFromString(rows->at(1)));
    EXPECT_THAT(datum.float_data(), ElementsAre(6, 7, 8, 9, 10, 11));
    const bool caffe = form == FeatureForm::kCaffe;
    EXPECT_EQ(datum.channels(), caffe ? 3 : 1);
    EXPECT_EQ(datum.height(), caffe ? 1 : 6);
    EXPECT_EQ(datum.width(), caffe ? 2 : 1);
    EXPECT_EQ(datum.has_label(), !caffe);
    EXPECT_EQ(datum.label(), caffe ? 0 : 7);
  }
  EXPECT_THAT(FeaturesOf(*net, "c", FeatureForm::kCaffe).status().message(), HasSubstr("unknown feature blob 'c'"));
  EXPECT_THAT(FeaturesOf(*net, "b", FeatureForm::kCaffe).status().message(), HasSubstr("5 axes"));
}

}  // namespace
}  // namespace poseidon::caffe
