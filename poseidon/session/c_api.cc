// SPDX-License-Identifier: Apache-2.0
// The C door: poseidon.h's structs become the core's values, session.h's answers become codes and
// copies. Nothing is decided here but what a caller may ask when; no exception leaves.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "poseidon/session/poseidon.h"
#include "poseidon/session/session.h"
#include "poseidon/sfb/blas_engine.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::session {
namespace {

// ---- structs of other versions

// The end of the last field that a struct must have; what lies behind it may be missing and is
// zero.
#define POSEIDON_THROUGH(type, field) (offsetof(type, field) + sizeof(type::field))

template <typename T>
struct Required;
template <>
struct Required<poseidon_options> {
  static constexpr const char* kName = "poseidon_options";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_options, servers);
};
template <>
struct Required<poseidon_view> {
  static constexpr const char* kName = "poseidon_view";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_view, dtype);
};
template <>
struct Required<poseidon_engine> {
  static constexpr const char* kName = "poseidon_engine";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_engine, multiply);
};
template <>
struct Required<poseidon_layer> {
  static constexpr const char* kName = "poseidon_layer";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_layer, forward_position);
};
template <>
struct Required<poseidon_push> {
  static constexpr const char* kName = "poseidon_push";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_push, absent);
};
template <>
struct Required<poseidon_factors> {
  static constexpr const char* kName = "poseidon_factors";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_factors, rows);
};
template <>
struct Required<poseidon_measurement> {
  static constexpr const char* kName = "poseidon_measurement";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_measurement, backward_seconds);
};
template <>
struct Required<poseidon_span> {
  static constexpr const char* kName = "poseidon_span";
  static constexpr std::size_t kBytes = POSEIDON_THROUGH(poseidon_span, end_nanoseconds);
};

// What the caller's struct says, whichever version it was compiled with.
template <typename T>
Result<T> Take(const T* given) {
  const std::string name = Required<T>::kName;
  if (given == nullptr) return InvalidArgument("the " + name + " is NULL");
  const std::size_t size = given->struct_size;
  if (size < Required<T>::kBytes) {
    return InvalidArgument("the struct_size of a " + name + " is " + std::to_string(size) +
                           ", expected at least " + std::to_string(Required<T>::kBytes) +
                           "; make it with POSEIDON_NEW");
  }
  if (size > sizeof(T)) {
    // A size that no version can have is an uninitialised struct, not one from the future.
    constexpr std::size_t kMost = 4096;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
    if (size > kMost ||
        std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; })) {
      return Unimplemented("a " + name + " of " + std::to_string(size) +
                           " bytes asks for what this library, which knows " +
                           std::to_string(sizeof(T)) + ", does not have");
    }
  }
  T taken{};
  std::memcpy(&taken, given, std::min(size, sizeof(T)));
  return taken;
}

// Fills as much of the caller's struct as it has.
template <typename T>
Status Give(const char* name, const T& value, T* to) {
  if (to == nullptr) return InvalidArgument("the " + std::string(name) + " is NULL");
  const std::size_t size = to->struct_size;
  if (size <= sizeof(std::size_t)) {
    return InvalidArgument("the struct_size of a " + std::string(name) +
                           " is not set; make it with POSEIDON_NEW");
  }
  T given = value;
  given.struct_size = size;
  std::memcpy(to, &given, std::min(size, sizeof(T)));
  return OkStatus();
}

// Copies `text` with a final zero, cut where it does not fit; a cut text ends in "...".
void CopyText(std::string_view text, char* to, std::size_t capacity) {
  if (to == nullptr || capacity == 0) return;
  const std::size_t kept = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), kept);
  to[kept] = '\0';
  if (kept < text.size() && kept >= 3) std::memcpy(to + kept - 3, "...", 3);
}

poseidon_code Answer(const Status& status, poseidon_status* to) {
  if (to != nullptr && to->struct_size >= POSEIDON_THROUGH(poseidon_status, culprit)) {
    poseidon_status given{};
    given.code = static_cast<poseidon_code>(status.code());
    given.scope = static_cast<std::int32_t>(status.scope());
    given.culprit = status.culprit();
    const std::size_t size = std::min(to->struct_size, sizeof(poseidon_status));
    if (size > offsetof(poseidon_status, message)) {
      CopyText(status.message(), given.message, size - offsetof(poseidon_status, message));
    }
    static_cast<void>(Give("poseidon_status", given, to));
  }
  return static_cast<poseidon_code>(status.code());
}

// Runs `f` and answers with its status; an exception becomes a failure.
template <typename F>
poseidon_code Answering(poseidon_status* to, F f) {
  try {
    return Answer(f(), to);
  } catch (const std::bad_alloc&) {
    return Answer(ResourceExhausted("no memory is left"), to);
  } catch (const std::exception& e) {
    return Answer(Internal(e.what()), to);
  } catch (...) {
    return Answer(Internal("a callback threw something that is no std::exception"), to);
  }
}

// ---- what the caller brings

class CallbackLog final : public LogSink {
 public:
  CallbackLog(void (*log)(void*, std::int32_t, const char*), void* user) : log_(log), user_(user) {}
  void Log(LogLevel level, std::string_view line) override {
    if (log_ != nullptr) log_(user_, static_cast<std::int32_t>(level), std::string(line).c_str());
  }

 private:
  void (*const log_)(void*, std::int32_t, const char*);
  void* const user_;
};

class CallbackEngine final : public sfb::ProductEngine {
 public:
  explicit CallbackEngine(const poseidon_engine& engine)
      : engine_(engine),
        description_(engine.description != nullptr ? engine.description : "the program's own") {}

  Status Multiply(const Product& product) override {
    poseidon_product given{};
    given.struct_size = sizeof given;
    given.dtype = static_cast<std::int32_t>(product.dtype);
    given.u = product.u;
    given.v = product.v;
    given.rows = product.rows;
    given.outputs = product.outputs;
    given.inputs = product.inputs;
    given.alpha = product.alpha;
    given.out = product.out;
    const poseidon_code code = engine_.multiply(engine_.user, &given);
    if (code == POSEIDON_OK) return OkStatus();
    const bool known = code > POSEIDON_OK && code <= POSEIDON_INTERNAL;
    return Status(known ? static_cast<StatusCode>(code) : StatusCode::kInternal,
                  "the engine's product of " + std::to_string(product.outputs) + "x" +
                      std::to_string(product.inputs) + " failed with code " + std::to_string(code));
  }
  std::string description() const override { return description_; }

 private:
  const poseidon_engine engine_;
  const std::string description_;
};

// CBLAS, set up when it is first needed: its thread count is the whole process's.
class LateBlasEngine final : public sfb::ProductEngine {
 public:
  explicit LateBlasEngine(int threads) : threads_(threads) {}
  // Before the layers are committed.
  void Start() {
    if (!engine_) engine_ = sfb::MakeBlasEngine(threads_);
  }
  Status Multiply(const Product& product) override { return engine_->Multiply(product); }
  std::string description() const override { return engine_ ? engine_->description() : "none"; }

 private:
  const int threads_;
  std::unique_ptr<sfb::ProductEngine> engine_;
};

std::string TextOr(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

Result<TensorView> TakeView(const poseidon_view* given, const std::string& what) {
  const Result<poseidon_view> taken = Take(given);
  if (!taken.ok()) return taken.status().WithPrefix(what);
  const poseidon_view& view = *taken;
  if (view.device_type != 0 && view.device_type != POSEIDON_HOST &&
      view.device_type != POSEIDON_PINNED_HOST) {
    return Unimplemented(what + " lies on a device of type " + std::to_string(view.device_type) +
                         ", expected host memory (" + std::to_string(POSEIDON_HOST) + ")");
  }
  if (view.ready != nullptr || view.done != nullptr) {
    return Unimplemented(what + " has device events, which host memory does not need");
  }
  const auto dtype = static_cast<DType>(view.dtype);
  if (view.dtype <= 0 || view.dtype > POSEIDON_I64 || !HasSum(dtype)) {
    return InvalidArgument(what + " has dtype " + std::to_string(view.dtype) +
                           ", expected POSEIDON_F32, POSEIDON_F64 or POSEIDON_I64");
  }
  if (view.elements > plan::kMaxElements) {
    return InvalidArgument(what + " has " + std::to_string(view.elements) +
                           " elements, expected at most " + std::to_string(plan::kMaxElements));
  }
  if (view.memory == nullptr && view.elements != 0) return InvalidArgument(what + " is NULL");
  if (reinterpret_cast<std::uintptr_t>(view.memory) % SizeOf(dtype) != 0) {
    return InvalidArgument(what + " is not aligned to its " + std::string(NameOf(dtype)));
  }
  return TensorView{static_cast<std::byte*>(view.memory), view.elements, dtype};
}

// The first of `text`'s lines, or of its entries with ';' between, taken off it, without the blanks around it; a
// backslash takes the character after it as it is.
std::string TakeEntry(std::string_view& text) {
  std::string entry;
  std::size_t kept = 0, i = 0;
  for (; i < text.size() && text[i] != '\n' && text[i] != ';'; ++i) {
    const bool as_is = text[i] == '\\' && i + 1 < text.size();
    if (as_is) ++i;
    const bool blank = !as_is && (text[i] == ' ' || text[i] == '\r');
    if (blank && entry.empty()) continue;
    entry += text[i];
    if (!blank) kept = entry.size();
  }
  entry.resize(kept);
  text.remove_prefix(std::min(i + 1, text.size()));
  return entry;
}

// A name as TakeEntry gives it back.
std::string Escaped(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == '\\' || c == ';' || c == '\n' || c == '\r' || c == ' ') text += '\\';
    text += c;
  }
  return text;
}

Status UnknownScheme(const char* where, const std::string& name, const std::string& word) {
  return InvalidArgument(std::string(where) + " gives layer '" + name + "' the scheme '" + word +
                         "', expected kv or sfb");
}

// Lines, or ';' between, of name=scheme; a name may hold '='.
Status ParseSchemes(std::string_view text, const char* where,
                    std::map<std::string, plan::Scheme>& schemes) {
  while (!text.empty()) {
    const std::string pair = TakeEntry(text);
    if (pair.empty()) continue;
    const std::size_t equals = pair.rfind('=');
    if (equals == std::string_view::npos || equals == 0) {
      return InvalidArgument(std::string(where) + " has '" + pair +
                             "', expected name=kv or name=sfb");
    }
    const std::string name = pair.substr(0, equals);
    const std::string word = pair.substr(equals + 1);
    const std::optional<plan::Scheme> scheme = plan::ParseScheme(word);
    if (!scheme) return UnknownScheme(where, name, word);
    schemes.insert_or_assign(name, *scheme);
  }
  return OkStatus();
}

Result<Duration> TakeSeconds(double seconds, double otherwise, const char* what) {
  constexpr double kMost = 1e8;  // three years
  if (!(seconds >= 0 && seconds <= kMost)) {
    return InvalidArgument(std::string(what) + " is " + std::to_string(seconds) +
                           ", expected 0 to 1e8");
  }
  return FromSeconds(seconds > 0 ? seconds : otherwise);
}

Result<std::uint16_t> TakePort(std::uint32_t port, const char* what) {
  if (port > 65535) {
    return InvalidArgument(std::string(what) + " is " + std::to_string(port) +
                           ", expected at most 65535");
  }
  return static_cast<std::uint16_t>(port);
}

Result<transport::tcp::Token> TakeToken(const poseidon_options& options) {
  using transport::tcp::Token;
  const int ways = (options.token_file != nullptr ? 1 : 0) +
                   (options.token_bytes != nullptr ? 1 : 0) + (options.token_fd > 0 ? 1 : 0);
  if (ways == 0 && options.workers == 1 && options.servers == 0) return Token::Generate();
  if (ways != 1) {
    return InvalidArgument("the job's token came in " + std::to_string(ways) +
                           " ways, expected exactly one of token_file, token_bytes and token_fd");
  }
  if (options.token_file != nullptr) return Token::FromFile(options.token_file);
  if (options.token_fd > 0) return Token::FromDescriptor(options.token_fd);
  const auto* const bytes = reinterpret_cast<const std::byte*>(options.token_bytes);
  return Token::FromBytes(std::span<const std::byte, Token::kBytes>(bytes, Token::kBytes));
}

Result<transport::tcp::Security::Mode> TakeMode(std::int32_t wire, const std::string& listen_host) {
  using Mode = transport::tcp::Security::Mode;
  switch (wire) {
    case POSEIDON_WIRE_TLS:
      return Mode::kTls;
    case POSEIDON_WIRE_AUTH:
      return Mode::kAuth;
    case POSEIDON_WIRE_AUTO:
      return listen_host.rfind("127.", 0) == 0 || listen_host == "::1" ? Mode::kAuth : Mode::kTls;
    default:
      return InvalidArgument("wire is " + std::to_string(wire) +
                             ", expected POSEIDON_WIRE_AUTO, _TLS or _AUTH");
  }
}

Result<plan::PlanOptions> TakePlanning(const poseidon_options& options) {
  plan::PlanOptions planning;
  if (options.policy != 0) {
    planning.policy = static_cast<plan::Policy>(options.policy);
    if (options.policy < 0 || options.policy > 255 || !plan::IsValid(planning.policy)) {
      return InvalidArgument("policy is " + std::to_string(options.policy) +
                             ", expected POSEIDON_POLICY_TIME or _BYTES");
    }
  }
  if (options.plan_pin != nullptr) {
    POSEIDON_RETURN_IF_ERROR(ParseSchemes(options.plan_pin, "plan_pin", planning.forced));
    planning.forced_by =
        options.schemes == nullptr ? "the pinned plan" : "the user or the pinned plan";
  }
  if (options.schemes != nullptr) {
    POSEIDON_RETURN_IF_ERROR(ParseSchemes(options.schemes, "schemes", planning.forced));
  }
  return planning;
}

Result<NodeOptions> TakeNodeOptions(const poseidon_options& options) {
  constexpr std::uint32_t kMostMembers = 65535;
  if (options.workers < 1 || options.workers > kMostMembers ||
      options.servers > kMostMembers - options.workers) {
    return InvalidArgument("workers is " + std::to_string(options.workers) + " and servers " +
                           std::to_string(options.servers) +
                           ", expected at least one worker and at most 65535 of both");
  }
  const bool server = options.role == POSEIDON_SERVER;
  if (server && options.hosts_coordinator != 0) {
    return InvalidArgument("a server cannot host the coordinator, a worker does");
  }
  if (options.requested_rank < 0 ||
      static_cast<std::uint32_t>(options.requested_rank) >= options.workers) {
    return InvalidArgument("requested_rank is " + std::to_string(options.requested_rank) +
                           ", expected less than the " + std::to_string(options.workers) +
                           " workers");
  }
  NodeOptions node;
  node.role = server ? wire::Role::kServer : wire::Role::kWorker;
  node.workers = static_cast<std::uint16_t>(options.workers);
  node.servers = static_cast<std::uint16_t>(options.servers);
  node.hosts_coordinator = options.hosts_coordinator != 0;
  // Rank 0 is its host's alone to have, so 0 can stand for any.
  if (options.requested_rank > 0) node.requested_rank = options.requested_rank;
  node.host = TextOr(options.host, "localhost");
  if (options.levels < POSEIDON_LEVELS_FLAT || options.levels > POSEIDON_LEVELS_AUTO) {
    return InvalidArgument("levels is " + std::to_string(options.levels) +
                           ", expected POSEIDON_LEVELS_FLAT, _HOST or _AUTO");
  }
  node.levels = static_cast<plan::Levels>(options.levels);
  node.machine = options.machine != nullptr ? options.machine : local::ThisMachine();
  node.listen.host = TextOr(options.listen_host, "127.0.0.1");
  POSEIDON_ASSIGN_OR_RETURN(node.listen.port, TakePort(options.listen_port, "listen_port"));
  node.advertise_host = TextOr(options.advertise_host, "");
  if (node.advertise_host.empty() && (node.listen.host == "0.0.0.0" || node.listen.host == "::")) {
    return InvalidArgument("listen_host is " + node.listen.host +
                           ", expected advertise_host to say where the others reach it");
  }
  node.coordinator.host = TextOr(options.coordinator_host, "127.0.0.1");
  POSEIDON_ASSIGN_OR_RETURN(node.coordinator.port,
                            TakePort(options.coordinator_port, "coordinator_port"));
  if (!node.hosts_coordinator && node.coordinator.port == 0) {
    return InvalidArgument("coordinator_port is 0, expected the port that rank 0 listens at");
  }
  POSEIDON_ASSIGN_OR_RETURN(node.join_timeout,
                            TakeSeconds(options.join_timeout_seconds, 120, "join_timeout_seconds"));
  POSEIDON_ASSIGN_OR_RETURN(node.liveness.dead_after,
                            TakeSeconds(options.dead_after_seconds, 30, "dead_after_seconds"));
  POSEIDON_ASSIGN_OR_RETURN(node.planning, TakePlanning(options));
  if (options.final_plan_step != 0) node.final_plan_step = options.final_plan_step;
  node.memory_limit_bytes = options.memory_limit_bytes;
  if (options.probe_bytes != 0 && options.probe_bytes != POSEIDON_NEVER &&
      (options.probe_bytes < kMinProbeBytes || options.probe_bytes > kMaxProbeBytes)) {
    return InvalidArgument("probe_bytes is " + std::to_string(options.probe_bytes) + ", expected " +
                           std::to_string(kMinProbeBytes) + " to " + std::to_string(kMaxProbeBytes) +
                           ", 0 or POSEIDON_NEVER");
  }
  if (options.probe_bytes != 0) {
    node.probe_bytes = options.probe_bytes == POSEIDON_NEVER ? 0 : options.probe_bytes;
  }
  node.cores =
      options.cores != 0 ? options.cores : std::max(1u, std::thread::hardware_concurrency());
  node.compute_threads = std::max(options.threads, 1u);
  return node;
}

poseidon_traffic TrafficOf(const messaging::TrafficCell& cell) {
  return {cell.sent.frames,     cell.sent.header_bytes,     cell.sent.payload_bytes,
          cell.received.frames, cell.received.header_bytes, cell.received.payload_bytes};
}

}  // namespace
}  // namespace poseidon::session

using namespace poseidon;  // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::session;  // NOLINT(google-build-using-namespace)

// Everything a session's callbacks may touch; the session itself goes first, with its threads.
struct poseidon_session {
  explicit poseidon_session(const poseidon_options& options) : log(options.log, options.log_user) {}

  CallbackLog log;
  std::unique_ptr<CallbackEngine> own_engine;
  std::unique_ptr<LateBlasEngine> blas_engine;
  std::unique_ptr<TraceRecorder> trace;
  std::unique_ptr<poseidon_model> model;
  std::uint64_t final_plan_step = 0;

  std::mutex mutex;
  std::condition_variable landed;
  std::size_t in_flight = 0;  // pushes whose callback has not returned; guarded by mutex

  std::unique_ptr<Session> session;

  static Result<std::unique_ptr<poseidon_session>> Open(const poseidon_options& options);

  sfb::ProductEngine* engine() const {
    if (own_engine) return own_engine.get();
    return blas_engine.get();
  }
  // This worker as the author; the coordinator puts its name before the reason.
  Status OwnAbort(std::string reason) const {
    return Status(StatusCode::kAborted, std::move(reason), StatusScope::kJob,
                  session->rank().value());
  }
  void PushBegan() {
    std::lock_guard lock(mutex);
    ++in_flight;
  }
  void PushEnded() {
    std::lock_guard lock(mutex);
    if (--in_flight == 0) landed.notify_all();
  }
};

struct poseidon_model {
  struct Layer {
    plan::LayerSpec spec;
    std::optional<std::uint64_t> last_step;  // pushed; guarded by mutex
    wire::Measured::Layer measured;
  };

  explicit poseidon_model(poseidon_session* session) : owner(session) {}
  Session& session() const { return *owner->session; }

  Result<plan::Scheme> SchemeOf(std::uint32_t layer, std::uint64_t step) const;
  Status Push(std::uint32_t layer, std::uint64_t step, const poseidon_view* gradient,
              const poseidon_factors* factors, const poseidon_push* more);
  Status CheckLayer(std::uint32_t layer) const {
    if (!committed) return FailedPrecondition("the model has not been committed");
    if (layer < layers.size()) return OkStatus();
    return InvalidArgument("layer " + std::to_string(layer) + " does not exist, the model has " +
                           std::to_string(layers.size()));
  }
  // The newest plan; null before the commit. With mutex held.
  const plan::Plan* plan() const {
    if (final_plan) return &*final_plan;
    return provisional ? &*provisional : nullptr;
  }

  poseidon_session* const owner;
  std::vector<Layer> layers;
  std::atomic<bool> committed = false;  // asked by any thread

  mutable std::mutex mutex;
  std::optional<plan::Plan> provisional;  // guarded by mutex
  std::optional<plan::Plan> final_plan;   // guarded by mutex
};

Result<std::unique_ptr<poseidon_session>> poseidon_session::Open(const poseidon_options& options) {
  auto handle = std::make_unique<poseidon_session>(options);
  SessionOptions opened;
  POSEIDON_ASSIGN_OR_RETURN(opened.node, TakeNodeOptions(options));
  POSEIDON_ASSIGN_OR_RETURN(const transport::tcp::Token token, TakeToken(options));
  POSEIDON_ASSIGN_OR_RETURN(const transport::tcp::Security::Mode mode,
                            TakeMode(options.wire, opened.node.listen.host));
  if (options.engine != nullptr) {
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_engine engine, Take(options.engine));
    if (engine.multiply == nullptr) return InvalidArgument("the engine's multiply is NULL");
    handle->own_engine = std::make_unique<CallbackEngine>(engine);
  } else {
    handle->blas_engine =
        std::make_unique<LateBlasEngine>(static_cast<int>(opened.node.compute_threads));
  }
  if (options.trace_spans != 0) {
    handle->trace = std::make_unique<TraceRecorder>(options.trace_spans);
  }
  handle->final_plan_step = opened.node.final_plan_step;
  opened.engine = handle->engine();
  opened.log = &handle->log;
  opened.trace = handle->trace.get();

  transport::tcp::TcpOptions tcp{.security = {.mode = mode, .token = token}};
  tcp.log = &handle->log;
  tcp.max_strangers =
      std::max<std::size_t>(tcp.max_strangers, opened.node.workers + opened.node.servers);
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, MakeTcpRuntime(tcp));
  UniqueFunction<void(const transport::Address&)> listening;
  if (options.listening != nullptr) {
    listening = [tell = options.listening, user = options.listening_user,
                 advertised = opened.node.advertise_host](const transport::Address& address) {
      tell(user, advertised.empty() ? address.host.c_str() : advertised.c_str(), address.port);
    };
  }
  POSEIDON_ASSIGN_OR_RETURN(handle->session,
                            Session::Open(std::move(runtime), opened, std::move(listening)));
  return handle;
}

Result<plan::Scheme> poseidon_model::SchemeOf(std::uint32_t layer, std::uint64_t step) const {
  POSEIDON_RETURN_IF_ERROR(CheckLayer(layer));
  std::lock_guard lock(mutex);
  if (!final_plan && step >= owner->final_plan_step) {
    return FailedPrecondition("step " + std::to_string(step) +
                              " follows the final plan, which poseidon_begin_step has to bring");
  }
  const bool follows_final = final_plan && step >= final_plan->switch_step.value();
  return (follows_final ? *final_plan : *provisional).layers[layer].scheme;
}

// A push out of turn is refused here, before it can disturb the one under way.
Status poseidon_model::Push(std::uint32_t id, std::uint64_t step, const poseidon_view* gradient,
                            const poseidon_factors* factors, const poseidon_push* more) {
  POSEIDON_RETURN_IF_ERROR(session().failure());
  POSEIDON_ASSIGN_OR_RETURN(const plan::Scheme scheme, SchemeOf(id, step));
  Layer& layer = layers[id];
  const plan::LayerSpec& spec = layer.spec;
  const std::string name = "layer '" + spec.name + "'";
  const bool as_factors = factors != nullptr;
  if (as_factors != (scheme == plan::Scheme::kFactorBroadcast)) {
    return FailedPrecondition(name + " was pushed " + (as_factors ? "as factors" : "dense") +
                              ", but the plan's scheme for step " + std::to_string(step) + " is " +
                              std::string(plan::NameOf(scheme)));
  }
  POSEIDON_ASSIGN_OR_RETURN(const TensorView view, TakeView(gradient, "the gradient of " + name));
  if (view.elements != spec.elements || view.dtype != spec.dtype) {
    return InvalidArgument("the gradient of " + name + " has " + std::to_string(view.elements) +
                           " elements of " + std::string(NameOf(view.dtype)) + ", expected " +
                           std::to_string(spec.elements) + " of " +
                           std::string(NameOf(spec.dtype)));
  }
  poseidon_push extra{};
  if (more != nullptr) {
    POSEIDON_ASSIGN_OR_RETURN(extra, Take(more));
  }
  Factors rows;
  if (as_factors) {
    if (extra.absent != 0 || extra.weight != 0) {
      return InvalidArgument("factors of " + name +
                             " were pushed absent or weighted, expected as many rows as there are");
    }
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_factors taken, Take(factors));
    rows.rows = taken.rows;
    const auto take_factor = [&](const poseidon_view* of, std::uint64_t width,
                                 const char* which) -> Result<const std::byte*> {
      if (taken.rows == 0) return static_cast<const std::byte*>(nullptr);
      POSEIDON_ASSIGN_OR_RETURN(const TensorView factor,
                                TakeView(of, "the factor " + std::string(which) + " of " + name));
      if (factor.elements != taken.rows * width || factor.dtype != spec.dtype) {
        return InvalidArgument("the factor " + std::string(which) + " of " + name + " has " +
                               std::to_string(factor.elements) + " elements of " +
                               std::string(NameOf(factor.dtype)) + ", expected " +
                               std::to_string(taken.rows) + "x" + std::to_string(width) + " of " +
                               std::string(NameOf(spec.dtype)));
      }
      return static_cast<const std::byte*>(factor.memory);
    };
    POSEIDON_ASSIGN_OR_RETURN(rows.u, take_factor(taken.u, spec.factors->outputs, "u"));
    POSEIDON_ASSIGN_OR_RETURN(rows.v, take_factor(taken.v, spec.factors->inputs, "v"));
  }

  std::lock_guard lock(mutex);
  if (layer.last_step && step <= *layer.last_step) {
    return FailedPrecondition(name + " was pushed for step " + std::to_string(step) +
                              " after step " + std::to_string(*layer.last_step));
  }
  if (!session().Landed(LayerId(id))) {
    return FailedPrecondition(name + " was pushed for step " + std::to_string(step) +
                              " before its step " + std::to_string(*layer.last_step) +
                              " had landed");
  }
  layer.last_step = step;
  owner->PushBegan();
  Completion landed = [handle = owner, tell = extra.landed,
                       user = extra.landed_user](const Status& status) {
    if (tell != nullptr) {
      poseidon_status told{};
      told.struct_size = sizeof told;
      Answer(status, &told);
      tell(user, &told);
    }
    handle->PushEnded();
  };
  if (as_factors) {
    session().PushFactors({.layer = LayerId(id),
                           .step = Step(step),
                           .factors = rows,
                           .gradient = view,
                           .landed = std::move(landed)});
  } else {
    session().Push({.layer = LayerId(id),
                    .step = Step(step),
                    .gradient = view,
                    .absent = extra.absent != 0,
                    .weight = extra.weight,
                    .landed = std::move(landed)});
  }
  return OkStatus();
}

namespace {

Status CheckSession(const poseidon_session* session) {
  return session != nullptr ? OkStatus() : InvalidArgument("the session is NULL");
}
Status CheckModel(const poseidon_model* model) {
  return model != nullptr ? OkStatus() : InvalidArgument("the model is NULL");
}
Status CheckLayer(const poseidon_model* model, std::uint32_t layer) {
  POSEIDON_RETURN_IF_ERROR(CheckModel(model));
  return model->CheckLayer(layer);
}

}  // namespace

// ---- poseidon.h, in its order

const char* poseidon_code_name(poseidon_code code) {
  static constexpr std::array<const char*, 12> kNames = {"OK",
                                                         "INVALID_ARGUMENT",
                                                         "NOT_FOUND",
                                                         "FAILED_PRECONDITION",
                                                         "UNAVAILABLE",
                                                         "DEADLINE_EXCEEDED",
                                                         "ABORTED",
                                                         "DATA_LOSS",
                                                         "PERMISSION_DENIED",
                                                         "RESOURCE_EXHAUSTED",
                                                         "UNIMPLEMENTED",
                                                         "INTERNAL"};
  const bool known = code >= 0 && static_cast<std::size_t>(code) < kNames.size();
  return known ? kNames[static_cast<std::size_t>(code)] : "UNKNOWN";
}

uint32_t poseidon_version(void) { return POSEIDON_VERSION_MAJOR << 16 | POSEIDON_VERSION_MINOR; }

poseidon_code poseidon_make_token_file(const char* path, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    if (path == nullptr) return InvalidArgument("the token file's path is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const transport::tcp::Token token, transport::tcp::Token::Generate());
    return token.WriteFile(path);
  });
}

poseidon_code poseidon_open(const poseidon_options* options, poseidon_session** session,
                            poseidon_status* status) {
  if (session != nullptr) *session = nullptr;
  return Answering(status, [&]() -> Status {
    if (session == nullptr) return InvalidArgument("the place for the session is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_options taken, Take(options));
    if (taken.role != POSEIDON_WORKER) {
      return InvalidArgument("role is " + std::to_string(taken.role) +
                             ", expected POSEIDON_WORKER; servers call poseidon_serve");
    }
    POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<poseidon_session> opened,
                              poseidon_session::Open(taken));
    *session = opened.release();
    return OkStatus();
  });
}

poseidon_code poseidon_serve(const poseidon_options* options, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_options taken, Take(options));
    if (taken.role != POSEIDON_SERVER) {
      return InvalidArgument("role is " + std::to_string(taken.role) +
                             ", expected POSEIDON_SERVER; workers call poseidon_open");
    }
    POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<poseidon_session> opened,
                              poseidon_session::Open(taken));
    return opened->session->AwaitEnd();
  });
}

uint32_t poseidon_rank(const poseidon_session* session) {
  return session != nullptr ? session->session->rank().value() : 0u;
}

uint32_t poseidon_workers(const poseidon_session* session) {
  return session != nullptr ? session->session->workers() : 0u;
}

size_t poseidon_member_name(const poseidon_session* session, int32_t member, char* buffer,
                            size_t capacity) {
  if (session == nullptr) return 0;
  const std::string name = session->session->NameOf(member);
  CopyText(name, buffer, capacity);
  return name.size();
}

poseidon_code poseidon_failure(const poseidon_session* session, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    return session->session->failure();
  });
}

poseidon_code poseidon_leave(poseidon_session* session, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    return session->session->Leave();
  });
}

void poseidon_abort(poseidon_session* session, const char* reason) {
  if (session == nullptr) return;
  Answering(nullptr, [&] {
    session->session->Abort(session->OwnAbort(TextOr(reason, "ended the job")));
    return OkStatus();
  });
}

void poseidon_close(poseidon_session* session) {
  if (session == nullptr) return;
  Answering(nullptr, [&] {
    // Has no effect where the job has ended, in whatever way.
    session->session->Abort(session->OwnAbort("closed its session without leaving"));
    return session->session->AwaitEnd();
  });
  {
    std::unique_lock lock(session->mutex);
    session->landed.wait(lock, [&] { return session->in_flight == 0; });
  }
  delete session;
}

poseidon_code poseidon_model_new(poseidon_session* session, poseidon_model** model,
                                 poseidon_status* status) {
  if (model != nullptr) *model = nullptr;
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (model == nullptr) return InvalidArgument("the place for the model is NULL");
    if (session->model) return Unimplemented("a session holds one model, expected no second one");
    session->model = std::make_unique<poseidon_model>(session);
    *model = session->model.get();
    return OkStatus();
  });
}

poseidon_code poseidon_declare(poseidon_model* model, const poseidon_layer* layer, uint32_t* id,
                               poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_layer taken, Take(layer));
    if (taken.name == nullptr) return InvalidArgument("a layer's name is NULL");
    const std::string name = "layer '" + std::string(taken.name) + "'";
    if (model->committed) {
      return FailedPrecondition(name + " was declared after the model was committed");
    }
    const auto dtype = static_cast<DType>(taken.dtype);
    if (taken.dtype <= 0 || taken.dtype > POSEIDON_I64 || !HasSum(dtype)) {
      return InvalidArgument(name + " has dtype " + std::to_string(taken.dtype) +
                             ", expected POSEIDON_F32, POSEIDON_F64 or POSEIDON_I64");
    }
    poseidon_model::Layer added;
    added.spec.name = taken.name;
    added.spec.shape = TextOr(taken.shape, "");
    added.spec.dtype = dtype;
    added.spec.elements = taken.elements;
    added.spec.forward_position = taken.forward_position;
    if (taken.outputs != 0 || taken.inputs != 0) {
      added.spec.factors = plan::FactorShape{taken.outputs, taken.inputs, taken.bias != 0};
    }
    std::vector<plan::LayerSpec> all;
    for (const poseidon_model::Layer& known : model->layers) all.push_back(known.spec);
    all.push_back(added.spec);
    POSEIDON_RETURN_IF_ERROR(plan::Validate(all));
    model->layers.push_back(std::move(added));
    if (id != nullptr) *id = static_cast<std::uint32_t>(model->layers.size() - 1);
    return OkStatus();
  });
}

poseidon_code poseidon_commit(poseidon_model* model, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (model->committed) return FailedPrecondition("the model was committed before");
    if (model->layers.empty()) return FailedPrecondition("a model without layers was committed");
    std::vector<plan::LayerSpec> specs;
    bool factors = false;
    for (const poseidon_model::Layer& layer : model->layers) {
      specs.push_back(layer.spec);
      factors = factors || layer.spec.factors.has_value();
    }
    if (factors && model->owner->blas_engine) model->owner->blas_engine->Start();
    POSEIDON_ASSIGN_OR_RETURN(plan::Plan plan, model->session().Commit(specs));
    std::lock_guard lock(model->mutex);
    model->provisional = std::move(plan);
    model->committed = true;
    return OkStatus();
  });
}

poseidon_code poseidon_get_plan(const poseidon_model* model, poseidon_plan* plan,
                                poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    std::lock_guard lock(model->mutex);
    if (model->plan() == nullptr) return FailedPrecondition("the model has not been committed");
    const plan::Plan& known = *model->plan();
    poseidon_plan given{};
    given.switch_step = known.switch_step.value();
    given.final_plan = model->final_plan ? 1 : 0;
    given.policy = static_cast<std::int32_t>(known.policy);
    given.layers = static_cast<std::uint32_t>(known.layers.size());
    given.step_seconds = known.step_seconds;
    given.compute_seconds = known.compute_seconds;
    given.single_worker_seconds = known.single_worker_seconds;
    given.speedup = known.speedup;
    given.wfbp_seconds = known.wfbp_seconds;
    given.dense_step_seconds = known.dense_step_seconds;
    given.dense_bytes_sent = known.dense_bytes_sent;
    return Give("poseidon_plan", given, plan);
  });
}

poseidon_code poseidon_get_layer_plan(const poseidon_model* model, uint32_t layer,
                                      poseidon_layer_plan* plan, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    std::lock_guard lock(model->mutex);
    const plan::LayerPlan& known = model->plan()->layers[layer];
    poseidon_layer_plan given{};
    given.scheme = static_cast<std::int32_t>(known.scheme);
    given.forced = known.forced ? 1 : 0;
    given.bytes_sent = known.bytes_sent;
    given.bytes_received = known.bytes_received;
    given.transfer_seconds = known.transfer_seconds;
    given.rebuild_seconds = known.rebuild_seconds;
    CopyText(known.reason, given.reason, sizeof given.reason);
    return Give("poseidon_layer_plan", given, plan);
  });
}

size_t poseidon_plan_text(const poseidon_model* model, char* buffer, size_t capacity) {
  CopyText("", buffer, capacity);
  if (model == nullptr) return 0;
  std::string text;
  Answering(nullptr, [&] {
    std::lock_guard lock(model->mutex);
    if (model->plan() == nullptr) return OkStatus();
    for (std::size_t i = 0; i < model->layers.size(); ++i) {
      text += Escaped(model->layers[i].spec.name) + "=" +
              std::string(plan::NameOf(model->plan()->layers[i].scheme)) + "\n";
    }
    return OkStatus();
  });
  CopyText(text, buffer, capacity);
  return text.size();
}

poseidon_code poseidon_begin_step(poseidon_model* model, uint64_t step, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    POSEIDON_ASSIGN_OR_RETURN(const plan::Plan* plan, model->session().BeginStep(Step(step)));
    std::lock_guard lock(model->mutex);
    if (!model->final_plan && model->session().plan_is_final()) model->final_plan = *plan;
    return OkStatus();
  });
}

poseidon_code poseidon_scheme_of(const poseidon_model* model, uint32_t layer, uint64_t step,
                                 int32_t* scheme, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (scheme == nullptr) return InvalidArgument("the place for the scheme is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const plan::Scheme known, model->SchemeOf(layer, step));
    *scheme = static_cast<std::int32_t>(known);
    return OkStatus();
  });
}

poseidon_code poseidon_push_dense(poseidon_model* model, uint32_t layer, uint64_t step,
                                  const poseidon_view* gradient, const poseidon_push* more,
                                  poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    return model->Push(layer, step, gradient, nullptr, more);
  });
}

poseidon_code poseidon_push_factors(poseidon_model* model, uint32_t layer, uint64_t step,
                                    const poseidon_factors* factors, const poseidon_view* gradient,
                                    const poseidon_push* more, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (factors == nullptr) return InvalidArgument("the poseidon_factors is NULL");
    return model->Push(layer, step, gradient, factors, more);
  });
}

poseidon_code poseidon_wait(poseidon_model* model, uint32_t layer, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    return model->session().Wait(LayerId(layer));
  });
}

poseidon_code poseidon_wait_any(poseidon_model* model, const uint32_t* layers, uint32_t count,
                                uint32_t* landed, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    if (layers == nullptr || count == 0 || landed == nullptr) {
      return InvalidArgument("poseidon_wait_any was given no layer or no place for the answer");
    }
    std::vector<LayerId> ids;
    ids.reserve(count);
    for (const std::uint32_t layer : std::span(layers, count)) {
      POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
      ids.emplace_back(layer);
    }
    *landed = model->session().WaitAny(ids).value();
    return OkStatus();
  });
}

int32_t poseidon_landed(const poseidon_model* model, uint32_t layer) {
  if (!CheckLayer(model, layer).ok()) return 1;
  return model->session().Landed(LayerId(layer)) ? 1 : 0;
}

poseidon_code poseidon_measured(poseidon_model* model, uint32_t layer,
                                const poseidon_measurement* measurement, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_measurement taken, Take(measurement));
    if (!(taken.forward_seconds >= 0 && taken.backward_seconds >= 0 &&
          std::isfinite(taken.forward_seconds) && std::isfinite(taken.backward_seconds))) {
      return InvalidArgument("layer '" + model->layers[layer].spec.name +
                             "' was measured to take " + std::to_string(taken.forward_seconds) +
                             " and " + std::to_string(taken.backward_seconds) +
                             " s, expected finite times from 0");
    }
    // A sum with +0 makes 0 of -0, which is no quantity on the wire.
    model->layers[layer].measured = {taken.forward_seconds + 0.0, taken.backward_seconds + 0.0, taken.rows};
    return OkStatus();
  });
}

poseidon_code poseidon_report(poseidon_model* model, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (!model->committed) return FailedPrecondition("the model has not been committed");
    POSEIDON_RETURN_IF_ERROR(model->session().failure());
    std::vector<wire::Measured::Layer> measured;
    for (const poseidon_model::Layer& layer : model->layers) measured.push_back(layer.measured);
    model->session().Report(measured);
    return OkStatus();
  });
}

poseidon_code poseidon_sum(poseidon_session* session, const poseidon_view* view,
                           poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    POSEIDON_ASSIGN_OR_RETURN(const TensorView taken, TakeView(view, "the sum's view"));
    return session->session->Sum(taken);
  });
}

poseidon_code poseidon_broadcast(poseidon_session* session, const poseidon_view* view,
                                 uint32_t root, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    POSEIDON_ASSIGN_OR_RETURN(const TensorView taken, TakeView(view, "the broadcast's view"));
    if (root >= session->session->workers()) {
      return InvalidArgument("the broadcast's root is " + std::to_string(root) +
                             ", expected less than the " +
                             std::to_string(session->session->workers()) + " workers");
    }
    return session->session->Broadcast(taken, Rank(static_cast<std::uint16_t>(root)));
  });
}

poseidon_code poseidon_barrier(poseidon_session* session, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    return session->session->Barrier();
  });
}

poseidon_code poseidon_gather(poseidon_session* session, const void* bytes, size_t size,
                              void (*take)(void* user, uint32_t rank, const void* bytes,
                                           size_t size),
                              void* user, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (take == nullptr) return InvalidArgument("the gather's callback is NULL");
    if (bytes == nullptr && size != 0) return InvalidArgument("the gather's bytes are NULL");
    POSEIDON_ASSIGN_OR_RETURN(
        const std::vector<ByteBuffer> gathered,
        session->session->Gather(ConstBytes(static_cast<const std::byte*>(bytes), size)));
    for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
      take(user, static_cast<std::uint32_t>(rank), gathered[rank].data(), gathered[rank].size());
    }
    return OkStatus();
  });
}

poseidon_code poseidon_get_statistics(const poseidon_session* session,
                                      poseidon_statistics* statistics, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    const Statistics known = session->session->Collect();
    poseidon_statistics given{};
    given.control = TrafficOf(known.control);
    given.collectives = TrafficOf(known.collectives);
    given.wire_bytes_sent = known.wire.wire_bytes_out;
    given.wire_bytes_received = known.wire.wire_bytes_in;
    given.busy_seconds = known.busy_seconds;
    given.waited_seconds = known.waited_seconds;
    given.hidden_share = known.hidden_share();
    given.allocated_bytes = known.allocated_bytes;
    given.link_bytes_per_second = known.link.bytes_per_second;
    given.link_latency_seconds = known.link.latency_seconds;
    return Give("poseidon_statistics", given, statistics);
  });
}

poseidon_code poseidon_get_layer_statistics(const poseidon_model* model, uint32_t layer,
                                            poseidon_layer_statistics* statistics,
                                            poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    const Statistics all = model->session().Collect();
    const LayerStatistics& known = all.layers.at(layer);
    poseidon_layer_statistics given{};
    given.key_value = TrafficOf(known.key_value);
    given.factors = TrafficOf(known.factors);
    given.steps = known.steps;
    given.seconds = known.seconds;
    given.local_bytes = known.local_bytes;
    return Give("poseidon_layer_statistics", given, statistics);
  });
}

void poseidon_reset_timings(poseidon_session* session) {
  if (session == nullptr) return;
  Answering(nullptr, [&] {
    session->session->ResetTimings();
    return OkStatus();
  });
}

int64_t poseidon_now(const poseidon_session* session) {
  return session != nullptr ? session->session->now().since_origin.count() : 0;
}

poseidon_code poseidon_record(poseidon_session* session, const poseidon_span* span,
                              poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_span taken, Take(span));
    if (taken.lane < POSEIDON_LANE_COMPUTE || taken.lane > POSEIDON_LANE_WAIT) {
      return InvalidArgument("a span's lane is " + std::to_string(taken.lane) +
                             ", expected one of POSEIDON_LANE_...");
    }
    if (session->trace) {
      session->trace->Record({.lane = static_cast<TraceLane>(taken.lane),
                              .layer = taken.layer,
                              .step = taken.step,
                              .begin = TimePoint{Duration(taken.begin_nanoseconds)},
                              .end = TimePoint{Duration(taken.end_nanoseconds)},
                              .bytes = taken.bytes,
                              .label = taken.label != nullptr ? taken.label : ""});
    }
    return OkStatus();
  });
}

poseidon_code poseidon_take_trace(poseidon_session* session,
                                  void (*take)(void* user, const poseidon_span* span), void* user,
                                  poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (take == nullptr) return InvalidArgument("the trace's callback is NULL");
    if (!session->trace) return OkStatus();
    for (const TraceSpan& known : session->trace->Take()) {
      poseidon_span span{};
      span.struct_size = sizeof span;
      span.lane = static_cast<std::int32_t>(known.lane);
      span.layer = known.layer;
      span.step = known.step;
      span.begin_nanoseconds = known.begin.since_origin.count();
      span.end_nanoseconds = known.end.since_origin.count();
      span.bytes = known.bytes;
      span.label = known.label;
      take(user, &span);
    }
    return OkStatus();
  });
}
