// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::local {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  int Release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace

Segment::~Segment() {
  if (mapped_ != nullptr) munmap(mapped_, kPage + bytes_);
  Close();
}

void Segment::Close() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

// The nonce has a page of its own, so that the slots behind it stay page-aligned.
MutableBytes Segment::memory() const { return {mapped_ + kPage, bytes_}; }

Status Segment::Map(int descriptor, std::uint64_t bytes) {
  // Not reserved: slots have room for more rows than a step may bring, and a page that is never touched costs nothing.
  void* const mapped = mmap(nullptr, kPage + bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (mapped == MAP_FAILED) {
    return ResourceExhausted(std::to_string(bytes) + " bytes of shared memory cannot be mapped: " +
                             ErrnoText(errno));
  }
  mapped_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  return OkStatus();
}

Result<std::unique_ptr<Segment>> Segment::Make(std::uint64_t bytes) {
  if (bytes > kMostBytes) {
    return ResourceExhausted(std::to_string(bytes) + " bytes of shared memory were asked for");
  }
  Descriptor descriptor(memfd_create("poseidon", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed at its size: a process that maps it cannot be killed by another that shrinks it.
  if (descriptor.number() < 0 || fchmod(descriptor.number(), 0600) != 0 ||
      ftruncate(descriptor.number(), static_cast<off_t>(kPage + bytes)) != 0 ||
      fcntl(descriptor.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ResourceExhausted("no shared memory of " + std::to_string(bytes) +
                             " bytes can be made: " + ErrnoText(errno));
  }
  std::unique_ptr<Segment> segment(new Segment());
  POSEIDON_RETURN_IF_ERROR(segment->Map(descriptor.number(), bytes));
  segment->descriptor_ = descriptor.Release();
  std::uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) {
    return Unavailable("the system gives no random numbers: " + ErrnoText(errno));
  }
  std::memcpy(segment->mapped_, &nonce, sizeof nonce);
  return segment;
}

wire::Segment Segment::offer() const {
  POSEIDON_CHECK(descriptor_ >= 0, "a segment is offered by its maker, before Close");
  wire::Segment offer;
  offer.process = static_cast<std::uint32_t>(getpid());
  offer.descriptor = static_cast<std::uint32_t>(descriptor_);
  offer.bytes = bytes_;
  std::memcpy(&offer.nonce, mapped_, sizeof offer.nonce);
  return offer;
}

Result<std::unique_ptr<Segment>> Segment::Attach(const wire::Segment& offer) {
  const std::string path =
      "/proc/" + std::to_string(offer.process) + "/fd/" + std::to_string(offer.descriptor);
  // Whatever else might be there: opening must not wait.
  const Descriptor descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (descriptor.number() < 0) {
    return Unavailable("the shared memory " + path + " cannot be opened: " + ErrnoText(errno));
  }
  struct stat facts{};
  const int seals = fcntl(descriptor.number(), F_GET_SEALS);
  // The bound comes first, because kPage + offer.bytes may wrap. The seal and the size are checked before anything is
  // read: a read beyond the end would kill this process.
  if (offer.bytes > kMostBytes || fstat(descriptor.number(), &facts) != 0 || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<std::uint64_t>(facts.st_size) != kPage + offer.bytes) {
    return DataLoss(path + " is no shared memory of " + std::to_string(offer.bytes) + " bytes");
  }
  std::unique_ptr<Segment> segment(new Segment());
  POSEIDON_RETURN_IF_ERROR(segment->Map(descriptor.number(), offer.bytes));
  // Process ids and descriptors are used again: another segment of the same size may have this path by now.
  if (std::memcmp(segment->mapped_, &offer.nonce, sizeof offer.nonce) != 0) {
    return DataLoss(path + " is not the shared memory that was offered");
  }
  return segment;
}

std::string ThisMachine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // The kernel alone is not enough: Attach goes through /proc, so the maker's process id must mean the same here.
  char processes[64] = {};
  if (readlink("/proc/self/ns/pid", processes, sizeof processes - 1) < 0 || boot.empty()) return "";
  return boot + " " + processes;
}

}  // namespace poseidon::local
