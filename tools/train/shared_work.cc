// SPDX-License-Identifier: Apache-2.0
#include "tools/train/shared_work.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "frontends/caffe/engine/engine_failure.h"
#include "poseidon/base/new_file.h"
#include "tools/launch/child.h"
#include "tools/launch/pipe.h"
#include "tools/launch/process.h"

namespace poseidon::tools {
namespace {

// What goes through a pipe for every item: whether it is one or a sentence about why not, and how many bytes follow.
struct ItemHeader {
  std::uint64_t failed = 0;
  std::uint64_t bytes = 0;
};

bool SendItem(int fd, bool failed, const std::string& bytes) {
  const ItemHeader header{.failed = failed ? 1u : 0u, .bytes = bytes.size()};
  return WriteAll(fd, {reinterpret_cast<const char*>(&header), sizeof header}).ok() && WriteAll(fd, bytes).ok();
}

Status MakeItems(const SharedWork& work, int rank, int fd) {
  POSEIDON_ASSIGN_OR_RETURN(const SharedWork::MakeItem make, work.begin(rank));
  const auto stride = static_cast<std::uint64_t>(work.workers);
  for (auto item = static_cast<std::uint64_t>(rank); item < work.items; item += stride) {
    POSEIDON_ASSIGN_OR_RETURN(const std::string bytes, make(item));
    if (!SendItem(fd, false, bytes)) break;  // nobody wants it any more
  }
  return OkStatus();
}

// The life of a worker. It ends without what ends the program: that is the caller's.
[[noreturn]] void LiveAsWorker(const SharedWork& work, int rank, int fd, pid_t parent) {
  launch::EndWithParent(SIGKILL, parent);
  signal(SIGPIPE, SIG_IGN);
  Status status;
  try {
    status = MakeItems(work, rank, fd);
  } catch (const std::exception& error) {
    status = caffe::EngineFailure(error);
  }
  if (!status.ok()) static_cast<void>(SendItem(fd, true, status.message()));
  _exit(status.ok() ? 0 : 1);
}

// A worker and the end of its pipe; ends and reaps it when it goes.
struct ForkedWorker {
  explicit ForkedWorker(pid_t started, int output) : pid(started), fd(output) {}
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;
  ~ForkedWorker() {
    if (fd >= 0) ::close(fd);
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      static_cast<void>(Reap());
    }
  }
  int Reap() {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    pid = -1;
    return status;
  }
  pid_t pid;
  int fd;
};

Result<std::unique_ptr<ForkedWorker>> StartWorker(const SharedWork& work, int rank) {
  launch::Pipe pipe;
  if (!pipe.Open()) return ResourceExhausted("cannot make a pipe: " + ErrnoText(errno));
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return ResourceExhausted("cannot fork: " + ErrnoText(errno));
  if (pid == 0) LiveAsWorker(work, rank, pipe.write, self);
  auto worker = std::make_unique<ForkedWorker>(pid, pipe.read);
  pipe.read = -1;
  return worker;
}

Status TakeOne(const SharedWork& work, std::uint64_t item, ForkedWorker* worker, std::string* bytes) {
  ItemHeader header;
  bool whole = launch::ReadWhole(worker->fd, reinterpret_cast<char*>(&header), sizeof header);
  if (whole) {
    bytes->resize(header.bytes);
    whole = launch::ReadWhole(worker->fd, bytes->data(), bytes->size());
  }
  if (!whole) {
    return Unavailable("worker " + std::to_string(item % static_cast<std::uint64_t>(work.workers)) + " " +
                       launch::DescribeWaitStatus(worker->Reap()) + " before item " + std::to_string(item) + " was made");
  }
  if (header.failed != 0) return Internal(*bytes);
  return work.take(item, *bytes);
}

}  // namespace

Status RunShared(const SharedWork& work) {
  if (work.workers == 1) {
    POSEIDON_ASSIGN_OR_RETURN(const SharedWork::MakeItem make, work.begin(0));
    for (std::uint64_t item = 0; item < work.items; ++item) {
      POSEIDON_ASSIGN_OR_RETURN(const std::string bytes, make(item));
      POSEIDON_RETURN_IF_ERROR(work.take(item, bytes));
    }
    return OkStatus();
  }
  std::vector<std::unique_ptr<ForkedWorker>> workers;
  for (int rank = 0; rank < work.workers; ++rank) {
    POSEIDON_ASSIGN_OR_RETURN(auto worker, StartWorker(work, rank));
    workers.push_back(std::move(worker));
  }
  std::string bytes;
  for (std::uint64_t item = 0; item < work.items; ++item) {
    POSEIDON_RETURN_IF_ERROR(TakeOne(work, item, workers[item % workers.size()].get(), &bytes));
  }
  for (const auto& worker : workers) static_cast<void>(worker->Reap());  // they take apart what they have built
  return OkStatus();
}

}  // namespace poseidon::tools
