// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_CHECK_H_
#define POSEIDON_BASE_CHECK_H_

#include <pthread.h>

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

namespace poseidon {

[[noreturn]] inline void OffExecutor(const char* file, int line, const char* entry, const char* executor) {
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  std::fprintf(stderr, "%s:%d: %s was called on the thread '%s' outside a task of its executor (%s)\n", file, line, entry,
               thread, executor);
  std::abort();
}

}  // namespace poseidon

// The first line of every entry of an object that lives on one executor: a call from elsewhere names the entry and the
// executor and aborts the program. Debug and sanitizer builds define POSEIDON_THREAD_CHECKS; a release build evaluates
// nothing.
#ifdef POSEIDON_THREAD_CHECKS
#define POSEIDON_ASSERT_ON(executor)                                                        \
  do {                                                                                      \
    if (!(executor).OnExecutor()) [[unlikely]] {                                            \
      ::poseidon::OffExecutor(__FILE__, __LINE__, __PRETTY_FUNCTION__, #executor);          \
    }                                                                                       \
  } while (false)
#else
#define POSEIDON_ASSERT_ON(executor) static_cast<void>(0)
#endif

#endif  // POSEIDON_BASE_CHECK_H_
