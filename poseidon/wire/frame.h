// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_WIRE_FRAME_H_
#define POSEIDON_WIRE_FRAME_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "poseidon/base/result.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/plan/scheme.h"
#include "poseidon/tensor/dtype.h"

// The bytes on the wire between two members: frames, each a header of 64 bytes and a payload of at
// most 1 MiB. docs/wire-protocol.md has the picture; no other code knows the layout.
// Pure functions; thread: any.
namespace poseidon::wire {

inline constexpr std::uint16_t kMagic = 0x5350;  // "PS"
inline constexpr std::uint8_t kVersion = 9;
inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::uint32_t kMaxPayload = 1u << 20;

// Numbers are part of the protocol.
enum class FrameType : std::uint8_t {
  kControl = 1,    // a message of wire/messages.h, in one or more frames (offset, total)
  kHeartbeat = 2,  // no payload; proves that the sender's I/O thread lives
  kPush = 3,       // part of a rank's contribution to a slice
  kResult = 4,     // part of a slice's sum
  kFactor = 5,     // part of a rank's factor u or v
  kProbe = 6,      // bytes sent to measure the link at start-up
  kLocal = 7,      // no payload; a share (to a leader of the host) or the mean (from it) is in the host's memory
  kGrant = 8,      // no payload; how far (offset) the receiver may send its contribution to a slice that it holds back
};

// Bits of FrameHeader::flags.
inline constexpr std::uint16_t kFlagAbsent = 1;  // the sender contributes nothing: no payload
inline constexpr std::uint16_t kFlagFactorV = 2;  // a kFactor frame carries v; without it, u
inline constexpr std::uint16_t kFlagHeld = 4;  // of a kPush: the sender holds back the rest of the slice
inline constexpr std::uint16_t kFlagMean = 8;  // of a kLocal: the mean is there, and not a share
inline constexpr std::uint16_t kKnownFlags = kFlagAbsent | kFlagFactorV | kFlagHeld | kFlagMean;

// The model of one-off keys (broadcast, sums of metrics, barrier, gather): `layer` counts them.
inline constexpr ModelId kCollectiveModel{0xffff};

// The subject of a frame of a gradient, factors or a sum: a declared layer of a model, or a one-off key of
// kCollectiveModel.
struct Key {
  ModelId model;
  LayerId layer;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// Little-endian on the wire, in this order; see docs/wire-protocol.md for the offsets. Behind the flags are four bytes of 0.
// The transport protects payloads.
struct FrameHeader {
  FrameType type = FrameType::kControl;
  std::uint32_t length = 0;  // payload bytes of this frame, <= kMaxPayload
  Generation generation;
  // Of a factor that is compressed (factors/zero_compression.h): its words of 4 bytes before. 0: as it is.
  std::uint32_t words = 0;
  Step step;
  ModelId model;
  Rank rank;            // whose contribution this is (push, factor, local); a host's number where hosts contribute
  LayerId layer;
  std::uint64_t offset = 0;  // of this payload's first byte within the whole (layer, factor, message)
  // Bytes of the whole, as it travels. A factor's are those of its rank's rows, unless it is compressed, so they say
  // how many rows there are; so are those of a share of factors in the segment (local).
  std::uint64_t total = 0;
  std::uint32_t weight = 0;  // of the contribution in the mean (push, factor, local); 0 none
  DType dtype = DType::kF32;
  plan::Scheme scheme = plan::Scheme::kKeyValue;
  std::uint16_t flags = 0;

  Key key() const { return {model, layer}; }
  bool compressed() const { return words != 0; }
  // Bytes of the whole where it is not compressed, or was not before.
  std::uint64_t whole_bytes() const { return compressed() ? std::uint64_t{4} * words : total; }

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Writes the 64 bytes, the last four a CRC-32C of the first 60.
void EncodeHeader(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out);

// kDataLoss with a reason for anything that EncodeHeader cannot have written: magic, version, CRC,
// unknown type, dtype, scheme or flag, a compressed frame of no factor, reserved bytes that are not 0, a length above kMaxPayload or beyond `total`.
Result<FrameHeader> DecodeHeader(std::span<const std::byte, kHeaderBytes> bytes);

}  // namespace poseidon::wire

#endif  // POSEIDON_WIRE_FRAME_H_
