// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_SHARED_WORK_H_
#define POSEIDON_TOOLS_TRAIN_SHARED_WORK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

namespace poseidon::tools {

// A sequence of items that several processes make, and one takes in order.
struct SharedWork {
  using MakeItem = std::function<Result<std::string>(std::uint64_t item)>;

  int workers = 1;
  std::uint64_t items = 0;
  // In worker `rank`, once: returns what makes items rank, rank + workers, rank + 2 * workers and so on, in this order.
  std::function<Result<MakeItem>(int rank)> begin;
  // In the calling process, for every item in order.
  std::function<Status(std::uint64_t item, std::string_view bytes)> take;
};

// Runs it. One worker works in this process; several are forked from it, so that no other thread may run in it. The first failure in
// the order of items ends the work and is returned; a worker that ends before its time is one. No worker outlives the
// call, or this process.
Status RunShared(const SharedWork& work);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_SHARED_WORK_H_
