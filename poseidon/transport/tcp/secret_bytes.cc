// SPDX-License-Identifier: Apache-2.0
// Without OpenSSL, so that a program that makes a token and opens no connection does not carry it.
#include "poseidon/transport/tcp/secret_bytes.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace poseidon::transport::tcp {

bool FillRandom(MutableBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

void Wipe(MutableBytes bytes) { ::explicit_bzero(bytes.data(), bytes.size()); }

}  // namespace poseidon::transport::tcp
