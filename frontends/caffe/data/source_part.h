// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_SOURCE_PART_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_SOURCE_PART_H_

#include <cstdint>
#include <string>

#include "frontends/caffe/data/data_share.h"
#include "poseidon/base/result.h"

// Sources that were divided before training, as Poseidon-Caffe (2015) and its partition_data do: worker k has SOURCE_k to itself.
//
// A source that is there is everybody's, whatever shared_file_system says. Where it is not there, and shared_file_system is
// not true, worker k of P opens SOURCE_k. There are as many parts as workers; on its host a worker needs its own alone.
namespace poseidon::caffe {

// What a worker opens.
struct SourcePart {
  std::string path;
  std::string suffix;  // "_k" behind the source's name; empty: the source itself
  bool own = false;    // it is this worker's alone
};

// kInvalidArgument naming the parts where worker `rank` of `world` has none and others have, or where there are more parts than
// workers. Where there is neither source nor part, the source, which then cannot be opened.
Result<SourcePart> PartOf(const std::string& source, bool shared_file_system, int rank, int world);

// SOURCE_k, also where SOURCE ends in slashes.
std::string PathOfPart(const std::string& source, int part);

// Whether SOURCE_k is there for any k, and SOURCE itself is not.
bool HasParts(const std::string& source);

// The first sample of a worker's batch in its own part, which it reads alone, over and over in key order: in training one
// batch after another, in tests those that are this worker's, every world-th, one after another too.
constexpr std::uint64_t FirstSampleOfPart(std::uint64_t batch, bool training, DataShare share, std::uint64_t rows) {
  return rows * (training ? batch : batch / static_cast<std::uint64_t>(share.world));
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_SOURCE_PART_H_
