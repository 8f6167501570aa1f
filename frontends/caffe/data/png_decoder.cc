// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "frontends/caffe/data/image_formats.h"
#include "frontends/caffe/data/pixels.h"

namespace poseidon::caffe {
namespace {

// libpng's state and the bytes that it reads. Nothing between setjmp and libpng has a destructor.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  png_infop end = nullptr;  // what comes after the pixels
  const char* next = nullptr;
  std::size_t left = 0;
  char why[256] = {};

  ~PngReader() { png_destroy_read_struct(&png, &info, &end); }
};

[[noreturn]] void FailPng(png_structp png, png_const_charp why) {
  auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader->why, why, sizeof reader->why - 1);
  png_longjmp(png, 1);
}

void PassPng(png_structp, png_const_charp) {}  // warnings, as in OpenCV

void ReadPng(png_structp png, png_bytep out, std::size_t bytes) {
  auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (bytes > reader->left) png_error(png, "it ends early");
  std::memcpy(out, reader->next, bytes);
  reader->next += bytes;
  reader->left -= bytes;
}

Status PngFailure(const PngReader& reader) { return DataLoss(std::string("the PNG data is not valid (") + reader.why + ")"); }

bool ReadPngHeader(PngReader* reader) {
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  png_set_read_fn(reader->png, reader, ReadPng);
  png_read_info(reader->png, reader->info);
  return true;
}

// How many channels OpenCV has for the file under IMREAD_UNCHANGED.
int StoredChannels(const PngReader& reader) {
  switch (png_get_color_type(reader.png, reader.info)) {
    case PNG_COLOR_TYPE_GRAY: return 1;
    case PNG_COLOR_TYPE_RGB:
    case PNG_COLOR_TYPE_PALETTE: return png_get_valid(reader.png, reader.info, PNG_INFO_tRNS) != 0 ? 4 : 3;
    default: return 4;
  }
}

// OpenCV's choices (imgcodecs/src/grfmt_png.cpp): the high byte of 16 bits, no alpha unless four channels are wanted, grey
// of colours by libpng with the weights 0.299 and 0.587.
void ChooseTransformations(std::int64_t channels, PngReader* reader) {
  png_structp png = reader->png;
  const int type = png_get_color_type(png, reader->info);
  if (png_get_bit_depth(png, reader->info) == 16) png_set_strip_16(png);
  if (channels < 4) {
    png_set_strip_alpha(png);
  } else {
    png_set_tRNS_to_alpha(png);
  }
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  const bool grey = (type & PNG_COLOR_MASK_COLOR) == 0;
  if (grey && png_get_bit_depth(png, reader->info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (channels == 1) {
    png_set_rgb_to_gray(png, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
  } else if (grey) {
    png_set_gray_to_rgb(png);
  }
}

bool TransformPng(std::int64_t channels, PngReader* reader) {
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  ChooseTransformations(channels, reader);
  png_set_interlace_handling(reader->png);
  png_read_update_info(reader->png, reader->info);
  return true;
}

void WritePngRow(const std::uint8_t* row, std::int64_t y, const Planes& planes) {
  if (planes.channels == 1) return WriteGreyRow(row, y, planes);
  if (planes.channels == 3) return WriteRgbRow(row, y, planes);
  constexpr int kPlaces[] = {2, 1, 0, 3};  // of red, green, blue and alpha
  for (std::int64_t x = 0; x < planes.width; ++x) {
    for (int c = 0; c < 4; ++c) planes.Row(kPlaces[c], y)[x] = row[4 * x + c];
  }
}

// `rows` has room for one row, or for all of them where the image is interlaced and rows come several times.
bool ReadPngRows(PngReader* reader, std::uint8_t* rows, std::size_t stride, const Planes& planes) {
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  const bool interlaced = png_get_interlace_type(reader->png, reader->info) != PNG_INTERLACE_NONE;
  const int passes = interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1;
  for (int pass = 0; pass < passes; ++pass) {
    for (std::int64_t y = 0; y < planes.height; ++y) {
      std::uint8_t* const row = interlaced ? rows + static_cast<std::size_t>(y) * stride : rows;
      png_read_row(reader->png, row, nullptr);
      if (pass == passes - 1) WritePngRow(row, y, planes);
    }
  }
  png_read_end(reader->png, reader->end);
  return true;
}

// Deflate makes a byte of at most 1032: fewer bytes than that are no whole image, and no memory is asked for.
Status CheckPngLength(const PngReader& reader, std::int64_t height, std::size_t bytes) {
  const auto row = static_cast<std::uint64_t>(png_get_rowbytes(reader.png, reader.info));
  if (row * static_cast<std::uint64_t>(height) / 1032 <= bytes) return OkStatus();
  return DataLoss("the PNG data is not valid (" + std::to_string(bytes) + " bytes are too few for its pixels)");
}

Status DecodePngRows(PngReader* reader, std::size_t bytes, Channels channels, Image* image) {
  const int stored = StoredChannels(*reader);
  if (channels == Channels::kAsStored && png_get_bit_depth(reader->png, reader->info) == 16) {
    return DataLoss("it has 16 bits a channel, expected 8");
  }
  const ImageShape shape{channels == Channels::kAsStored ? stored : channels == Channels::kColour ? 3 : 1,
                         png_get_image_height(reader->png, reader->info), png_get_image_width(reader->png, reader->info)};
  POSEIDON_RETURN_IF_ERROR(CheckPngLength(*reader, shape.height, bytes));
  POSEIDON_RETURN_IF_ERROR(Allocate(shape, image));
  if (!TransformPng(shape.channels, reader)) return PngFailure(*reader);
  const std::size_t stride = png_get_rowbytes(reader->png, reader->info);
  if (stride != static_cast<std::size_t>(shape.channels * shape.width)) return Internal("the row of a PNG has another length");
  const bool interlaced = png_get_interlace_type(reader->png, reader->info) != PNG_INTERLACE_NONE;
  std::vector<std::uint8_t> rows(interlaced ? stride * static_cast<std::size_t>(shape.height) : stride);
  return ReadPngRows(reader, rows.data(), stride, PlanesOf(image)) ? OkStatus() : PngFailure(*reader);
}

int PngOrientation(const PngReader& reader) {
  png_uint_32 bytes = 0;
  png_bytep exif = nullptr;
  for (png_infop info : {reader.info, reader.end}) {
    if (png_get_eXIf_1(reader.png, info, &bytes, &exif) != 0 && exif != nullptr) {
      return ExifOrientation({reinterpret_cast<const char*>(exif), bytes});
    }
  }
  return 1;
}

}  // namespace

bool IsPng(std::string_view file) { return file.starts_with("\x89PNG\r\n\x1A\n"); }

Status DecodePng(std::string_view file, Channels channels, Image* image, int* orientation) {
  PngReader reader;
  reader.next = file.data();
  reader.left = file.size();
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, FailPng, PassPng);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info != nullptr) reader.end = png_create_info_struct(reader.png);
  if (reader.end == nullptr) return ResourceExhausted("out of memory");
  if (!ReadPngHeader(&reader)) return PngFailure(reader);
  POSEIDON_RETURN_IF_ERROR(DecodePngRows(&reader, file.size(), channels, image));
  *orientation = PngOrientation(reader);
  return OkStatus();
}

}  // namespace poseidon::caffe
