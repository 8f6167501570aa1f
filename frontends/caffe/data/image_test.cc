// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <fstream>
#include <random>
#include <vector>

#include "frontends/caffe/data/encoded_image.h"
#include "frontends/caffe/data/image_file.h"
#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/data/test_images.h"

// Every number here is what OpenCV 4.14 gives for the same bytes: cv::imdecode, cv::resize.
namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Image Decoded(const std::string& file, Channels channels = Channels::kColour) {
  Image image;
  const Status status = DecodeImage(file, channels, "the file", &image);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return image;
}

std::string Refusal(const std::string& file, Channels channels = Channels::kColour) {
  Image image;
  return DecodeImage(file, channels, "the file", &image).message();
}

std::vector<int> At(const Image& image, std::int64_t y, std::int64_t x) {
  std::vector<int> pixel;
  for (std::int64_t c = 0; c < image.shape.channels; ++c) {
    pixel.push_back(image.planes[static_cast<std::size_t>((c * image.shape.height + y) * image.shape.width + x)]);
  }
  return pixel;
}

unsigned Sum(const Image& image) {
  return static_cast<unsigned>(crc32(0, image.planes.data(), static_cast<unsigned>(image.planes.size())));
}

struct Expected {
  std::string name, file;
  ImageShape colour;
  unsigned colour_sum, grey_sum, stored_sum;
  std::int64_t stored_channels;
};

std::vector<Expected> Files() {
  const ImageShape jpeg{3, 13, 21};
  return {{"colour JPEG", ColourJpeg(), jpeg, 0x3cb80be6, 0x123b15fe, 0x3cb80be6, 3},
          {"progressive JPEG", ProgressiveJpeg(), jpeg, 0x3cb80be6, 0x123b15fe, 0x3cb80be6, 3},
          {"grey JPEG", GreyJpeg(), jpeg, 0x11874d62, 0x6cd8df2f, 0x6cd8df2f, 1},
          {"CMYK JPEG", CmykJpeg(), jpeg, 0x18b6f845, 0x9c8e0d07, 0x18b6f845, 3},
          {"interlaced PNG", InterlacedPng(), {3, 5, 9}, 0x1cce0766, 0x9263faab, 0x1cce0766, 3},
          {"PNG with a palette", PalettePng(), {3, 2, 5}, 0xf1d391f7, 0x1749bd5a, 0x3f90366b, 4},
          {"grey PNG with alpha", GreyAlphaPng(), {3, 2, 3}, 0x6b540259, 0xc1beac85, 0x3380ddb2, 4},
          {"grey PNG of 2 bits", GreyPng(), {3, 1, 4}, 0x959a45fb, 0x32d988a9, 0x32d988a9, 1}};
}

TEST(DecodeImage, GivesTheBitsOfOpenCv) {
  for (const Expected& expected : Files()) {
    SCOPED_TRACE(expected.name);
    const Image colour = Decoded(expected.file);
    EXPECT_EQ(colour.shape, expected.colour);
    EXPECT_EQ(Sum(colour), expected.colour_sum);
    const Image grey = Decoded(expected.file, Channels::kGrey);
    EXPECT_EQ(grey.shape, (ImageShape{1, expected.colour.height, expected.colour.width}));
    EXPECT_EQ(Sum(grey), expected.grey_sum);
    const Image stored = Decoded(expected.file, Channels::kAsStored);
    EXPECT_EQ(stored.shape.channels, expected.stored_channels);
    EXPECT_EQ(Sum(stored), expected.stored_sum);
  }
  EXPECT_THAT(At(Decoded(ColourJpeg()), 1, 2), ElementsAre(24, 27, 226));
  EXPECT_THAT(At(Decoded(CmykJpeg()), 1, 2), ElementsAre(239, 23, 26));
  EXPECT_THAT(At(Decoded(PalettePng(), Channels::kAsStored), 1, 3), ElementsAre(0, 0, 255, 128));
}

TEST(DecodeImage, TakesTheHighByteOf16Bits) {
  EXPECT_THAT(At(Decoded(DeepPng()), 0, 2), ElementsAre(225, 197, 169));
  EXPECT_THAT(Decoded(DeepPng(), Channels::kGrey).planes, ElementsAre(23, 107, 192));
  EXPECT_EQ(Refusal(DeepPng(), Channels::kAsStored), "the file cannot be decoded: it has 16 bits a channel, expected 8");
}

// A JPEG with EXIF's data as its first segment.
std::string WithOrientation(int orientation, bool little) {
  const char low = static_cast<char>(orientation);
  std::string exif("Exif\0\0", 6);
  exif += little ? std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) + low + std::string(3, '\0')
                 : std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) + low + std::string(2, '\0');
  const std::string jpeg = ColourJpeg();
  return jpeg.substr(0, 2) + "\xFF\xE1" + std::string(1, '\0') + static_cast<char>(exif.size() + 2) + exif + jpeg.substr(2);
}

TEST(DecodeImage, TurnsAsExifSays) {
  const Image upright = Decoded(ColourJpeg());
  const std::int64_t bottom = 12, right = 20;
  // Where the stored image's top left corner and its neighbours below and to the right go.
  const std::array<std::array<std::int64_t, 2>, 9> corners = {
      {{0, 0}, {0, 0}, {0, right}, {bottom, right}, {bottom, 0}, {0, 0}, {0, bottom}, {right, bottom}, {right, 0}}};
  for (int orientation = 0; orientation <= 9; ++orientation) {
    SCOPED_TRACE(orientation);
    const Image turned = Decoded(WithOrientation(orientation, orientation % 2 == 0));
    const bool transposed = orientation > 4 && orientation < 9;
    ASSERT_EQ(turned.shape, transposed ? (ImageShape{3, 21, 13}) : upright.shape);
    const auto [y, x] = corners[static_cast<std::size_t>(orientation % 9)];
    EXPECT_EQ(At(turned, y, x), At(upright, 0, 0));
    const std::int64_t down = y == 0 ? 3 : y - 3;
    EXPECT_EQ(At(turned, down, x), transposed ? At(upright, 0, 3) : At(upright, 3, 0));
    EXPECT_EQ(Sum(Decoded(WithOrientation(orientation, true), Channels::kAsStored)), Sum(upright));
  }
}

TEST(ConvertChannels, GivesTheBitsOfCvtColor) {
  // Two pixels; a decoder's grey of the first is 51.
  Image image{{4, 1, 2}, {0, 10, 75, 200, 25, 30, 9, 9}};
  Image colours = image;
  ConvertChannels(1, &image);
  EXPECT_THAT(image.planes, ElementsAre(52, 128));
  ConvertChannels(3, &image);
  EXPECT_EQ(image.shape, (ImageShape{3, 1, 2}));
  EXPECT_THAT(image.planes, ElementsAre(52, 128, 52, 128, 52, 128));
  ConvertChannels(3, &colours);
  EXPECT_THAT(colours.planes, ElementsAre(0, 10, 75, 200, 25, 30));
}

TEST(Resize, GivesTheBitsOfOpenCv) {
  Image ramp;
  ramp.shape = {1, 4, 4};
  ramp.planes = {0, 10, 20, 250, 5, 100, 30, 40, 255, 0, 128, 64, 9, 8, 7, 6};
  Image scaled;
  ASSERT_TRUE(Resize(ramp, 2, 2, &scaled).ok());
  EXPECT_THAT(scaled.planes, ElementsAre(29, 85, 68, 51));
  ASSERT_TRUE(Resize(ramp, 3, 3, &scaled).ok());
  EXPECT_THAT(scaled.planes, ElementsAre(5, 23, 183, 117, 65, 56, 43, 17, 17));
  ASSERT_TRUE(Resize(ramp, 2, 4, &scaled).ok());
  EXPECT_THAT(scaled.planes, ElementsAre(3, 55, 25, 145, 132, 4, 68, 35));
  ASSERT_TRUE(Resize(ramp, 5, 6, &scaled).ok());
  EXPECT_THAT(scaled.planes, ElementsAre(0, 5, 11, 18, 135, 250, 4, 38, 65, 34, 65, 103, 130, 90, 55, 74, 66, 52, 181, 92, 17, 77,
                                         69, 47, 9, 8, 8, 7, 6, 6));
  const Image colour = Decoded(ColourJpeg());
  ASSERT_TRUE(Resize(colour, 7, 9, &scaled).ok());
  EXPECT_EQ(Sum(scaled), 0xd4cb2376);
  EXPECT_THAT(At(scaled, 3, 4), ElementsAre(117, 134, 167));
  ASSERT_TRUE(Resize(colour, 26, 40, &scaled).ok());
  EXPECT_EQ(Sum(scaled), 0xdd139812);
  ASSERT_TRUE(Resize(colour, 13, 42, &scaled).ok());
  EXPECT_EQ(Sum(scaled), 0x4c22bfe1);
  ASSERT_TRUE(Resize(colour, 1, 1, &scaled).ok());
  EXPECT_THAT(At(scaled, 0, 0), ElementsAre(117, 134, 167));
  ASSERT_TRUE(Resize(colour, 13, 21, &scaled).ok());
  EXPECT_EQ(scaled.planes, colour.planes);
}

// OpenCV 5.0, which takes floats for parts of the cubic sums: half of a pixel's step is rounded either way.
TEST(Resize, GivesTheBitsOfOpenCvsOtherModes) {
  struct Case {
    Interpolation interpolation;
    std::int64_t height, width;
    std::vector<std::uint8_t> planes;
  };
  const std::vector<Case> cases = {
      {Interpolation::kArea, 3, 4,
       {54, 101, 132, 118, 158, 137, 153, 146, 108, 152, 152, 108}},
      {Interpolation::kArea, 7, 9,
       {0, 26, 85, 138, 77, 80, 124, 127, 52, 55, 87, 84, 77, 155, 164, 126, 113, 153, 109, 147, 106, 54, 182, 198, 136, 121,
        204, 182, 227, 194, 120, 81, 106, 169, 190, 134, 50, 102, 165, 214, 185, 219, 172, 113, 64, 53, 111, 157, 184, 160,
        201, 131, 85, 114, 108, 172, 157, 101, 85, 132, 67, 71, 216}},
      {Interpolation::kArea, 5, 3,
       {37, 98, 101, 101, 155, 151, 201, 102, 164, 82, 232, 105, 146, 106, 118}},
      {Interpolation::kArea, 8, 5,
       {11, 100, 87, 113, 82, 48, 86, 124, 128, 119, 105, 66, 179, 152, 174, 181, 155, 106, 154, 160, 167, 177, 113, 162, 138,
        39, 179, 216, 193, 66, 95, 158, 139, 128, 121, 133, 144, 88, 86, 158}},
      {Interpolation::kArea, 4, 9,
       {18, 46, 84, 117, 103, 108, 125, 122, 86, 127, 167, 128, 70, 156, 175, 144, 138, 186, 83, 134, 172, 191, 159, 190, 171,
        132, 82, 90, 151, 157, 129, 110, 155, 88, 76, 182}},
      {Interpolation::kNearest, 3, 4,
       {0, 37, 77, 157, 91, 141, 207, 57, 17, 93, 211, 113}},
      {Interpolation::kNearest, 7, 9,
       {0, 0, 37, 148, 77, 77, 80, 157, 52, 0, 0, 37, 148, 77, 77, 80, 157, 52, 91, 91, 141, 9, 207, 207, 223, 57, 221, 182,
        182, 245, 126, 81, 81, 110, 213, 134, 182, 182, 245, 126, 81, 81, 110, 213, 134, 17, 17, 93, 243, 211, 211, 253, 113,
        47, 108, 108, 197, 104, 85, 85, 140, 13, 216}},
      {Interpolation::kNearest, 5, 3,
       {0, 148, 80, 91, 9, 223, 182, 126, 110, 17, 243, 253, 108, 104, 140}},
      {Interpolation::kNearest, 8, 5,
       {0, 37, 148, 80, 157, 0, 37, 148, 80, 157, 91, 141, 9, 223, 57, 91, 141, 9, 223, 57, 182, 245, 126, 110, 213, 17, 93,
        243, 253, 113, 17, 93, 243, 253, 113, 108, 197, 104, 140, 13}},
      {Interpolation::kNearest, 4, 9,
       {0, 0, 37, 148, 77, 77, 80, 157, 52, 91, 91, 141, 9, 207, 207, 223, 57, 221, 182, 182, 245, 126, 81, 81, 110, 213, 134,
        17, 17, 93, 243, 211, 211, 253, 113, 47}},
      {Interpolation::kCubic, 3, 4,
       {36, 103, 132, 112, 213, 112, 99, 169, 101, 151, 188, 106}},
      {Interpolation::kCubic, 7, 9,
       {0, 3, 97, 154, 67, 56, 136, 136, 30, 40, 76, 68, 74, 166, 185, 116, 96, 164, 129, 188, 106, 34, 182, 214, 129, 120,
        229, 178, 238, 203, 104, 81, 93, 178, 200, 129, 50, 92, 184, 233, 185, 220, 200, 115, 40, 32, 86, 165, 198, 172, 226,
        130, 58, 112, 109, 189, 167, 77, 75, 132, 42, 62, 244}},
      {Interpolation::kCubic, 5, 3,
       {13, 77, 132, 140, 207, 90, 238, 81, 200, 52, 211, 77, 179, 85, 63}},
      {Interpolation::kCubic, 8, 5,
       {0, 122, 65, 115, 62, 39, 73, 143, 130, 125, 112, 46, 206, 150, 191, 192, 136, 110, 152, 178, 152, 203, 111, 181, 112,
        31, 195, 209, 211, 55, 70, 169, 150, 140, 117, 135, 144, 73, 70, 189}},
      {Interpolation::kCubic, 4, 9,
       {6, 25, 91, 133, 92, 89, 132, 127, 66, 141, 202, 119, 38, 167, 196, 135, 133, 221, 68, 112, 190, 220, 170, 201, 201,
        130, 46, 91, 164, 167, 108, 99, 155, 66, 63, 209}},
      {Interpolation::kLanczos4, 3, 4,
       {25, 105, 141, 105, 214, 112, 98, 170, 92, 145, 201, 96}},
      {Interpolation::kLanczos4, 7, 9,
       {0, 2, 103, 157, 62, 39, 146, 141, 27, 28, 70, 63, 75, 177, 206, 110, 88, 162, 131, 208, 104, 16, 177, 224, 111, 121,
        242, 176, 238, 206, 104, 81, 91, 182, 199, 127, 51, 84, 194, 237, 179, 204, 212, 117, 31, 28, 77, 163, 188, 183, 242,
        128, 44, 122, 112, 195, 176, 65, 70, 138, 39, 60, 248}},
      {Interpolation::kLanczos4, 5, 3,
       {8, 77, 133, 151, 207, 89, 238, 81, 199, 49, 211, 73, 179, 85, 57}},
      {Interpolation::kLanczos4, 8, 5,
       {0, 129, 59, 125, 63, 28, 71, 153, 130, 119, 122, 46, 204, 133, 190, 208, 133, 106, 141, 188, 144, 213, 107, 191, 104,
        26, 205, 207, 218, 49, 60, 170, 160, 141, 113, 144, 153, 67, 63, 189}},
      {Interpolation::kLanczos4, 4, 9,
       {4, 17, 90, 135, 95, 88, 135, 124, 64, 145, 223, 118, 18, 161, 205, 118, 134, 236, 67, 102, 200, 227, 164, 184, 214,
        132, 33, 86, 160, 171, 100, 103, 169, 62, 53, 213}},
  };
  Image from{.shape = {1, 5, 7}, .planes = {}};
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 7; ++x) from.planes.push_back(static_cast<std::uint8_t>((x * x * 37 + y * 91 + x * y * 13) % 256));
  }
  for (const Case& expected : cases) {
    SCOPED_TRACE(std::to_string(static_cast<int>(expected.interpolation)) + " " + std::to_string(expected.height) + "x" + std::to_string(expected.width));
    Image scaled;
    ASSERT_TRUE(ResizeBy(expected.interpolation, from, expected.height, expected.width, &scaled).ok());
    ASSERT_EQ(scaled.planes.size(), expected.planes.size());
    const int either = expected.interpolation == Interpolation::kCubic || expected.interpolation == Interpolation::kLanczos4 ? 1 : 0;
    for (std::size_t i = 0; i < scaled.planes.size(); ++i) EXPECT_NEAR(scaled.planes[i], expected.planes[i], either) << i;
  }
}

TEST(DecodeImage, SaysWhatIsWrong) {
  EXPECT_EQ(Refusal("no image"), "the file cannot be decoded: its 8 bytes are no JPEG and no PNG");
  EXPECT_EQ(Refusal(""), "the file cannot be decoded: its 0 bytes are no JPEG and no PNG");
  const std::string jpeg = ColourJpeg();
  EXPECT_EQ(Refusal(jpeg.substr(0, jpeg.size() - 40)),
            "the file cannot be decoded: the JPEG data is not valid (Premature end of JPEG file)");
  const std::string png = InterlacedPng();
  EXPECT_EQ(Refusal(png.substr(0, png.size() - 40)), "the file cannot be decoded: the PNG data is not valid (it ends early)");
}

std::string BigEndian32(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

// The header of a PNG is checksummed; a file whose header says what it does not hold is a few bytes long.
std::string PngOfSize(std::uint32_t height, std::uint32_t width) {
  std::string png = InterlacedPng();
  png.replace(16, 8, BigEndian32(width) + BigEndian32(height));
  const auto sum = static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const unsigned char*>(png.data()) + 12, 17));
  return png.replace(29, 4, BigEndian32(sum));
}

TEST(DecodeImage, AsksForNoMemoryThatTheFileCannotFill) {
  EXPECT_THAT(Refusal(PngOfSize(30000, 30000)), HasSubstr("are too few for its pixels"));
  EXPECT_THAT(Refusal(PngOfSize(2'000'000'000, 1)), HasSubstr("the PNG data is not valid"));
  std::string jpeg = ColourJpeg();
  const std::size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\x00\xFF\x00", 4);
  EXPECT_EQ(Refusal(jpeg), "the file cannot be decoded: it is 3x65280x65280, expected at most 134217728 pixels");
}

// Whatever is done to the bytes, there is an image or a sentence.
TEST(DecodeImage, SurvivesDamage) {
  std::minstd_rand random(1);
  int whole = 0, refused = 0;
  for (const Expected& expected : Files()) {
    for (std::size_t length = 0; length < expected.file.size(); length += 3) {
      Image image;
      const Status status = DecodeImage(expected.file.substr(0, length), Channels::kColour, "x", &image);
      EXPECT_FALSE(status.ok()) << expected.name << " of " << length << " bytes";
    }
    for (int turn = 0; turn < 400; ++turn) {
      std::string bytes = expected.file;
      for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      Image image;
      const Status status = DecodeImage(bytes, static_cast<Channels>(turn % 3), "x", &image);
      (status.ok() ? whole : refused) += 1;
      EXPECT_EQ(status.ok(), status.message().empty());
      EXPECT_TRUE(!status.ok() || image.planes.size() == static_cast<std::size_t>(image.shape.count()));
    }
  }
  EXPECT_GT(whole, 100);
  EXPECT_GT(refused, 100);
}

TEST(ReadImageFile, ReadsAndScales) {
  TestFolder folder;
  std::ofstream(folder / "a.jpg", std::ios::binary) << ColourJpeg();
  std::ofstream(folder / "b.jpg", std::ios::binary) << ColourJpeg().substr(0, 300);
  Image image;
  ASSERT_TRUE(ReadImageFile(folder / "a.jpg", Channels::kColour, {7, 9}, &image).ok());
  EXPECT_EQ(Sum(image), 0xd4cb2376);
  ASSERT_TRUE(ReadImageFile(folder / "a.jpg", Channels::kGrey, {}, &image).ok());
  EXPECT_EQ(Sum(image), 0x123b15feu);
  EXPECT_THAT(ReadImageFile(folder / "b.jpg", Channels::kColour, {}, &image).message(), HasSubstr("b.jpg cannot be decoded: "));
  EXPECT_THAT(ReadImageFile(folder / "c.jpg", Channels::kColour, {}, &image).message(),
              HasSubstr("c.jpg cannot be read: No such file or directory"));
  EXPECT_THAT(ReadImageFile(folder.path(), Channels::kColour, {}, &image).message(), HasSubstr(" is no file"));
}

}  // namespace
}  // namespace poseidon::caffe
