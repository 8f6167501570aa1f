// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/hdf5_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>

#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

class Hdf5FileTest : public testing::Test {
 protected:
  Hdf5FileTest()
      : folder_(std::filesystem::path(testing::TempDir()) / ("caffe_hdf5_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Hdf5FileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const Result<std::string>& bytes) {
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    EXPECT_TRUE(WriteFileAtomically(*bytes, Path(name)).ok());
    return Path(name);
  }

  std::filesystem::path folder_;
};

template <typename Message>
Message Parsed(const std::string& text) {
  Message message;
  EXPECT_TRUE(ParseText(text, "message", &message).ok());
  return message;
}

const char kModel[] = R"(
  layer { name: "conv" blobs { shape { dim: 2 dim: 3 } data: [1, 2, 3, 4, 5, -6.5] } blobs { shape { dim: 2 } data: [7, 8] } }
  layer { name: "inception/1x1" blobs { shape { dim: 1 } data: 9 } }
  layer { name: "wide" blobs { shape { dim: 2 } double_data: [0.1, 0.2] } })";
const char kState[] = R"(iter: 7 learned_net: "a/snap_iter_7.caffemodel.h5" current_step: 2 weights_hash: "ab" plan: "{}"
  history { shape { dim: 2 } data: [1, 2] } history { shape { dim: 1 dim: 1 } data: 3 })";

TEST_F(Hdf5FileTest, AModelComesBack) {
  const std::string path = Write("m.h5", ToHdf5(Parsed<NetParameter>(kModel)));
  EXPECT_TRUE(IsHdf5(path));
  const auto model = ReadHdf5Model(path);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(ToText(*model), ToText(Parsed<NetParameter>(kModel)));
}

TEST_F(Hdf5FileTest, AStateComesBackWithAnyNumberOfHistoryBlobs) {
  for (const int more : {0, 1, 40}) {
    auto state = Parsed<SolverState>(kState);
    for (int i = 0; i < more; ++i) *state.add_history() = Parsed<BlobProto>("shape { dim: 1 } data: " + std::to_string(i));
    const auto read = ReadHdf5State(Write("s.h5", ToHdf5(state)));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(ToText(*read), ToText(state));
  }
}

// The layout as Caffe's own reader asks for it.
TEST_F(Hdf5FileTest, CaffesCallsFindWhatTheyLookFor) {
  const hid_t model = H5Fopen(Write("m.h5", ToHdf5(Parsed<NetParameter>(kModel))).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(model, 0);
  const hid_t data = H5Gopen2(model, "data", H5P_DEFAULT);
  ASSERT_GE(data, 0);
  H5G_info_t info;
  ASSERT_GE(H5Gget_info(data, &info), 0);
  EXPECT_EQ(info.nlinks, 3u);
  std::array<char, 32> name{};
  EXPECT_EQ(H5Lget_name_by_idx(data, ".", H5_INDEX_NAME, H5_ITER_NATIVE, 0, name.data(), name.size(), H5P_DEFAULT), 4);
  EXPECT_STREQ(name.data(), "conv");
  const hid_t conv = H5Gopen2(data, "conv", H5P_DEFAULT);
  int ndims = 0;
  EXPECT_GE(H5LTget_dataset_ndims(conv, "0", &ndims), 0);
  EXPECT_EQ(ndims, 2);
  std::array<hsize_t, 2> dims{};
  H5T_class_t kind = H5T_NO_CLASS;
  std::size_t size = 0;
  EXPECT_GE(H5LTget_dataset_info(conv, "0", dims.data(), &kind, &size), 0);
  EXPECT_EQ(dims, (std::array<hsize_t, 2>{2, 3}));
  EXPECT_EQ(kind, H5T_FLOAT);
  EXPECT_EQ(size, 4u);
  std::array<float, 6> numbers{};
  EXPECT_GE(H5LTread_dataset_float(conv, "0", numbers.data()), 0);
  EXPECT_EQ(numbers, (std::array<float, 6>{1, 2, 3, 4, 5, -6.5f}));
  H5Gclose(conv);
  H5Gclose(data);
  H5Fclose(model);

  const hid_t state = H5Fopen(Write("s.h5", ToHdf5(Parsed<SolverState>(kState))).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(state, 0);
  int value = 0;
  EXPECT_GE(H5LTread_dataset_int(state, "iter", &value), 0);
  EXPECT_EQ(value, 7);
  EXPECT_GE(H5LTread_dataset_int(state, "current_step", &value), 0);
  EXPECT_EQ(value, 2);
  std::array<char, 64> text{};
  EXPECT_GE(H5LTread_dataset_string(state, "learned_net", text.data()), 0);
  EXPECT_STREQ(text.data(), "a/snap_iter_7.caffemodel.h5");
  const hid_t history = H5Gopen2(state, "history", H5P_DEFAULT);
  EXPECT_GE(H5Gget_info(history, &info), 0);
  EXPECT_EQ(info.nlinks, 2u);
  EXPECT_GE(H5LTread_dataset_float(history, "1", numbers.data()), 0);
  EXPECT_EQ(numbers[0], 3.0f);
  H5Gclose(history);
  H5Fclose(state);
}

// What Caffe's writer calls makes, in the library's oldest format, and without the strings of ours.
TEST_F(Hdf5FileTest, ReadsWhatCaffesCallsWrite) {
  const hid_t file = H5Fcreate(Path("s.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t one = 1;
  const int seven = 7;
  H5LTmake_dataset_int(file, "iter", 1, &one, &seven);
  H5LTmake_dataset_string(file, "learned_net", "m.caffemodel.h5");
  H5LTmake_dataset_int(file, "current_step", 1, &one, &seven);
  const hid_t history = H5Gcreate2(file, "history", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const float number = 1.5;
  H5LTmake_dataset_float(history, "0", 1, &one, &number);
  H5Gclose(history);
  H5Fclose(file);
  const auto state = ReadHdf5State(Path("s.h5"));
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(state->iter(), 7);
  EXPECT_EQ(state->learned_net(), "m.caffemodel.h5");
  EXPECT_FALSE(state->has_weights_hash());
  EXPECT_EQ(state->history(0).data(0), 1.5f);
}

// As other programs store weights.
TEST_F(Hdf5FileTest, ReadsAModelThatIsPacked) {
  const hid_t file = H5Fcreate(Path("p.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(H5Gcreate2(file, "data", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  const hid_t layer = H5Gcreate2(file, "data/ip", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const std::array<hsize_t, 2> shape = {3, 5};
  const std::array<hsize_t, 2> chunk = {2, 2};
  const hid_t space = H5Screate_simple(2, shape.data(), nullptr);
  const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(how, 2, chunk.data());
  H5Pset_deflate(how, 1);
  const hid_t set = H5Dcreate2(layer, "0", H5T_IEEE_F32BE, space, H5P_DEFAULT, how, H5P_DEFAULT);
  std::array<float, 15> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) / 2;
  H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
  H5Dclose(set);
  H5Pclose(how);
  H5Sclose(space);
  H5Gclose(layer);
  H5Fclose(file);
  const auto model = ReadHdf5Model(Path("p.h5"));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ASSERT_EQ(model->layer(0).blobs(0).data_size(), 15);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(model->layer(0).blobs(0).data(i), static_cast<float>(i) / 2);
}

TEST_F(Hdf5FileTest, RefusesWhatItCannotHoldOrRead) {
  EXPECT_THAT(ToHdf5(Parsed<NetParameter>(R"(layer { name: "a" blobs { data: 1 } } layer { name: "a" blobs { data: 1 } })"))
                  .status().message(), HasSubstr("layer 'a'"));
  const std::string model = Write("m.h5", ToHdf5(Parsed<NetParameter>(kModel)));
  EXPECT_THAT(ReadHdf5State(model).status().message(), HasSubstr("m.h5: holds a model's weights, expected a solver state"));
  const std::string state = Write("s.h5", ToHdf5(Parsed<SolverState>(kState)));
  EXPECT_THAT(ReadHdf5Model(state).status().message(), HasSubstr("s.h5: holds a solver's state, expected a model's weights"));
  EXPECT_THAT(ReadHdf5Model(Path("none")).status().message(), HasSubstr("cannot open"));
  EXPECT_THAT(ReadHdf5Model(Path("")).status().message(), HasSubstr("cannot read"));
}

// A file that was cut off or whose bytes changed ends in a sentence or in what it says.
TEST_F(Hdf5FileTest, MutatedFilesEndInASentence) {
  const auto whole = ToHdf5(Parsed<SolverState>(kState));
  ASSERT_TRUE(whole.ok());
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = *whole;
    if (round % 4 == 0) bytes.resize(random() % bytes.size());
    for (unsigned changes = random() % 8; changes > 0 && !bytes.empty(); --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    std::ofstream(Path("x.h5"), std::ios::binary) << bytes;
    const auto state = ReadHdf5State(Path("x.h5"));
    refused += state.ok() ? 0 : 1;
    EXPECT_THAT(state.status().ToString(), AnyOf(Eq("OK"), HasSubstr("x.h5")));
  }
  EXPECT_GT(refused, 75);
}

}  // namespace
}  // namespace poseidon::caffe
