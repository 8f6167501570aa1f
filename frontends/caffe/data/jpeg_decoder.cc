// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <string>

#include <jpeglib.h>  // needs size_t and FILE

#include <jerror.h>

#include "frontends/caffe/data/image_formats.h"
#include "frontends/caffe/data/pixels.h"

namespace poseidon::caffe {
namespace {

// A file of a few bytes may announce scans without end, each of which goes over the whole image.
constexpr int kMostScans = 1000;
constexpr long kMostMemory = 1L << 30;  // that libjpeg itself takes, for the coefficients of progressive files

// libjpeg's state and the place where its errors jump to. Nothing between that place and libjpeg has a destructor.
struct JpegReader {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf failed;
  char why[JMSG_LENGTH_MAX];
};

JpegReader* JpegReaderOf(j_common_ptr jpeg) { return static_cast<JpegReader*>(jpeg->client_data); }

[[noreturn]] void FailJpeg(j_common_ptr jpeg) {
  (*jpeg->err->format_message)(jpeg, JpegReaderOf(jpeg)->why);
  std::longjmp(JpegReaderOf(jpeg)->failed, 1);
}

// Warnings pass, as in OpenCV, but for the end of the bytes: what libjpeg puts after it is no image.
void WarnJpeg(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) FailJpeg(jpeg);
}

void CountScans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMostScans) return;
  std::snprintf(JpegReaderOf(jpeg)->why, JMSG_LENGTH_MAX, "it has more than %d scans", kMostScans);
  std::longjmp(JpegReaderOf(jpeg)->failed, 1);
}

// The rest of libjpeg's message starts with a capital letter and has no stop.
Status JpegFailure(const JpegReader& reader) { return DataLoss(std::string("the JPEG data is not valid (") + reader.why + ")"); }

void StartJpeg(std::string_view file, JpegReader* reader) {
  reader->jpeg.err = jpeg_std_error(&reader->errors);
  reader->errors.error_exit = FailJpeg;
  reader->errors.emit_message = WarnJpeg;
  reader->jpeg.client_data = reader;
  jpeg_create_decompress(&reader->jpeg);  // keeps these two
  reader->jpeg.mem->max_memory_to_use = kMostMemory;
  reader->progress.progress_monitor = CountScans;
  reader->jpeg.progress = &reader->progress;
  jpeg_mem_src(&reader->jpeg, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_save_markers(&reader->jpeg, JPEG_APP0 + 1, 0xFFFF);  // EXIF's
}

// What of the file comes before the pixels. False: it is not valid.
bool ReadJpegHeader(std::string_view file, JpegReader* reader) {
  if (setjmp(reader->failed) != 0) return false;
  StartJpeg(file, reader);
  jpeg_read_header(&reader->jpeg, TRUE);
  return true;
}

// Four components stay cyan, magenta, yellow and black, which libjpeg does not turn into colours.
void ChooseColours(bool colour, jpeg_decompress_struct* jpeg) {
  if (jpeg->num_components == 4) {
    jpeg->out_color_space = JCS_CMYK;
  } else {
    jpeg->out_color_space = colour ? JCS_RGB : JCS_GRAYSCALE;
  }
}

bool ReadJpegRows(JpegReader* reader, const Planes& planes) {
  if (setjmp(reader->failed) != 0) return false;
  jpeg_decompress_struct& jpeg = reader->jpeg;
  ChooseColours(planes.channels == 3, &jpeg);
  jpeg_start_decompress(&jpeg);
  JSAMPARRAY row = (*jpeg.mem->alloc_sarray)(reinterpret_cast<j_common_ptr>(&jpeg), JPOOL_IMAGE,
                                             jpeg.output_width * static_cast<JDIMENSION>(jpeg.output_components), 1);
  while (jpeg.output_scanline < jpeg.output_height) {
    const auto y = static_cast<std::int64_t>(jpeg.output_scanline);
    if (jpeg_read_scanlines(&jpeg, row, 1) != 1) return false;
    if (jpeg.out_color_space == JCS_CMYK) {
      WriteCmykRow(row[0], y, planes);
    } else if (planes.channels == 3) {
      WriteRgbRow(row[0], y, planes);
    } else {
      WriteGreyRow(row[0], y, planes);
    }
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

int JpegOrientation(const jpeg_decompress_struct& jpeg) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with(kExif)) return ExifOrientation(data.substr(kExif.size()));
  }
  return 1;
}

Status DecodeJpegRows(JpegReader* reader, Channels channels, Image* image) {
  const jpeg_decompress_struct& jpeg = reader->jpeg;
  const bool colour = channels == Channels::kColour || (channels == Channels::kAsStored && jpeg.num_components > 1);
  const ImageShape shape{colour ? 3 : 1, static_cast<std::int64_t>(jpeg.image_height), static_cast<std::int64_t>(jpeg.image_width)};
  POSEIDON_RETURN_IF_ERROR(Allocate(shape, image));
  return ReadJpegRows(reader, PlanesOf(image)) ? OkStatus() : JpegFailure(*reader);
}

}  // namespace

bool IsJpeg(std::string_view file) { return file.starts_with("\xFF\xD8\xFF"); }

Status DecodeJpeg(std::string_view file, Channels channels, Image* image, int* orientation) {
  JpegReader reader{};
  struct Destroy {
    JpegReader& reader;
    ~Destroy() { jpeg_destroy_decompress(&reader.jpeg); }
  } const destroy{reader};
  if (!ReadJpegHeader(file, &reader)) return JpegFailure(reader);
  *orientation = JpegOrientation(reader.jpeg);
  return DecodeJpegRows(&reader, channels, image);
}

}  // namespace poseidon::caffe
