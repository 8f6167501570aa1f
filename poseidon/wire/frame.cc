// SPDX-License-Identifier: Apache-2.0
#include "poseidon/wire/frame.h"

#include <bit>
#include <cstring>
#include <string>

#include "poseidon/base/bytes.h"

namespace poseidon::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the codec copies little-endian numbers");

template <typename T>
void Put(std::byte*& at, T value) {
  std::memcpy(at, &value, sizeof(T));
  at += sizeof(T);
}

template <typename T>
T Take(const std::byte*& at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  at += sizeof(T);
  return value;
}

constexpr std::uint32_t kReserved = 0;
constexpr std::size_t kChecked = kHeaderBytes - sizeof(std::uint32_t);

bool IsFrameType(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(FrameType::kControl) &&
         type <= static_cast<std::uint8_t>(FrameType::kGrant);
}

// The checksum finds bytes that changed on the way by accident. It says nothing about what a faulty peer or a relay
// (docs/security.md) computed it over, so every field is checked.
Status CheckFields(const FrameHeader& h, std::uint32_t reserved) {
  const auto number = [](auto value) { return std::to_string(static_cast<std::uint8_t>(value)); };
  if (!IsFrameType(static_cast<std::uint8_t>(h.type))) return DataLoss("frame has unknown type " + number(h.type));
  if (!IsValid(h.dtype)) return DataLoss("frame has unknown dtype " + number(h.dtype));
  if (!plan::IsValid(h.scheme)) return DataLoss("frame has unknown scheme " + number(h.scheme));
  // A flag changes what the payload is (kFlagFactorV), so one that is not known cannot be skipped.
  if ((h.flags & ~kKnownFlags) != 0) return DataLoss("frame has unknown flags " + std::to_string(h.flags));
  if (reserved != kReserved) return DataLoss("frame has reserved bytes that are not 0");
  if (h.compressed() && h.type != FrameType::kFactor) return DataLoss("frame is compressed, but no factor");
  if (h.length > kMaxPayload) {
    return DataLoss("frame announces " + std::to_string(h.length) + " bytes, at most " + std::to_string(kMaxPayload) +
                    " are allowed");
  }
  // Subtraction, not addition: offset + length may wrap.
  if (h.offset > h.total || h.length > h.total - h.offset) {
    return DataLoss("frame reaches beyond the " + std::to_string(h.total) + " bytes of its whole");
  }
  return OkStatus();
}

}  // namespace

void EncodeHeader(const FrameHeader& h, std::span<std::byte, kHeaderBytes> out) {
  std::byte* at = out.data();
  Put(at, kMagic);
  Put(at, kVersion);
  Put(at, static_cast<std::uint8_t>(h.type));
  Put(at, h.length);
  Put(at, h.generation.value());
  Put(at, h.words);
  Put(at, h.step.value());
  Put(at, h.model.value());
  Put(at, h.rank.value());
  Put(at, h.layer.value());
  Put(at, h.offset);
  Put(at, h.total);
  Put(at, h.weight);
  Put(at, static_cast<std::uint8_t>(h.dtype));
  Put(at, static_cast<std::uint8_t>(h.scheme));
  Put(at, h.flags);
  Put(at, kReserved);
  Put(at, Crc32c(out.first(kChecked)));
}

Result<FrameHeader> DecodeHeader(std::span<const std::byte, kHeaderBytes> bytes) {
  const std::byte* at = bytes.data();
  // Magic and version are checked before the checksum, because another version may keep its checksum elsewhere, and
  // its sender is to be refused for its version.
  if (Take<std::uint16_t>(at) != kMagic) return DataLoss("frame header has a wrong magic number");
  if (const auto version = Take<std::uint8_t>(at); version != kVersion) {
    return DataLoss("frame header has version " + std::to_string(version) + ", expected " +
                    std::to_string(kVersion));
  }
  FrameHeader h;
  h.type = static_cast<FrameType>(Take<std::uint8_t>(at));
  h.length = Take<std::uint32_t>(at);
  h.generation = Generation(Take<std::uint32_t>(at));
  h.words = Take<std::uint32_t>(at);
  h.step = Step(Take<std::uint64_t>(at));
  h.model = ModelId(Take<std::uint16_t>(at));
  h.rank = Rank(Take<std::uint16_t>(at));
  h.layer = LayerId(Take<std::uint32_t>(at));
  h.offset = Take<std::uint64_t>(at);
  h.total = Take<std::uint64_t>(at);
  h.weight = Take<std::uint32_t>(at);
  h.dtype = static_cast<DType>(Take<std::uint8_t>(at));
  h.scheme = static_cast<plan::Scheme>(Take<std::uint8_t>(at));
  h.flags = Take<std::uint16_t>(at);
  const auto reserved = Take<std::uint32_t>(at);
  if (Take<std::uint32_t>(at) != Crc32c(bytes.first(kChecked))) {
    return DataLoss("frame header fails its checksum");
  }
  POSEIDON_RETURN_IF_ERROR(CheckFields(h, reserved));
  return h;
}

}  // namespace poseidon::wire
