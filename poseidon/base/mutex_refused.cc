// SPDX-License-Identifier: Apache-2.0
// Clang must refuse this file: the test mutex_refused looks for its error.
#include "poseidon/base/mutex.h"

namespace poseidon {

class Counter {
 public:
  void Count() { ++count_; }  // without the mutex

 private:
  Mutex mutex_;
  int count_ POSEIDON_GUARDED_BY(mutex_) = 0;
};

}  // namespace poseidon
