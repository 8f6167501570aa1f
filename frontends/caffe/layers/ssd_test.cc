// SPDX-License-Identifier: Apache-2.0
// The layers of SSD: priors, loss and detections, against numbers from a few lines of NumPy.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/shared/net_trial.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;

TEST(Ssd, PriorBoxMakesASetAtEveryPlace) {
  Trial trial(InputsOf("data 1x3x1x2 image 1x3x20x40") +
              LayerOf("PriorBox", "data image",
                      "prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 2 aspect_ratio: 2 aspect_ratio: 1 variance: 0.1 variance: 0.2 "
                      "variance: 0.3 variance: 0.4 }"));
  ASSERT_EQ(trial.net().blob("out")->shape(), (Shape{1, 2, 32}));
  std::vector<double> expected = {0.2, 0.4, 0.3, 0.6, 0.175, 0.35, 0.325, 0.65, 0.1792893219, 0.4292893219, 0.3207106781, 0.5707106781,
                                  0.2146446609, 0.3585786438, 0.2853553391, 0.6414213562, 0.7, 0.4, 0.8, 0.6, 0.675, 0.35, 0.825, 0.65,
                                  0.6792893219, 0.4292893219, 0.8207106781, 0.5707106781, 0.7146446609, 0.3585786438, 0.7853553391, 0.6414213562};
  for (int i = 0; i < 32; ++i) expected.push_back(0.1 * (i % 4 + 1));
  ExpectNear(trial.Run(), expected, 1e-7);  // sizes are floats
}

TEST(Ssd, PriorBoxTakesStepsSizesAndEdges) {
  const std::string options = "prior_box_param { min_size: 4.9 clip: true flip: false aspect_ratio: 4 step: 3 img_size: 10 offset: 0 }";
  Trial trial(InputsOf("data 1x3x1x2 image 1x3x7x7") + LayerOf("PriorBox", "data image", options));
  std::vector<double> expected = {0, 0, 0.2, 0.2, 0, 0, 0.4, 0.1, 0.1, 0, 0.5, 0.2, 0, 0, 0.7, 0.1};  // of 4.9 pixels 4 are kept
  expected.insert(expected.end(), 16, 0.1);
  ExpectNear(trial.Run(), expected, 1e-7);
}

constexpr char kPriors[] = "data 1x1x1x1 loc 2x16 conf 2x12 priors 1x2x16 truth 1x1x4x8";
const std::vector<double> kPriorNumbers = {0.1, 0.1, 0.4, 0.4, 0.3, 0.3, 0.8, 0.8, 0.55, 0.5, 0.95, 0.9, 0, 0.6, 0.3, 1,
                                           0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.2, 0.2};
const std::vector<double> kTruth = {0, 1, 0, 0.12, 0.1, 0.42, 0.45, 0, 0, 2, 0, 0.35, 0.3, 0.75, 0.85, 0,
                                    -1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0.6, 0.55, 0.9, 0.9, 0};
const std::vector<double> kPlaces = {-1, 0, 1, -0.2, -0.4, 0.6, -0.6, 0.4, 0.2, -1, 0, 1, 0.8, -0.4, 0.6, -0.6,
                                     0.4, -0.8, 0.2, -1, 1, -0.2, 0.8, -0.4, -0.6, 0.4, -0.8, 0.2, 0, 1, -0.2, 0.8};
std::vector<double> ScoresOfPlaces() {
  std::vector<double> scores;
  for (int n = 0; n < 2; ++n) {
    for (int p = 0; p < 4; ++p) {
      for (int c = 0; c < 3; ++c) scores.push_back((5 * n + 2 * p + 3 * c) % 7 / 3.0 - 1);
    }
  }
  return scores;
}
Trial& GiveSsd(Trial& trial) {
  return trial.Give("loc", kPlaces).Give("conf", ScoresOfPlaces()).Give("priors", kPriorNumbers).Give("truth", kTruth);
}
std::string MultiBox(const std::string& options) {
  return LayerOf("MultiBoxLoss", "loc conf priors truth", "multibox_loss_param { num_classes: 3 " + options + " }");
}

TEST(Ssd, MultiBoxLossMatchesAndMines) {
  Trial trial(InputsOf(kPriors) + MultiBox("loc_weight: 2 neg_pos_ratio: 1 code_type: CENTER_SIZE"));
  ExpectNear(GiveSsd(trial).Run(), {5.270053056916044});
  // The factor is the number of matches.
  Trial plain(InputsOf(kPriors) + LayerOf("MultiBoxLoss", "loc conf priors truth",
                                          "loss_param { normalization: NONE } multibox_loss_param { num_classes: 3 loc_weight: 2 neg_pos_ratio: "
                                          "1 code_type: CENTER_SIZE }"));
  ExpectNear(GiveSsd(plain).Run(), {3 * 5.270053056916044});
}

TEST(Ssd, AScoreThatIsNoNumberIsMinedFirst) {
  Trial trial(InputsOf(kPriors) + MultiBox("neg_pos_ratio: 0.5 overlap_threshold: 0.95 neg_overlap: 1"));  // two matches, one example
  for (std::size_t prior = 0; prior < 4; ++prior) {
    std::vector<double> scores = ScoresOfPlaces();
    scores[3 * prior] = std::nan("");
    EXPECT_TRUE(std::isnan(GiveSsd(trial).Give("conf", scores).Run()[0])) << prior;
  }
}

TEST(Ssd, GradientsOfTheMultiBoxLossAgreeWithDifferences) {
  for (const char* options : {"code_type: CENTER_SIZE", "code_type: CORNER loc_loss_type: L2", "code_type: CORNER_SIZE conf_loss_type: LOGISTIC",
                              "code_type: CENTER_SIZE encode_variance_in_target: true mining_type: NONE", "mining_type: NONE conf_loss_type: LOGISTIC",
                              "match_type: BIPARTITE bp_inside: true ignore_cross_boundary_bbox: true neg_overlap: 0.2"}) {
    SCOPED_TRACE(options);
    Trial trial(InputsOf(kPriors) + MultiBox(options));
    ExpectGradients(GiveSsd(trial), {"loc", "conf"});
  }
}

TEST(Ssd, AGroundTruthThatIsNoneIsNamed) {
  Trial trial(InputsOf(kPriors) + MultiBox(""));
  const auto error = [&](std::size_t place, double number) {
    std::vector<double> truth = kTruth;
    truth[place] = number;
    return GiveSsd(trial).Give("truth", truth).Error();
  };
  EXPECT_THAT(error(0, 2), HasSubstr("row 0 of the ground truth is of image 2"));
  EXPECT_THAT(error(0, std::nan("")), HasSubstr("row 0 of the ground truth is of image nan"));
  EXPECT_THAT(error(9, 3), HasSubstr("row 1 of the ground truth has class 3"));
  EXPECT_THAT(error(9, 0), HasSubstr("other than the background"));
  EXPECT_THAT(error(3, std::nan("")), HasSubstr("row 0 of the ground truth has an edge that is not a finite number"));
  EXPECT_THAT(error(14, std::numeric_limits<double>::infinity()), HasSubstr("row 1 of the ground truth has an edge"));
  EXPECT_EQ(error(5, -4), "");
  std::vector<double> priors = kPriorNumbers;
  priors[17] = 0;
  EXPECT_THAT(GiveSsd(trial).Give("priors", priors).Error(), HasSubstr("prior 0 has a variance that is not above 0"));
  EXPECT_THAT(WhyNoNet(InputsOf(kPriors) + MultiBox("share_location: false")), HasSubstr("share_location: false of SSD is not supported"));
  EXPECT_THAT(WhyNoNet(InputsOf(kPriors) + MultiBox("mining_type: HARD_EXAMPLE")), HasSubstr("HARD_EXAMPLE of SSD is not supported"));
  EXPECT_THAT(WhyNoNet(InputsOf(kPriors) + LayerOf("MultiBoxLoss", "loc conf priors truth", "multibox_loss_param { num_classes: 4 }")),
              HasSubstr("expected 4 and 4 numbers for each"));
}

std::string Detect(const std::string& options) {
  return LayerOf("DetectionOutput", "loc conf priors",
                 "detection_output_param { num_classes: 3 code_type: CENTER_SIZE " + options + " }");
}
constexpr char kOneImage[] = "loc 1x16 conf 1x12 priors 1x2x16";
// Of classes background, 1, 2 at the four priors; the first two boxes of class 1 overlap by 0.53 where the second is moved.
const std::vector<double> kConfidence = {0.1, 0.8, 0.1, 0.2, 0.7, 0.1, 0.05, 0.05, 0.9, 0.6, 0.2, 0.2};
const std::vector<double> kMoved = {0, 0, 0, 0, -5.4, -5.4, -2.5541281188, -2.5541281188, 0, 0, 0, 0, 0, 0, 0, 0};

TEST(Ssd, DetectionOutputKeepsTheMostConfident) {
  const auto detect = [](const std::string& options, const std::vector<double>& places) {
    Trial trial(InputsOf(kOneImage) + Detect(options));
    return trial.Give("loc", places).Give("conf", kConfidence).Give("priors", kPriorNumbers).Run();
  };
  const std::vector<double> none(16, 0.0);
  // Image, class, confidence, corners: predictions of 0 give the priors.
  ExpectNear(detect("confidence_threshold: 0.3", none), {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 1, 0.7, 0.3, 0.3, 0.8, 0.8, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  // Centre (0.55 - 0.1 * 5.4 * 0.5), side 0.5 * exp(0.2 * -2.554): 0.13 to 0.43.
  ExpectNear(detect("confidence_threshold: 0.3 nms_param { nms_threshold: 0.9 }", kMoved),
             {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 1, 0.7, 0.13, 0.13, 0.43, 0.43, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.3 nms_param { nms_threshold: 0.5 }", kMoved),
             {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.3 keep_top_k: 2", none), {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.3 nms_param { top_k: 1 }", none), {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.95", none), {0, -1, -1, -1, -1, -1, -1});
  EXPECT_EQ(detect("", none).size(), 7U * 8);  // every class at every prior; they overlap little
}

TEST(Ssd, EveryClassMayHaveBoxesOfItsOwn) {
  Trial trial(InputsOf("loc 1x48 conf 1x12 priors 1x2x16") + Detect("share_location: false confidence_threshold: 0.85"));
  std::vector<double> places(48, 0.0);
  places[2 * 12 + 2 * 4] = 5;  // class 2 at prior 2, the centre's x: 0.1 * 5 of its width of 0.4
  trial.Give("loc", places).Give("conf", kConfidence).Give("priors", kPriorNumbers);
  ExpectNear(trial.Run(), {0, 2, 0.9, 0.75, 0.5, 1.15, 0.9});
}

TEST(Ssd, DetectionEvaluateSaysWhichDetectionsAreRight) {
  const auto layer = [](const std::string& options) {
    return InputsOf("found 1x1x5x7 objects 1x1x3x8") + LayerOf("DetectionEvaluate", "found objects", "detection_evaluate_param { " + options + " }");
  };
  // Image 0 has two objects of class 1, one of them difficult, and image 1 one of class 2.
  const std::vector<double> objects = {0, 1, 0, 0,   0, 0.5, 0.5, 0,   0, 1, 0, 0.5, 0.5, 1, 1, 1,   1, 2, 0, 0, 0, 1, 1, 0};
  const std::vector<double> found = {0, 1, 0.7, 0,   0,   0.5, 0.5,    // the first again
                                     0, 1, 0.9, 0,   0,   0.5, 0.4,    // the first
                                     0, 1, 0.8, 0.5, 0.5, 1,   1,      // the difficult one
                                     1, 1, 0.6, 0,   0,   1,   1,      // of another class
                                     1, 2, 0.5, 0,   0,   0.4, 1};     // too small
  Trial trial(layer("num_classes: 3 evaluate_difficult_gt: false"));
  trial.Give("found", found).Give("objects", objects);
  ExpectNear(trial.Run(), {-1, 1, 1, -1, -1, -1, 2, 1, -1, -1, 0, 1, 0.9, 1, 0, 0, 1, 0.8, 0, 0,
                           0,  1, 0.7, 0, 1, 1,  1, 0.6, 0, 1, 1, 2, 0.5, 0, 1});
  Trial all(layer("num_classes: 3 overlap_threshold: 0.3"));
  all.Give("found", found).Give("objects", objects);
  const std::vector<double> rows = all.Run();
  EXPECT_EQ(rows[2], 2);           // objects of class 1
  EXPECT_EQ(rows[5 * 3 + 3], 1);  // the difficult one counts
  EXPECT_EQ(rows[5 * 6 + 3], 1);  // large enough
  EXPECT_THAT(WhyNoNet(layer("num_classes: 3 name_size_file: 'sizes.txt'")), HasSubstr("has name_size_file or resize_param"));
  std::vector<double> odd = found;
  odd[1] = 3;
  EXPECT_THAT(trial.Give("found", odd).Error(), HasSubstr("detection 0 has label 3.000000, expected one of the 3 classes"));
}

}  // namespace
}  // namespace poseidon::caffe
