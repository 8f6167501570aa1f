// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_CHECK_H_
#define POSEIDON_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// For bugs of ours only, never for input: prints the broken invariant and aborts the program.
#define POSEIDON_CHECK(condition, message)                                                   \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: invariant broken: %s (%s)\n", __FILE__, __LINE__, message, \
                   #condition);                                                              \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

#endif  // POSEIDON_BASE_CHECK_H_
