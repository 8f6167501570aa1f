// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace poseidon::profile {
namespace {

using ::testing::HasSubstr;

constexpr const char* kText = R"({
 "format": 1, "name": "small", "batch": 8, "source": "nobody", "product_flops": 2e9,
 "cores_per_worker": 0.5, "somebody's own field": [1, 2],
 "layers": [
  {"name": "conv", "shape": "4x3x5x5+4", "elements": 304, "forward_flops": 1000,
   "forward_seconds": 0.25, "backward_seconds": 0.5,
   "tensors": [{"name": "conv.weight", "shape": [4, 3, 5, 5]}, {"name": "conv.bias", "shape": [4]}]},
  {"name": "fc", "shape": "10x20+10", "elements": 210,
   "forward_seconds": 1, "backward_seconds": 2,
   "tensors": [{"name": "fc.weight", "shape": [10, 20]}, {"name": "fc.bias", "shape": [10]}],
   "factors": {"outputs": 10, "inputs": 20, "bias": true}, "rows": 16}
 ]})";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ParseProfile, TakesEveryField) {
  const Result<Profile> profile = ParseProfile(kText, "small.json");
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->name, "small");
  EXPECT_EQ(profile->source, "nobody");
  EXPECT_EQ(profile->batch, 8u);
  EXPECT_EQ(profile->elements(), 514u);
  EXPECT_EQ(profile->tensor_count(), 4u);
  EXPECT_DOUBLE_EQ(profile->step_seconds(), 3.75);
  EXPECT_DOUBLE_EQ(profile->layers[0].forward_flops, 1000);
  EXPECT_EQ(profile->layers[1].tensors[0], (Tensor{"fc.weight", {10, 20}}));

  const auto layers = LayersOf(*profile);
  EXPECT_EQ(layers[1], (plan::LayerSpec{.name = "fc",
                                        .shape = "10x20+10",
                                        .elements = 210,
                                        .forward_position = 1,
                                        .factors = plan::FactorShape{10, 20, true}}));
  EXPECT_FALSE(layers[0].factors);
  const auto measured = MeasurementsOf(*profile, 3);
  EXPECT_EQ(measured[0],
            (plan::LayerMeasurement{.forward_seconds = 0.25, .backward_seconds = 0.5}));
  EXPECT_EQ(measured[1].rows, std::vector<std::uint32_t>(3, 16));
  const plan::ClusterSpec cluster = ClusterOf(*profile);
  EXPECT_DOUBLE_EQ(cluster.rebuild_flops, 2e9);
  EXPECT_DOUBLE_EQ(cluster.cores_per_worker, 0.5);
  EXPECT_DOUBLE_EQ(cluster.cpu_seconds_per_wire_byte, 0);
}

TEST(ParseProfile, ReadsWhatTextOfWrote) {
  Profile profile = ParseProfile(kText, "small.json").value();
  profile.cpu_seconds_per_wire_byte = 1.1e-9;
  profile.compute_threads = 2;
  profile.layers[0].forward_seconds = 1.0 / 3;
  const Result<Profile> again = ParseProfile(TextOf(profile), "again");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, profile);
}

TEST(ParseProfile, TakesTablesProductsOfDevicesAndDoublePrecision) {
  const std::string factors = R"("factors": {"outputs": 10, "inputs": 20, "bias": true}, "rows": 16)";
  const auto with = [&](const std::string& more) { return ParseProfile(Replaced(kText, factors, more), "small.json"); };
  const Result<Profile> device =
      with(R"("factors": {"outputs": 10, "inputs": 20, "bias": true, "by_device": true}, "rows": 16, "dtype": "f64")");
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_TRUE(device->layers[1].spec.is_multiplied_by_device());
  EXPECT_EQ(device->layers[1].spec.bytes(), 8u * 210);
  EXPECT_EQ(ParseProfile(TextOf(*device), "again").value(), *device);
  const Result<Profile> table =
      with(R"("factors": {"outputs": 21, "inputs": 10, "bias": false, "table": true}, "rows": 16, "dtype": "f32")");
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_TRUE(table->layers[1].spec.is_table());
  EXPECT_EQ(ParseProfile(TextOf(*table), "again").value(), *table);
  EXPECT_EQ(with(factors + R"(, "dtype": "f16")").status().message(),
            "profile small.json, layer 'fc': field dtype is \"f16\", expected f32 or f64");
}

TEST(ParseProfile, NamesOriginLayerAndField) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  for (const Case& c : {
           Case{R"("format": 1)", R"("format": 2)",
                "profile x.json: field format is 2, expected an integer from 1 to 1"},
           Case{R"("batch": 8)", R"("batch": -8)",
                "profile x.json: field batch is -8, expected an integer from 1 to 4294967295"},
           Case{R"("batch": 8, )", "",
                "profile x.json: field batch is missing, expected an integer from 1 to 4294967295"},
           Case{R"("source": "nobody")", R"("source": 5)",
                "profile x.json: field source is 5, expected a text"},
           Case{R"("product_flops": 2e9)", R"("product_flops": -2)",
                "profile x.json: field product_flops is -2, expected a finite number, 0 or more"},
           Case{R"("name": "conv", "shape")", R"("shape")",
                "profile x.json, layers[0]: field name is missing, expected a text"},
           Case{R"("forward_seconds": 1,)", R"("forward_seconds": "1",)",
                "profile x.json, layer 'fc': field forward_seconds is \"1\", expected a finite "
                "number, 0 or more"},
           Case{R"(, "rows": 16)", "",
                "profile x.json, layer 'fc': field rows is missing, expected an integer from 1 to "
                "4294967295"},
           Case{R"("rows": 16)", R"("rows": 1.5)",
                "profile x.json, layer 'fc': field rows is 1.5, expected an integer from 1 to "
                "4294967295"},
           Case{R"("rows": 16)", R"("rows": 0)",
                "profile x.json, layer 'fc': field rows is 0, expected an integer from 1 to "
                "4294967295"},
           Case{R"("bias": true)", R"("bias": 1)",
                "profile x.json, layer 'fc', factors: field bias is 1, expected true or false"},
           Case{R"("shape": [10, 20])", R"("shape": [10, 21])",
                "profile x.json, layer 'fc': its tensors have 220 elements, expected the 210 of "
                "field elements"},
           Case{R"("shape": [4]})", R"("shape": [0]})",
                "profile x.json, layer 'conv', tensors[1]: field shape is [0], expected up to 16 "
                "dimensions of at least 1 and 1099511627776 elements in all"},
           Case{R"("shape": [4]})", R"("shape": [4294967296, 4294967296]})",
                "profile x.json, layer 'conv', tensors[1]: field shape is [4294967296,4294967296], "
                "expected up to 16 dimensions of at least 1 and 1099511627776 elements in all"},
           Case{R"("inputs": 20)", R"("inputs": 19)",
                "profile x.json: layer 'fc' has 210 elements, which is not its factors' 10 x 19 "
                "and bias"},
           Case{R"("name": "fc", )", R"("name": "conv", )",
                "profile x.json: two layers are named 'conv'"},
           Case{R"("format")", "format", "profile x.json is not JSON"},
       }) {
    const Result<Profile> profile = ParseProfile(Replaced(kText, c.from, c.to), "x.json");
    ASSERT_FALSE(profile.ok()) << c.message;
    EXPECT_EQ(profile.status().message(), c.message);
  }
}

TEST(ParseProfile, RefusesOtherDocuments) {
  EXPECT_EQ(ParseProfile("[]", "x").status().message(),
            "profile x: is not an object, expected {...}");
  EXPECT_EQ(ParseProfile("", "x").status().message(), "profile x is not JSON");
  EXPECT_EQ(ParseProfile(std::string(100'000, '['), "x").status().message(),
            "profile x is not JSON");
  EXPECT_EQ(ParseProfile(R"({"format":1,"name":"","source":"","batch":1,"layers":[]})", "x")
                .status()
                .message(),
            "profile x: field layers is [], expected a list with at least one entry");
  EXPECT_EQ(ParseProfile(R"({"format":1,"name":"","source":"","batch":1,"layers":[7]})", "x")
                .status()
                .message(),
            "profile x, layers[0]: is not an object, expected {...}");
}

// Broken anywhere, a profile is a profile or a sentence.
TEST(ParseProfile, SurvivesCutsAndChangedBytes) {
  const std::string text = kText;
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseProfile(text.substr(0, i), "cut").ok());
    for (const char byte : {'\0', '0', '"', '}', '\xff'}) {
      std::string changed = text;
      changed[i] = byte;
      const Result<Profile> profile = ParseProfile(changed, "changed");
      if (!profile.ok()) {
        EXPECT_THAT(profile.status().message(), HasSubstr("profile changed"));
      }
    }
  }
}

TEST(ReadProfile, ReadsAFileOrSaysThatItCannot) {
  const auto path = std::filesystem::temp_directory_path() / "poseidon_profile_test.json";
  std::ofstream(path) << kText;
  EXPECT_EQ(ReadProfile(path.string()).value(), ParseProfile(kText, "").value());
  std::filesystem::remove(path);
  EXPECT_EQ(ReadProfile("/nonexistent/p.json").status().message(),
            "profile /nonexistent/p.json cannot be read");
  EXPECT_FALSE(ReadProfile("/").ok());
}

}  // namespace
}  // namespace poseidon::profile
