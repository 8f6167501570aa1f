// SPDX-License-Identifier: Apache-2.0
// A device of torch that is as asynchronous as a GPU, in memory of the host: PrivateUse1, of two devices.
//
// Every operator and every copy that touches memory of the device is work of a stream. A stream is a thread that works in
// order and waits a while before each piece, so that whoever does not wait for it finds old numbers. The stream computes on
// the CPU; meta tensors give the shapes of outputs. For the few operators where they cannot, the caller waits until the
// inputs are computed, and outputs come back by copies that it does not wait for. Memory that is freed is filled with NaN in
// the order of the stream that it was made on, and of streams that it was recorded on, and used again: whoever still reads
// it finds that.
//
// test_devices.py loads it. Nothing here is ever destroyed: threads of streams work until the process ends.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace late {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr int kDevices = 2;

long FromEnvironment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atol(text);
}

// How many more events are looked at before the device is lost; below 0: it never is.
std::atomic<long> looks_until_lost{FromEnvironment("LATE_DEVICE_LOST_AFTER", -1)};

// Before each piece of work.
std::atomic<int> compute_microseconds{static_cast<int>(FromEnvironment("LATE_DEVICE_COMPUTES", 600))};  // of a default stream
std::atomic<int> copy_microseconds{static_cast<int>(FromEnvironment("LATE_DEVICE_COPIES", 200))};  // of other streams
thread_local long waits = 0;  // of this thread for the device, other than in an operator

// A moment in a stream's work.
class Moment {
 public:
  void Come() {
    std::lock_guard lock(mutex_);
    time_ = std::chrono::steady_clock::now();
    come_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return come_; });
  }
  bool come() {
    std::lock_guard lock(mutex_);
    return come_;
  }
  std::chrono::steady_clock::time_point time() {
    std::lock_guard lock(mutex_);
    return time_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool come_ = false;
  std::chrono::steady_clock::time_point time_;
};
using SharedMoment = std::shared_ptr<Moment>;

// One thread that works in order.
class Queue {
 public:
  Queue() {
    std::thread([this] { Work(); }).detach();
  }

  void Put(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    changed_.notify_one();
  }

  SharedMoment Mark() {
    auto moment = std::make_shared<Moment>();
    Put([moment] { moment->Come(); });
    return moment;
  }

 private:
  void Work() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !waiting_.empty(); });
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
};

class Queues {
 public:
  // Stream 0 of a device is its default stream.
  Queue& Of(c10::Stream stream) {
    std::lock_guard lock(mutex_);
    auto& queue = queues_[{stream.device_index(), stream.id()}];
    if (!queue) queue = std::make_unique<Queue>();
    return *queue;
  }
  c10::Stream New(c10::Device device) { return c10::Stream(c10::Stream::UNSAFE, device, ++last_); }
  std::vector<SharedMoment> MarkAll(c10::DeviceIndex device) {
    std::lock_guard lock(mutex_);
    std::vector<SharedMoment> marks;
    for (auto& [key, queue] : queues_) {
      if (key.first == device) marks.push_back(queue->Mark());
    }
    return marks;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::unique_ptr<Queue>> queues_;
  std::atomic<c10::StreamId> last_{0};
};

Queues& queues() {
  static auto* all = new Queues;
  return *all;
}

thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_stream[kDevices] = {};

c10::Stream CurrentStream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), current_stream[device]);
}

// Work of the current stream of a device.
SharedMoment Launch(c10::DeviceIndex device, std::function<void()> work) {
  Queue& queue = queues().Of(CurrentStream(device));
  auto end = std::make_shared<Moment>();
  const int delay = current_stream[device] == 0 ? compute_microseconds : copy_microseconds;
  queue.Put([work = std::move(work), end, delay] {
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    work();
    end->Come();
  });
  return end;
}

// ---- memory

struct Block {
  void* memory;
  std::size_t bytes;
  c10::Stream stream;  // on which it was made
  std::vector<c10::Stream> recorded;
};

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::DeviceIndex device = current_device;
    if (bytes == 0) return {nullptr, nullptr, &Nothing, c10::Device(kType, device)};
    constexpr std::size_t kCapacity = std::size_t{8} << 30;
    TORCH_CHECK_WITH(OutOfMemoryError, bytes <= kCapacity, "late out of memory. Tried to allocate ", bytes >> 30, ".00 GiB. GPU ", int{device},
                     " has a total capacity of 8.00 GiB of which 8.00 GiB is free. Of the allocated memory nothing is held by others.");
    auto* block = new Block{Take(bytes), bytes, CurrentStream(device), {}};
    return {block->memory, block, &Free, c10::Device(kType, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "memory of the late device is copied by its streams");
  }

 private:
  static void Nothing(void*) {}

  // Behind what all streams that it was used on have to do now; reused, never given back, so that a late reader reads NaN.
  static void Free(void* context) {
    std::unique_ptr<Block> block(static_cast<Block*>(context));
    std::vector<SharedMoment> uses;
    for (const c10::Stream& stream : block->recorded) uses.push_back(queues().Of(stream).Mark());
    queues().Of(block->stream).Put([memory = block->memory, bytes = block->bytes, uses] {
      for (const SharedMoment& use : uses) use->Wait();
      std::memset(memory, 0xFF, bytes);
      std::lock_guard lock(free_mutex());
      free_blocks()[bytes].push_back(memory);
    });
  }

  static void* Take(std::size_t bytes) {
    {
      std::lock_guard lock(free_mutex());
      auto& some = free_blocks()[bytes];
      if (!some.empty()) {
        void* memory = some.back();
        some.pop_back();
        return memory;
      }
    }
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    TORCH_CHECK(memory != nullptr, "no memory for the late device");
    std::memset(memory, 0xFF, bytes);
    return memory;
  }

  static std::mutex& free_mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
  }
  static std::map<std::size_t, std::vector<void*>>& free_blocks() {
    static auto* blocks = new std::map<std::size_t, std::vector<void*>>;
    return *blocks;
  }
};

Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

// Host memory that copies reach while the host goes on.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::DeviceType::CPU)};
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    TORCH_CHECK(memory != nullptr, "no pinned memory");
    std::memset(memory, 0xFF, bytes);
    std::lock_guard lock(mutex());
    ranges()[memory] = bytes;
    return {memory, memory, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* into, const void* from, std::size_t bytes) const override { default_copy_data(into, from, bytes); }

  // Of others, as cudaHostRegister: 0, or what is wrong.
  static int Register(void* memory, std::size_t bytes) {
    std::lock_guard lock(mutex());
    if (!registers) return 2;
    const auto above = ranges().lower_bound(memory);
    const bool reaches_one = above != ranges().end() && static_cast<char*>(memory) + bytes > above->first;
    if (reaches_one || HasLocked(memory)) return 712;
    ranges()[memory] = bytes;
    return 0;
  }
  static int Unregister(void* memory) {
    std::lock_guard lock(mutex());
    return ranges().erase(memory) == 1 ? 0 : 713;
  }

  static inline std::atomic<bool> registers{FromEnvironment("LATE_DEVICE_REGISTERS", 1) != 0};

  static bool Has(const void* address) {
    std::lock_guard lock(mutex());
    return HasLocked(address);
  }

 private:
  static bool HasLocked(const void* address) {
    auto above = ranges().upper_bound(const_cast<void*>(address));
    if (above == ranges().begin()) return false;
    const auto& [begin, bytes] = *std::prev(above);
    return static_cast<const char*>(address) < static_cast<const char*>(begin) + bytes;
  }
  static void Free(void* memory) {
    if (memory == nullptr) return;
    {
      std::lock_guard lock(mutex());
      ranges().erase(memory);
    }
    std::free(memory);
  }
  static std::mutex& mutex() {
    static auto* one = new std::mutex;
    return *one;
  }
  static std::map<void*, std::size_t>& ranges() {
    static auto* all = new std::map<void*, std::size_t>;
    return *all;
  }
};

// ---- what torch asks of a device

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return c10::Device(kType, std::exchange(current_device, device.index()));
  }
  c10::Device getDevice() const override { return c10::Device(kType, current_device); }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override { return CurrentStream(IndexOf(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, IndexOf(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return queues().New(c10::Device(kType, IndexOf(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::DeviceIndex device = stream.device_index();
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(current_stream[device], stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override { return queues().Of(stream).Mark()->come(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    ++waits;
    queues().Of(stream).Mark()->Wait();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    ++waits;
    for (const SharedMoment& mark : queues().MarkAll(device)) mark->Wait();
  }

  static void Look() {
    const long left = looks_until_lost;
    if (left > 0) --looks_until_lost;
    if (left == 0) throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 719, "late error: unspecified launch failure\nAdvice for debuggers.");
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new SharedMoment;
    MomentOf(*event) = queues().Of(stream).Mark();
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    queues().Of(stream).Put([moment = MomentOf(event)] { moment->Wait(); });
  }
  bool queryEvent(void* event) const override {
    Look();
    return event == nullptr || MomentOf(event)->come();
  }
  void synchronizeEvent(void* event) const override {
    Look();
    ++waits;
    if (event != nullptr) MomentOf(event)->Wait();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<SharedMoment*>(event);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(MomentOf(to)->time() - MomentOf(from)->time()).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    if (pointer.get_context() != nullptr) static_cast<Block*>(pointer.get_context())->recorded.push_back(stream);
  }

 private:
  static SharedMoment& MomentOf(void* event) { return *static_cast<SharedMoment*>(event); }
  static c10::DeviceIndex IndexOf(c10::Device device) { return device.has_index() ? device.index() : current_device; }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return std::exchange(current_device, device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* address) const override { return PinnedMemory::Has(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* pinned = new PinnedMemory;
    return pinned;
  }
};

// ---- operators

at::Tensor Empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &memory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &memory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the host.
at::Tensor OnHost(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(c10::Device(c10::DeviceType::CPU)).requires_grad(false));
}

thread_local bool in_operator = false;

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& into, bool non_blocking) {
  if (into.numel() == 0) return into;
  const at::Tensor source = from.sizes() == into.sizes() ? from : from.expand(into.sizes());
  const c10::DeviceIndex device = (source.is_cpu() ? into : source).device().index();
  // Memory of the host is read, and written to, while the host goes on, only where it is pinned. Memory of the device is not
  // kept alive: who frees it before a copy on another stream has ended has to say so (record_stream).
  const bool copied = source.is_cpu() && !(non_blocking && source.is_pinned());
  at::Tensor read = copied ? source.clone() : OnHost(source);
  SharedMoment end = Launch(device, [read, write = OnHost(into)] { write.copy_(read); });
  if (into.is_cpu() && !(non_blocking && into.is_pinned())) {
    if (!in_operator) ++waits;
    end->Wait();
  }
  if (!source.is_cpu() && !into.is_cpu() && source.device() != into.device()) {
    queues().Of(CurrentStream(into.device().index())).Put([end] { end->Wait(); });
  }
  return into;
}

const at::Tensor& Resize(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<c10::MemoryFormat>) {
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  const std::size_t needed = (self.storage_offset() + self.numel()) * self.element_size();
  if (needed > self.storage().nbytes()) {
    const c10::DeviceGuard guard(self.device());
    self.storage().set_data_ptr_noswap(memory().allocate(needed));  // what it held is not asked for where a size changes
    self.storage().set_nbytes(needed);
  }
  return self;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& into) {
  if (from.sizes() != into.sizes()) into.resize_(from.sizes());
  return CopyFrom(from, into, false);
}

at::Tensor AsStrided(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                     std::optional<int64_t> offset) {
  return at::cpu::as_strided(self, sizes, strides, offset);
}
at::Tensor View(const at::Tensor& self, c10::IntArrayRef sizes) { return at::native::view(self, sizes); }
at::Tensor ReshapeAlias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}
at::Tensor& SetSource(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes,
                      c10::IntArrayRef strides) {
  return at::cpu::set_(self, std::move(source), offset, sizes, strides);
}
void RecordStream(at::Tensor& self, c10::Stream stream) { Guard().recordDataPtrOnStream(self.storage().data_ptr(), stream); }

class InOperator {
 public:
  InOperator() : before_(std::exchange(in_operator, true)) {}
  ~InOperator() { in_operator = before_; }

 private:
  const bool before_;
};

// A number of the device is asked for.
at::Scalar LocalScalar(const at::Tensor& self) {
  if (!in_operator) ++waits;
  const InOperator guard;
  return self.cpu().item();
}

at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  const InOperator guard;
  return at::convolution(input.cpu(), weight.cpu(), bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt, stride, padding, dilation,
                         transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> mask) {
  const InOperator guard;
  const std::vector<int64_t> bias_sizes = {grad_output.size(1)};
  auto [dx, dw, db] =
      at::convolution_backward(grad_output.cpu(), input.cpu(), weight.cpu(), bias_sizes, stride, padding, dilation, transposed,
                               output_padding, groups, mask);
  const auto back = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(input.device()) : tensor; };
  return {back(dx), back(dw), back(db)};
}

// The schema does not say that it changes the statistics, which the fallback would leave as they are.
std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNorm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                                         const std::optional<at::Tensor>& bias,
                                                         const std::optional<at::Tensor>& mean,
                                                         const std::optional<at::Tensor>& variance, bool training,
                                                         double momentum, double epsilon) {
  const InOperator guard;
  const auto on_host = [](const std::optional<at::Tensor>& tensor) {
    return tensor && tensor->defined() ? std::optional(tensor->cpu()) : std::nullopt;
  };
  const auto host_mean = on_host(mean);
  const auto host_variance = on_host(variance);
  auto [output, saved_mean, saved_variance] = at::native_batch_norm(input.cpu(), on_host(weight), on_host(bias), host_mean,
                                                                    host_variance, training, momentum, epsilon);
  if (training && host_mean) {
    mean->copy_(*host_mean);
    variance->copy_(*host_variance);
  }
  return {output.to(input.device()), saved_mean.to(input.device()), saved_variance.to(input.device())};
}

// One argument, with its tensors as `convert` gives them.
template <typename Convert>
c10::IValue Converted(const c10::IValue& value, const Convert& convert) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(convert(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> converted;
    for (const at::Tensor& tensor : value.toTensorVector()) converted.push_back(convert(tensor));
    return converted;
  }
  return value;
}

// Whether an operator gives new tensors, or those of its arguments that it writes to.
bool CanLaunch(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() != nullptr && !argument.alias_info()->isWrite()) return false;
    if (argument.name() == "generator") return false;  // random numbers are drawn in the order of the program
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return false;
    if (result.type()->kind() != c10::TypeKind::TensorType) return false;
  }
  return true;
}

// The shapes of an operator's new outputs; none where they depend on numbers, or where it knows no meta tensors.
std::optional<torch::jit::Stack> Shapes(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  torch::jit::Stack meta;
  for (const c10::IValue& value : arguments) {
    meta.push_back(Converted(value, [](const at::Tensor& tensor) {
      if (tensor.is_cpu()) return tensor;  // a number
      return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::DeviceType::Meta));
    }));
  }
  try {
    op.callBoxed(&meta);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return meta;
}

// Launches an operator on tensors of one device and numbers; false where that cannot be: CanLaunch, Shapes.
bool Launched(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  if (!CanLaunch(schema)) return false;
  std::optional<c10::Device> device;
  torch::jit::Stack host;
  torch::jit::Stack written;  // arguments
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue& value = torch::jit::peek(*stack, i, count);
    if (value.isDevice()) return false;
    const bool writes = schema.arguments()[i].alias_info() != nullptr;
    if (writes && value.isTensor() && value.toTensor().numel() == 0) return false;  // it may be about to get its size
    if (writes) written.push_back(value);
    host.push_back(Converted(value, [&](const at::Tensor& tensor) {
      if (!tensor.is_cpu()) device = tensor.device();
      return OnHost(tensor);
    }));
  }
  if (!device) return false;
  torch::jit::Stack outputs = written;
  std::vector<at::Tensor> news;  // on the host
  if (written.empty()) {
    auto shapes = Shapes(op, torch::jit::last(*stack, count));
    if (!shapes) return false;
    for (const c10::IValue& value : *shapes) {
      const at::Tensor& shape = value.toTensor();
      outputs.emplace_back(shape.defined() ? at::empty_strided(shape.sizes(), shape.strides(), shape.options().device(*device))
                                           : at::Tensor());
      news.push_back(shape.defined() ? OnHost(outputs.back().toTensor()) : at::Tensor());
    }
  }
  Launch(device->index(), [op, host, news]() mutable {
    const at::NoGradGuard without_gradients;
    op.callBoxed(&host);  // what it writes to is memory of the device
    for (std::size_t i = 0; i < news.size(); ++i) {
      if (news[i].defined()) news[i].copy_(host[i].toTensor());
    }
  });
  torch::jit::drop(*stack, count);
  outputs.resize(schema.returns().size());  // operators on lists return nothing
  for (c10::IValue& output : outputs) stack->push_back(std::move(output));
  return true;
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const InOperator guard;
  if (!Launched(op, stack)) at::native::cpu_fallback(op, stack);
}

// As CUDA's operator, which fails without what the forward pass saved, also where statistics are given. CUDA's own does without it where one
// kernel makes all three gradients.
void BatchNormBackward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const std::size_t saved : {5, 6}) TORCH_CHECK(torch::jit::peek(*stack, saved, 10).isTensor(), "save_mean and save_invstd should always be defined");
  Fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", Empty);
  library.impl("empty_strided", EmptyStrided);
  library.impl("_copy_from", CopyFrom);
  library.impl("_copy_from_and_resize", CopyFromAndResize);
  library.impl("resize_", Resize);
  library.impl("as_strided", AsStrided);
  library.impl("view", View);
  library.impl("_reshape_alias", ReshapeAlias);
  library.impl("set_.source_Storage_storage_offset", SetSource);
  library.impl("record_stream", RecordStream);
  library.impl("_local_scalar_dense", LocalScalar);
  library.impl("native_batch_norm", BatchNorm);
  library.impl("native_batch_norm_backward", torch::CppFunction::makeFromBoxedFunction<&BatchNormBackward>());
  library.impl("convolution_overrideable", Convolution);
  library.impl("convolution_backward_overrideable", ConvolutionBackward);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>()); }

// Under autocast products are rounded, and what else there is computes as it comes.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

namespace {

const bool registered = [] {
  c10::register_privateuse1_backend("late");
  c10::SetAllocator(kType, &memory());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace late

extern "C" {

// The microseconds that a stream waits before each piece of work: a default stream, which computes, and others.
__attribute__((visibility("default"))) void late_set_delays(int compute, int copies) {
  late::compute_microseconds = compute;
  late::copy_microseconds = copies;
}

// Whether it takes memory of others.
__attribute__((visibility("default"))) void late_set_registers(bool registers) { late::PinnedMemory::registers = registers; }

// After so many looks at events every other fails, as those of a device that is lost; below 0: none does.
__attribute__((visibility("default"))) void late_lose_after(long looks) { late::looks_until_lost = looks; }

// As CUDA's runtime: memory of others becomes pinned, a range once.
__attribute__((visibility("default"))) int cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  return late::PinnedMemory::Register(memory, bytes);
}
__attribute__((visibility("default"))) int cudaHostUnregister(void* memory) { return late::PinnedMemory::Unregister(memory); }

// How often the calling thread has waited for the device, other than in an operator.
__attribute__((visibility("default"))) long late_waits() { return late::waits; }
}
