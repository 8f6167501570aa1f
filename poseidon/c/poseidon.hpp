// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_POSEIDON_HPP_
#define POSEIDON_C_POSEIDON_HPP_

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "poseidon/c/poseidon.h"

// poseidon.h for C++11 and later: handles that close themselves, failures as exceptions. Nothing
// but this header is compiled into the program; poseidon.h says what the functions do, block on and
// lend.
namespace poseidon_cpp {

// A failure of any call below.
class Error : public std::runtime_error {
 public:
  explicit Error(const poseidon_status& status)
      : std::runtime_error(status.message),
        code_(status.code),
        scope_(status.scope),
        culprit_(status.culprit) {}
  poseidon_code code() const { return code_; }
  int32_t scope() const { return scope_; }
  int32_t culprit() const { return culprit_; }

 private:
  poseidon_code code_;
  int32_t scope_;
  int32_t culprit_;
};

// Calls `function(arguments..., &status)` and throws where it fails.
template <typename Function, typename... Arguments>
void Check(Function function, Arguments... arguments) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  if (function(arguments..., &status) != POSEIDON_OK) throw Error(status);
}

inline poseidon_view View(void* memory, uint64_t elements, int32_t dtype) {
  poseidon_view view = POSEIDON_NEW(poseidon_view);
  view.memory = memory;
  view.elements = elements;
  view.dtype = dtype;
  return view;
}
inline poseidon_view View(float* numbers, uint64_t elements) { return View(numbers, elements, POSEIDON_F32); }
inline poseidon_view View(double* numbers, uint64_t elements) { return View(numbers, elements, POSEIDON_F64); }
inline poseidon_view View(int64_t* numbers, uint64_t elements) { return View(numbers, elements, POSEIDON_I64); }
template <typename T>
poseidon_view View(std::vector<T>& numbers) {
  return View(numbers.data(), numbers.size());
}

// The model of a session; valid as long as that.
class Model {
 public:
  explicit Model(poseidon_model* model) : model_(model) {}
  poseidon_model* get() const { return model_; }

  uint32_t Declare(const poseidon_layer& layer) {
    uint32_t id = 0;
    Check(poseidon_declare, model_, &layer, &id);
    return id;
  }
  void Commit() { Check(poseidon_commit, model_); }
  void BeginStep(uint64_t step) { Check(poseidon_begin_step, model_, step); }

  bool TakesFactors(uint32_t layer, uint64_t step) const { return Takes(layer, step) != POSEIDON_GRADIENT; }
  // Whether the mean of `step` is what Gathered returns, of a layer whose product the program makes.
  bool TakesGathered(uint32_t layer, uint64_t step) const { return Takes(layer, step) == POSEIDON_GATHERED; }
  // The session's own memory for the layer, whose `brought` is null where it has none.
  poseidon_memory Memory(uint32_t layer) const {
    poseidon_memory memory = POSEIDON_NEW(poseidon_memory);
    Check(poseidon_get_memory, static_cast<const poseidon_model*>(model_), layer, &memory);
    return memory;
  }
  void Push(uint32_t layer, uint64_t step, const poseidon_view& gradient,
            const poseidon_push* more = nullptr) {
    Check(poseidon_push_dense, model_, layer, step, &gradient, more);
  }
  // Of a push with poseidon_push.in_parts.
  void Arrived(uint32_t layer, uint64_t elements) { Check(poseidon_arrived, model_, layer, elements); }
  // u: [rows x outputs], v: [rows x inputs].
  void PushFactors(uint32_t layer, uint64_t step, const poseidon_view& u, const poseidon_view& v,
                   uint32_t rows, const poseidon_view& gradient,
                   const poseidon_push* more = nullptr) {
    poseidon_factors factors = POSEIDON_NEW(poseidon_factors);
    factors.u = &u;
    factors.v = &v;
    factors.rows = rows;
    Check(poseidon_push_factors, model_, layer, step,
          static_cast<const poseidon_factors*>(&factors), &gradient, more);
  }
  // values: [indices.size() x inputs].
  void PushRows(uint32_t layer, uint64_t step, std::vector<int64_t>& indices, const poseidon_view& values,
                const poseidon_push* more = nullptr) {
    poseidon_rows rows = POSEIDON_NEW(poseidon_rows);
    rows.indices = indices.data();
    rows.values = &values;
    rows.count = static_cast<uint32_t>(indices.size());
    Check(poseidon_push_rows, model_, layer, step, static_cast<const poseidon_rows*>(&rows), more);
  }
  // All workers' rows, of a table that has landed, or of a layer that takes them gathered.
  poseidon_gathered Gathered(uint32_t layer) const {
    poseidon_gathered gathered = POSEIDON_NEW(poseidon_gathered);
    Check(poseidon_get_gathered, static_cast<const poseidon_model*>(model_), layer, &gathered);
    return gathered;
  }
  void Wait(uint32_t layer) { Check(poseidon_wait, model_, layer); }
  // The first of `layers` that has landed.
  uint32_t WaitAny(const std::vector<uint32_t>& layers) {
    uint32_t landed = 0;
    Check(poseidon_wait_any, model_, layers.data(), static_cast<uint32_t>(layers.size()), &landed);
    return landed;
  }
  bool Landed(uint32_t layer) const { return poseidon_landed(model_, layer) != 0; }

  void Measured(uint32_t layer, const poseidon_measurement& measurement) {
    Check(poseidon_measured, model_, layer, &measurement);
  }
  void Report() { Check(poseidon_report, model_); }

  poseidon_plan Plan() const {
    poseidon_plan plan = POSEIDON_NEW(poseidon_plan);
    Check(poseidon_get_plan, static_cast<const poseidon_model*>(model_), &plan);
    return plan;
  }
  poseidon_layer_plan LayerPlan(uint32_t layer) const {
    poseidon_layer_plan plan = POSEIDON_NEW(poseidon_layer_plan);
    Check(poseidon_get_layer_plan, static_cast<const poseidon_model*>(model_), layer, &plan);
    return plan;
  }
  std::string PlanText() const {
    std::vector<char> text(poseidon_plan_text(model_, nullptr, 0) + 1);
    poseidon_plan_text(model_, text.data(), text.size());
    return text.data();
  }
  poseidon_layer_statistics Statistics(uint32_t layer) const {
    poseidon_layer_statistics statistics = POSEIDON_NEW(poseidon_layer_statistics);
    Check(poseidon_get_layer_statistics, static_cast<const poseidon_model*>(model_), layer,
          &statistics);
    return statistics;
  }

 private:
  int32_t Takes(uint32_t layer, uint64_t step) const {
    int32_t takes = 0;
    Check(poseidon_takes, static_cast<const poseidon_model*>(model_), layer, step, &takes);
    return takes;
  }

  poseidon_model* model_;
};

// A worker's place in a job. Destroying it without Leave ends the job for everybody.
class Session {
 public:
  explicit Session(const poseidon_options& options) : session_(nullptr, &poseidon_close) {
    poseidon_session* opened = nullptr;
    Check(poseidon_open, &options, &opened);
    session_.reset(opened);
  }
  poseidon_session* get() const { return session_.get(); }

  uint32_t rank() const { return poseidon_rank(get()); }
  uint32_t workers() const { return poseidon_workers(get()); }
  std::string MemberName(int32_t member) const {
    std::vector<char> name(poseidon_member_name(get(), member, nullptr, 0) + 1);
    poseidon_member_name(get(), member, name.data(), name.size());
    return name.data();
  }

  // Up to 256 per session.
  Model NewModel() {
    poseidon_model* model = nullptr;
    Check(poseidon_model_new, get(), &model);
    return Model(model);
  }

  // For each layer the index of the first of those that it should be declared with as one.
  std::vector<uint32_t> JoinSmall(const std::vector<poseidon_layer>& layers) const {
    std::vector<const poseidon_layer*> pointers;
    for (const poseidon_layer& layer : layers) pointers.push_back(&layer);
    std::vector<uint32_t> first(layers.size());
    Check(poseidon_join_small, get(), pointers.data(), static_cast<uint32_t>(layers.size()), first.data());
    return first;
  }

  void Sum(const poseidon_view& view) { Check(poseidon_sum, get(), &view); }
  void Broadcast(const poseidon_view& view, uint32_t root) {
    Check(poseidon_broadcast, get(), &view, root);
  }
  void Barrier() { Check(poseidon_barrier, get()); }
  // Every rank's bytes, by rank.
  std::vector<std::string> Gather(const std::string& bytes) {
    std::vector<std::string> gathered;
    Check(poseidon_gather, get(), static_cast<const void*>(bytes.data()), bytes.size(),
          &Session::TakeBytes, static_cast<void*>(&gathered));
    return gathered;
  }

  poseidon_statistics Statistics() const {
    poseidon_statistics statistics = POSEIDON_NEW(poseidon_statistics);
    Check(poseidon_get_statistics, static_cast<const poseidon_session*>(get()), &statistics);
    return statistics;
  }
  std::vector<poseidon_span> TakeTrace() {
    std::vector<poseidon_span> spans;
    Check(poseidon_take_trace, get(), &Session::TakeSpan, static_cast<void*>(&spans));
    return spans;
  }

  // Losses and the like, by name, for the run's account.
  void Note(uint64_t step, const std::vector<poseidon_number>& numbers, bool test = false) {
    Check(poseidon_note, get(), step, static_cast<int32_t>(test), numbers.data(), static_cast<uint32_t>(numbers.size()));
  }

  void Leave() { Check(poseidon_leave, get()); }
  void Abort(const std::string& reason) { poseidon_abort(get(), reason.c_str()); }

 private:
  static void TakeBytes(void* gathered, uint32_t, const void* bytes, size_t size) {
    static_cast<std::vector<std::string>*>(gathered)->push_back(
        size == 0 ? std::string() : std::string(static_cast<const char*>(bytes), size));
  }
  static void TakeSpan(void* spans, const poseidon_span* span) {
    static_cast<std::vector<poseidon_span>*>(spans)->push_back(*span);
  }

  std::unique_ptr<poseidon_session, void (*)(poseidon_session*)> session_;
};

// The whole life of a dedicated server.
inline void Serve(const poseidon_options& options) { Check(poseidon_serve, &options); }

}  // namespace poseidon_cpp

#endif  // POSEIDON_C_POSEIDON_HPP_
