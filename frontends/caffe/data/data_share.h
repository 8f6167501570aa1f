// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_DATA_SHARE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_DATA_SHARE_H_

#include <cstdint>

namespace poseidon::caffe {

// Which part of every global batch is ours: worker `rank` of `world`. A value, handed down.
struct DataShare {
  int rank = 0;
  int world = 1;
  // Where this division begins: at global batch `since`, `taken` worker batches had been read. Both
  // 0 for a run that began with this number of workers; after a change of `world`, SharesTaken of
  // the division before.
  std::uint64_t since = 0;
  std::uint64_t taken = 0;
};

// How many worker batches all workers together have read before global batch `batch`.
constexpr std::uint64_t SharesTaken(std::uint64_t batch, DataShare share) {
  return share.taken + (batch - share.since) * static_cast<std::uint64_t>(share.world);
}

// Training reads one endless sequence of samples, the database over and over in key order. Global
// batch k (k = step * iter_size + pass) is the next `world * rows` samples of it; worker `rank`
// takes rows [rank * rows, (rank + 1) * rows) of that batch. So `world` workers with batch `rows`
// read what one worker with batch `world * rows` reads, in the same order, and the position is a
// function of the iteration alone. Returns the sample number of the worker's first row.
constexpr std::uint64_t FirstTrainSample(std::uint64_t batch, DataShare share, std::uint64_t rows) {
  return (SharesTaken(batch, share) + static_cast<std::uint64_t>(share.rank)) * rows;
}

// Testing hands out whole batches: batch i of the sequence is samples [i * rows, (i + 1) * rows)
// and belongs to worker i mod world. Batches are counted over all tests of a run, so that a worker with a part of its own reads
// on in the next test where it stopped in the last one, also where test_iter is no multiple of world.
constexpr bool IsTestBatchOf(DataShare share, std::uint64_t batch) {
  return batch % static_cast<std::uint64_t>(share.world) == static_cast<std::uint64_t>(share.rank);
}
constexpr std::uint64_t FirstTestSample(std::uint64_t batch, std::uint64_t rows) {
  return batch * rows;
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_DATA_SHARE_H_
