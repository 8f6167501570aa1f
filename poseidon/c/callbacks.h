// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_CALLBACKS_H_
#define POSEIDON_C_CALLBACKS_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "poseidon/base/log.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/factors/blas_engine.h"
#include "poseidon/factors/engine.h"

// Adapters of the caller's functions to the core's interfaces: its log and its matrix product.
namespace poseidon::c {

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

class CallbackEngine final : public factors::ProductEngine {
 public:
  explicit CallbackEngine(const poseidon_engine& engine)
      : engine_(engine),
        description_(engine.description != nullptr ? engine.description : "the program's own") {}

  Status Multiply(const Product& product) override {
    poseidon_product given = POSEIDON_NEW(poseidon_product);
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

// The default engine, set up when it is first needed: its thread count may be the whole process's.
class LateBlasEngine final : public factors::ProductEngine {
 public:
  LateBlasEngine(int threads, std::string file) : threads_(threads), file_(std::move(file)) {}
  // Before the layers are committed.
  void Start() {
    if (!engine_) engine_ = factors::MakeBlasEngine(threads_, file_);
  }
  Status Multiply(const Product& product) override {
    if (engine_) return engine_->Multiply(product);
    return FailedPrecondition("no BLAS multiplies factors in this process, expected libopenblas.so.0, a library "
                              "that the options name, PyTorch loaded before the layers are committed, an engine of "
                              "the program's own, or layers without factors");
  }
  std::string description() const override { return engine_ ? engine_->description() : "none"; }

 private:
  const int threads_;
  const std::string file_;
  std::unique_ptr<factors::ProductEngine> engine_;
};

}  // namespace poseidon::c

#endif  // POSEIDON_C_CALLBACKS_H_
