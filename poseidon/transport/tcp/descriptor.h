// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_DESCRIPTOR_H_
#define POSEIDON_TRANSPORT_TCP_DESCRIPTOR_H_

#include <memory>
#include <utility>

#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/transport/tcp/io_executor.h"

namespace poseidon::transport::tcp {

// Owns a file descriptor; closes it when destroyed.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd();
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// A non-blocking file descriptor, and the tasks that wait until it is ready.
// Thread: the executor's. Destroying it closes the descriptor and drops the waiting tasks unrun.
class Descriptor {
 public:
  static Result<std::unique_ptr<Descriptor>> Watch(IoExecutor& executor, UniqueFd fd);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int fd() const;
  // Runs `task` later, once a read (or accept) would not block: bytes, the end or an error are
  // there.
  void WhenReadable(Task task);
  // The same for writing, and for the outcome of a connect.
  void WhenWritable(Task task);

 private:
  struct Watched;
  explicit Descriptor(std::unique_ptr<Watched> watched);
  std::unique_ptr<Watched> watched_;
};

// Lets this process open `more` descriptors beside those that are open: raises its soft limit, as far as the hard one allows,
// and only where the present one is too low. kResourceExhausted, with both numbers, where the hard limit is too low.
Status AllowDescriptors(std::size_t more);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_DESCRIPTOR_H_
