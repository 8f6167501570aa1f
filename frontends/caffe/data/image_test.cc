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
