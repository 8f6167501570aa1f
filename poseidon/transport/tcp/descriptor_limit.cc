// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "poseidon/transport/tcp/descriptor.h"

namespace poseidon::transport::tcp {

Status AllowDescriptors(std::size_t more) {
  std::error_code error;
  const auto open = static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd", error), {}));
  const rlim_t needed = more + (error ? 0 : open);
  rlimit limit{};
  // Not higher than needed: select() of other libraries in this process takes no descriptor above 1023.
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return OkStatus();
  if (limit.rlim_max < needed) {
    return ResourceExhausted("this process may open " + std::to_string(limit.rlim_max) +
                             " descriptors (ulimit -Hn), and its connections need " + std::to_string(needed));
  }
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return ResourceExhausted("the limit of descriptors cannot be raised to " + std::to_string(needed) + ": " +
                             std::strerror(errno));
  }
  return OkStatus();
}

}  // namespace poseidon::transport::tcp
