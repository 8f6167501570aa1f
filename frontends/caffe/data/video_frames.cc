// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/video_frames.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <istream>
#include <utility>

#include "frontends/caffe/data/list_lines.h"

namespace poseidon::caffe {
namespace {

constexpr std::size_t kMostDigits = 20;

struct Video {
  std::string folder;
  std::int64_t frames = 0;
  std::int32_t label = 0;
};

Result<std::vector<Video>> ReadVideos(const std::string& path) {
  const std::string expected = "a folder, how many frames it has, and a label";
  const ListWords words{.list = "list of videos", .entry = "video", .expected = expected, .lines = "lines with " + expected};
  return ReadListLines<Video>(path, words, [](std::istream& line, Video* video) {
    std::string more;
    return line >> video->folder >> video->frames >> video->label && !(line >> more) && video->frames >= 1;
  });
}

// A pattern as printf has it, in pieces.
struct FrameNames {
  std::string before, between, behind;  // the letter, if there is one, is before `between`
  bool has_letter = false;
  std::size_t digits = 0;

  std::string Name(std::int64_t number, char letter) const {
    std::string digits_of = std::to_string(number);
    if (digits_of.size() < digits) digits_of.insert(0, digits - digits_of.size(), '0');
    return before + (has_letter ? std::string(1, letter) : "") + between + digits_of + behind;
  }
};

Result<FrameNames> ReadPattern(const std::string& pattern, bool flow) {
  const std::string expected = flow ? "a %c for x and y and then a number as in %04d" : "a number as in %04d";
  const Status refused = InvalidArgument("name_pattern is '" + pattern + "', expected " + expected);
  FrameNames names;
  std::string rest = pattern;
  if (const auto letter = rest.find("%c"); flow) {
    if (letter == std::string::npos) return refused;
    names.before = rest.substr(0, letter);
    names.has_letter = true;
    rest.erase(0, letter + 2);
  }
  const auto number = rest.find('%');
  if (number == std::string::npos) return refused;
  names.between = rest.substr(0, number);
  rest.erase(0, number + 1);
  std::size_t at = 0;
  for (; at < rest.size() && std::isdigit(static_cast<unsigned char>(rest[at])) != 0; ++at) {
    names.digits = 10 * names.digits + static_cast<std::size_t>(rest[at] - '0');
  }
  if (at > 2 || (at > 0 && rest[0] != '0') || names.digits > kMostDigits || at == rest.size() || rest[at] != 'd') return refused;
  names.behind = rest.substr(at + 1);
  if ((names.before + names.between + names.behind).find('%') != std::string::npos) return refused;
  return names;
}

class VideoFrames final : public SampleSource {
 public:
  VideoFrames(std::vector<Video> videos, FrameNames names, VideoFramesOptions options, Transformer transformer)
      : videos_(std::move(videos)), names_(std::move(names)), options_(std::move(options)), transformer_(std::move(transformer)),
        order_(videos_.size(), options_.shuffle), name_("list of videos " + options_.list) {}

  const std::string& name() const override { return name_; }
  std::unique_ptr<SampleReader> MakeReader() override;
  std::string OriginOf(std::uint64_t number) const override {
    EpochOrder order(videos_.size(), options_.shuffle);  // another than the readers' own, who may be at work
    const std::uint64_t entry = order.At(number);
    return "video " + videos_[entry].folder + " of " + Where(entry);
  }

  // For the reader that fetches.
  std::uint64_t EntryOf(std::uint64_t number) { return order_.At(number); }
  const Video& video(std::uint64_t entry) const { return videos_[entry]; }
  std::string Where(std::uint64_t entry) const { return "list " + options_.list + ", video " + std::to_string(entry + 1); }
  std::string FileOf(const Video& video, std::int64_t frame, char letter) const {
    return options_.root_folder + video.folder + "/" + names_.Name(frame, letter);
  }
  const VideoFramesOptions& options() const { return options_; }
  const Transformer& transformer() const { return transformer_; }

 private:
  const std::vector<Video> videos_;
  const FrameNames names_;
  const VideoFramesOptions options_;
  const Transformer transformer_;
  EpochOrder order_;
  const std::string name_;
};

class VideoReader final : public SampleReader {
 public:
  explicit VideoReader(VideoFrames* videos) : videos_(videos), options_(videos->options()) {}

  Status Fetch(std::uint64_t number) override {
    number_ = number;
    entry_ = videos_->EntryOf(number);
    where_ = videos_->Where(entry_) + ": " + videos_->video(entry_).folder;
    return OkStatus();
  }
  Status Decode(Sample* sample) override {
    const Status decoded = DecodeVideo(sample);
    return decoded.ok() ? decoded : decoded.WithPrefix(videos_->Where(entry_));
  }
  const std::string& where() const override { return where_; }
  bool compressed() const override { return true; }

 private:
  struct Sides {
    std::int64_t height, width;
  };

  Status DecodeVideo(Sample* sample) {
    const Video& video = videos_->video(entry_);
    RandomSequence draws(options_.blocks, number_, 0);
    POSEIDON_RETURN_IF_ERROR(ReadFrames(video, &draws));
    if (options_.crop > 0) POSEIDON_RETURN_IF_ERROR(Crop(&draws));
    if (options_.mirror && draws.NextBelow(2) == 1) Mirror();
    const Sample pixels{.shape = image_.shape, .bytes = image_.planes.data()};
    POSEIDON_ASSIGN_OR_RETURN(const ImageShape shape, videos_->transformer().OutputShape(pixels.shape, video.folder));
    numbers_.resize(static_cast<std::size_t>(shape.count()));
    videos_->transformer().Apply(pixels, {}, numbers_.data());
    *sample = {.shape = shape, .floats = numbers_.data(), .label = video.label};
    return OkStatus();
  }

  // One image of all the frames' planes.
  Status ReadFrames(const Video& video, RandomSequence* draws) {
    image_.planes.clear();
    image_.shape = {};
    const std::int64_t each = video.frames / options_.segments;
    for (std::int64_t segment = 0; segment < options_.segments; ++segment) {
      std::int64_t first = 0;  // of a video that is too short for its segments
      if (each >= options_.length) {
        const std::int64_t room = each - options_.length + 1;
        first = segment * each + (options_.trains ? static_cast<std::int64_t>(draws->NextBelow(static_cast<std::uint64_t>(room))) : room / 2);
      }
      for (std::int64_t i = 1; i <= options_.length; ++i) {
        for (const char letter : options_.flow ? std::vector<char>{'x', 'y'} : std::vector<char>{'x'}) {
          POSEIDON_RETURN_IF_ERROR(AddFrame(videos_->FileOf(video, first + i, letter)));
        }
      }
    }
    return OkStatus();
  }

  Status AddFrame(const std::string& path) {
    POSEIDON_RETURN_IF_ERROR(ReadImageFile(path, options_.flow ? Channels::kGrey : Channels::kColour, options_.size, &frame_));
    if (image_.shape.channels > 0 && (frame_.shape.height != image_.shape.height || frame_.shape.width != image_.shape.width)) {
      return InvalidArgument("frame " + path + " is " + std::to_string(frame_.shape.height) + "x" + std::to_string(frame_.shape.width) + ", expected " +
                             std::to_string(image_.shape.height) + "x" + std::to_string(image_.shape.width) + " as the frames before");
    }
    const std::int64_t channels = image_.shape.channels + frame_.shape.channels;
    image_.shape = {channels, frame_.shape.height, frame_.shape.width};
    image_.planes.insert(image_.planes.end(), frame_.planes.begin(), frame_.planes.end());
    return OkStatus();
  }

  Status Crop(RandomSequence* draws) {
    const auto [channels, height, width] = image_.shape;
    const Sides sides = options_.trains && !options_.ratios.empty() ? DrawSides(draws) : Sides{options_.crop, options_.crop};
    if (sides.height > height || sides.width > width || sides.height < 1 || sides.width < 1) {
      return InvalidArgument("frames are " + std::to_string(height) + "x" + std::to_string(width) + ", expected at least the crop's " +
                             std::to_string(sides.height) + "x" + std::to_string(sides.width));
    }
    const Sides room = {height - sides.height, width - sides.width};
    Sides place = {room.height / 2, room.width / 2};
    if (options_.trains && (options_.corners || options_.more_corners)) {
      place = DrawCorner(room, draws);
    } else if (options_.trains) {
      place.height = static_cast<std::int64_t>(draws->NextBelow(static_cast<std::uint64_t>(room.height + 1)));
      place.width = static_cast<std::int64_t>(draws->NextBelow(static_cast<std::uint64_t>(room.width + 1)));
    }
    Image cut = CutOut(image_, place.height, place.width, sides.height, sides.width);
    if (sides.height == options_.crop && sides.width == options_.crop) {
      image_ = std::move(cut);
      return OkStatus();
    }
    return Resize(cut, options_.crop, options_.crop, &image_);
  }

  // Height and width as ratios of the shorter side; within two pixels of the crop they are the crop's.
  Sides DrawSides(RandomSequence* draws) const {
    const auto shorter = static_cast<float>(std::min(image_.shape.height, image_.shape.width));
    const auto side = [&](std::int64_t index) {
      const auto of_ratio = static_cast<std::int64_t>(shorter * options_.ratios[static_cast<std::size_t>(index)]);
      return std::abs(of_ratio - options_.crop) < 3 ? options_.crop : of_ratio;
    };
    std::vector<Sides> all;
    const auto count = static_cast<std::int64_t>(options_.ratios.size());
    for (std::int64_t h = 0; h < count; ++h) {
      for (std::int64_t w = 0; w < count; ++w) {
        if (std::abs(h - w) <= options_.most_apart) all.push_back({side(h), side(w)});
      }
    }
    return all[static_cast<std::size_t>(draws->NextBelow(all.size()))];
  }

  Sides DrawCorner(const Sides& room, RandomSequence* draws) const {
    const Sides quarter = {room.height / 4, room.width / 4};
    // In quarters of the room: corners, centre; middles of the sides, of the quarters.
    constexpr std::int64_t kPlaces[][2] = {{0, 0}, {0, 4}, {4, 0}, {4, 4}, {2, 2}, {0, 2}, {4, 2}, {2, 0}, {2, 4}, {1, 1}, {1, 3}, {3, 1}, {3, 3}};
    const auto& [down, right] = kPlaces[draws->NextBelow(options_.more_corners ? 13 : 5)];
    return {down * quarter.height, right * quarter.width};
  }

  void Mirror() {
    Orient(kMirrored, &image_);
    if (!options_.turns_flow) return;
    const auto plane = image_.shape.height * image_.shape.width;
    for (std::int64_t channel = 0; channel < image_.shape.channels; channel += 2) {
      std::uint8_t* const pixels = image_.planes.data() + channel * plane;
      std::transform(pixels, pixels + plane, pixels, [](std::uint8_t pixel) { return static_cast<std::uint8_t>(255 - pixel); });
    }
  }

  VideoFrames* const videos_;
  const VideoFramesOptions& options_;
  std::uint64_t number_ = 0;
  std::uint64_t entry_ = 0;
  Image image_, frame_;
  std::vector<float> numbers_;
  std::string where_;
};

std::unique_ptr<SampleReader> VideoFrames::MakeReader() { return std::make_unique<VideoReader>(this); }

}  // namespace

Result<std::unique_ptr<SampleSource>> OpenVideoFrames(VideoFramesOptions options, Transformer transformer) {
  POSEIDON_ASSIGN_OR_RETURN(FrameNames names, ReadPattern(options.pattern, options.flow));
  POSEIDON_ASSIGN_OR_RETURN(std::vector<Video> videos, ReadVideos(options.list));
  return std::unique_ptr<SampleSource>(
      std::make_unique<VideoFrames>(std::move(videos), std::move(names), std::move(options), std::move(transformer)));
}

}  // namespace poseidon::caffe
