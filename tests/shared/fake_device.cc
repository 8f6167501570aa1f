// SPDX-License-Identifier: Apache-2.0
#include "tests/shared/fake_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/base/mutex.h"
#include "poseidon/device/host_device.h"

namespace poseidon::device {
namespace {

constexpr std::byte kPoison{0xdb};
constexpr std::size_t kAlignment = 256;

void Poison(MutableBytes bytes) { std::fill(bytes.begin(), bytes.end(), kPoison); }

// Happens on the executor; what waits for it runs there too.
class FakeEvent final : public EventState {
 public:
  bool happened() const { return happened_; }
  void WhenHappened(Task task) { waiting_.push_back(std::move(task)); }
  void Happen() {
    happened_ = true;
    for (const Task& task : std::exchange(waiting_, {})) task();
  }

 private:
  bool happened_ = false;
  std::vector<Task> waiting_;
};

}  // namespace

// The addresses are reserved and never mapped, so host code that reads one crashes; the bytes are in `bytes_`, of which pages are used
// where something is allocated.
class FakeDevice::Memory {
 public:
  explicit Memory(std::size_t size) : memory_(std::make_unique_for_overwrite<std::byte[]>(size)), bytes_(memory_.get(), size) {
    void* const base =
        ::mmap(nullptr, std::max<std::size_t>(size, 1), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    POSEIDON_CHECK(base != MAP_FAILED, "address space for a fake device could not be reserved");
    base_ = static_cast<std::byte*>(base);
  }
  ~Memory() { ::munmap(base_, std::max<std::size_t>(bytes_.size(), 1)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Result<DeviceSpan> Allocate(std::size_t size) {
    MutexLock lock(mutex_);
    // An empty span takes a place too, so that every allocation has an address of its own.
    const std::size_t taken = std::max<std::size_t>(size, 1);
    std::size_t begin = 0;
    for (const auto& [used, used_size] : used_) {  // in order of their places: first fit
      if (used - begin >= taken) break;
      begin = (used + used_size + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (begin > bytes_.size() || bytes_.size() - begin < taken) {
      return ResourceExhausted("a fake device of " + std::to_string(bytes_.size()) +
                               " bytes has no room for " + std::to_string(size));
    }
    used_.emplace(begin, taken);
    Poison(bytes_.subspan(begin, size));
    return DeviceSpan{base_ + begin, size};
  }
  void Free(DeviceSpan span) {
    MutexLock lock(mutex_);
    const auto used = used_.find(OffsetOf(span));
    POSEIDON_CHECK(used != used_.end(), "what is freed was allocated");
    Poison(bytes_.subspan(used->first, used->second));
    used_.erase(used);
  }
  MutableBytes At(DeviceSpan span) {
    MutexLock lock(mutex_);
    const std::size_t begin = OffsetOf(span);
    auto after = used_.upper_bound(begin);
    POSEIDON_CHECK(after != used_.begin(), "a span is within one allocation");
    const auto [used, used_size] = *std::prev(after);
    POSEIDON_CHECK(begin - used <= used_size && span.size <= used_size - (begin - used),
                   "a span is within one allocation");
    return bytes_.subspan(begin, span.size);
  }

 private:
  std::size_t OffsetOf(DeviceSpan span) const {
    POSEIDON_CHECK(!std::less<>()(span.address, base_) &&
                       std::less<>()(span.address, base_ + bytes_.size()),
                   "the address is one of this device's");
    return static_cast<std::size_t>(span.address - base_);
  }

  std::byte* base_ = nullptr;
  const std::unique_ptr<std::byte[]> memory_;
  const MutableBytes bytes_;
  Mutex mutex_;
  std::map<std::size_t, std::size_t> used_ POSEIDON_GUARDED_BY(mutex_);
};

// Work in order: each piece waits for its event, takes its time, ends.
struct FakeDevice::Stream {
  struct Work {
    std::shared_ptr<FakeEvent> ready;  // null: at once
    Duration duration{0};
    Task begin;  // when its turn has come
    Task end;    // when its time has passed
    Task abandon;
  };
  std::deque<Work> works;
  bool busy = false;
};

// Everything of the device that outlives it while timers and posted tasks look for it. On the
// executor, but for `memory` and `failure`.
struct FakeDevice::State : std::enable_shared_from_this<FakeDevice::State> {
  State(Executor& on, FakeDeviceOptions with)
      : executor(on), options(std::move(with)), memory(options.memory_bytes) {}

  // From any thread: works come in the order of these calls.
  void Append(Stream State::*stream, Stream::Work work) {
    executor.Post([weak = weak_from_this(), stream, work = std::move(work)]() mutable {
      const auto self = weak.lock();
      if (self == nullptr || self->stopped) {
        work.abandon();
        return;
      }
      (self.get()->*stream).works.push_back(std::move(work));
      self->Advance(stream);
    });
  }

  void Advance(Stream State::*stream) {
    Stream& own = this->*stream;
    if (own.busy || own.works.empty()) return;
    // Before the event: a copy that waits for its event holds up those behind it, as on a real stream (Device).
    own.busy = true;
    Stream::Work& next = own.works.front();
    if (next.ready != nullptr && !next.ready->happened()) {
      next.ready->WhenHappened([weak = weak_from_this(), stream] {
        if (const auto self = weak.lock()) self->Begin(stream);
      });
      return;
    }
    Begin(stream);
  }

  void Begin(Stream State::*stream) {
    Stream& own = this->*stream;
    if (stopped) return;
    own.works.front().begin();
    executor.PostAfter(own.works.front().duration, [weak = weak_from_this(), stream] {
      const auto self = weak.lock();
      if (self == nullptr || self->stopped) return;
      Stream& ended = self.get()->*stream;
      const Stream::Work work = std::move(ended.works.front());
      ended.works.pop_front();
      ended.busy = false;
      work.end();
      // A completion may destroy the device. `self` has kept the state, and Stop has abandoned what was left.
      if (!self->stopped) self->Advance(stream);
    });
  }

  void Stop() {
    stopped = true;
    for (Stream* stream : {&to_host, &from_host, &kernels}) {
      for (Stream::Work& work : std::exchange(stream->works, {})) {
        // Posted: a completion never fires inside the call, here the destructor. The task holds all that it needs.
        executor.Post([abandon = std::move(work.abandon)] { abandon(); });
      }
    }
  }

  Duration CopyTime(std::size_t bytes) const {
    if (options.copy_bytes_per_second <= 0) return options.copy_latency;
    return options.copy_latency +
           Duration(static_cast<std::int64_t>(
               std::ceil(static_cast<double>(bytes) * 1e9 / options.copy_bytes_per_second)));
  }

  // One copy on either stream: the bytes are read when it begins and land when it ends.
  struct Copy {
    ConstBytes from;
    MutableBytes into;
    std::uint32_t crc = 0;
    Copied done;
    TimePoint began;
  };
  void AppendCopy(Stream State::*stream, Event ready, std::shared_ptr<Copy> copy) {
    auto own_event = std::dynamic_pointer_cast<FakeEvent>(ready);
    POSEIDON_CHECK((ready == nullptr) == (own_event == nullptr), "an event is its own device's");
    Stream::Work work;
    work.ready = std::move(own_event);
    work.duration = CopyTime(copy->from.size());
    // Lent, unchanged, from the moment it has been produced: its event, or else the call. Before its event a kernel may
    // be writing it, on the executor.
    const bool produced_later = work.ready != nullptr;
    if (!produced_later) copy->crc = Crc32c(copy->from);
    work.begin = [this, copy, produced_later] {
      copy->began = executor.now();
      if (produced_later) copy->crc = Crc32c(copy->from);
    };
    work.end = [this, copy] {
      POSEIDON_CHECK(Crc32c(copy->from) == copy->crc, "memory changed while it was lent to a copy");
      Status status;
      {
        MutexLock lock(failure_mutex);
        status = std::exchange(failure, OkStatus());
      }
      if (!status.ok()) return copy->done(status);
      if (!copy->from.empty()) std::memcpy(copy->into.data(), copy->from.data(), copy->from.size());
      copy->done(CopyTimes{copy->began, executor.now()});
    };
    work.abandon = [copy] { copy->done(Unavailable("the device was closed during a copy")); };
    Append(stream, std::move(work));
  }

  Executor& executor;
  const FakeDeviceOptions options;
  Memory memory;
  Mutex failure_mutex;
  Status failure POSEIDON_GUARDED_BY(failure_mutex);

  std::map<std::byte*, std::size_t> registered;  // host memory of others
  bool stopped = false;
  Stream to_host;
  Stream from_host;
  Stream kernels;
};

FakeDevice::FakeDevice(Executor& executor, FakeDeviceOptions options)
    : state_(std::make_shared<State>(executor, std::move(options))) {}

FakeDevice::~FakeDevice() { state_->Stop(); }

const std::string& FakeDevice::name() const { return state_->options.name; }

Result<HostBuffer> FakeDevice::AllocateHost(std::size_t bytes) {
  POSEIDON_ASSIGN_OR_RETURN(HostBuffer buffer, HostDevice(state_->executor).AllocateHost(bytes));
  // As everything here that nobody has written: a reader of fresh memory shall not find zeros by luck.
  Poison(buffer.bytes());
  return buffer;
}

Result<HostBuffer> FakeDevice::RegisterHost(MutableBytes memory) {
  if (!state_->options.registers) return Device::RegisterHost(memory);
  POSEIDON_CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096 == 0 && memory.size() % 4096 == 0, "a device registers whole pages");
  const auto begin = state_->registered.lower_bound(memory.data());
  POSEIDON_CHECK(begin == state_->registered.end() || memory.data() + memory.size() <= begin->first, "registered once");
  POSEIDON_CHECK(begin == state_->registered.begin() || std::prev(begin)->first + std::prev(begin)->second <= memory.data(),
                 "registered once");
  state_->registered.emplace(memory.data(), memory.size());
  return HostBuffer(memory, [state = state_](MutableBytes given_up) { state->registered.erase(given_up.data()); });
}

void FakeDevice::CopyToHost(DeviceSpan from, MutableBytes into, Event ready, Copied done) {
  POSEIDON_CHECK(from.size == into.size(), "a copy keeps its size");
  // From the call on, not when the copy begins: until the completion `into` is undefined (Device).
  Poison(into);
  state_->AppendCopy(&State::to_host, std::move(ready),
                     std::make_shared<State::Copy>(
                         State::Copy{state_->memory.At(from), into, 0, std::move(done), {}}));
}

void FakeDevice::CopyFromHost(ConstBytes from, DeviceSpan into, Copied done) {
  POSEIDON_CHECK(from.size() == into.size, "a copy keeps its size");
  const MutableBytes landing = state_->memory.At(into);
  Poison(landing);
  state_->AppendCopy(
      &State::from_host, nullptr,
      std::make_shared<State::Copy>(State::Copy{from, landing, 0, std::move(done), {}}));
}

Result<DeviceSpan> FakeDevice::Allocate(std::size_t bytes) { return state_->memory.Allocate(bytes); }
void FakeDevice::Free(DeviceSpan span) { state_->memory.Free(span); }

Event FakeDevice::Launch(Duration duration, Task kernel) {
  auto event = std::make_shared<FakeEvent>();
  Stream::Work work;
  work.duration = duration;
  work.begin = [] {};
  work.end = [event, kernel = std::move(kernel)] {
    kernel();
    event->Happen();
  };
  work.abandon = [] {};
  state_->Append(&State::kernels, std::move(work));
  return event;
}

MutableBytes FakeDevice::InKernel(DeviceSpan span) { return state_->memory.At(span); }

void FakeDevice::FailNextCopy(Status status) {
  MutexLock lock(state_->failure_mutex);
  state_->failure = std::move(status);
}

}  // namespace poseidon::device
