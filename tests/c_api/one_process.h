// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_C_API_ONE_PROCESS_H_
#define POSEIDON_TESTS_C_API_ONE_PROCESS_H_

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "poseidon/c/poseidon.hpp"
#include "tests/c_api/fake_accelerator.h"

// A job on libposeidon.so whose ranks are threads of the test's process with a session each, over TCP on loopback; layers to
// declare and memory to push.
namespace poseidon_test {

using poseidon_cpp::Error;
using poseidon_cpp::Model;
using poseidon_cpp::Session;
using poseidon_cpp::View;

inline constexpr std::array<std::uint8_t, 32> kToken = {1, 2, 3, 4, 5, 6, 7, 8};

// The failure of a call, with its code, or POSEIDON_OK.
struct Failure {
  poseidon_code code = POSEIDON_OK;
  std::int32_t scope = 0;
  std::int32_t culprit = POSEIDON_NO_CULPRIT;
  std::string message;
};

template <typename F>
Failure FailureOf(F f) {
  try {
    f();
  } catch (const Error& error) {
    return {error.code(), error.scope(), error.culprit(), error.what()};
  }
  return {};
}

// Starts members of one job in threads; rank 0 hands the others its address.
class Job {
 public:
  explicit Job(std::uint32_t workers, std::uint32_t servers = 0)
      : workers_(workers), servers_(servers), port_(port_known_.get_future().share()) {}

  poseidon_options Options(std::uint32_t rank) {
    poseidon_options options = POSEIDON_NEW(poseidon_options);
    options.workers = workers_;
    options.servers = servers_;
    options.token_bytes = kToken.data();
    options.final_plan_step = POSEIDON_NEVER;
    options.join_timeout_seconds = 60;
    if (rank == 0) {
      options.hosts_coordinator = 1;
      options.listening = [](void* job, const char*, std::uint32_t port) {
        static_cast<Job*>(job)->port_known_.set_value(port);
      };
      options.listening_user = this;
    } else {
      options.requested_rank = static_cast<std::int32_t>(rank);
      options.coordinator_port = port_.get();
    }
    return options;
  }

  // Runs `member(rank, options)` for every rank; returns what each failed with.
  std::vector<Failure> Run(
      const std::function<void(std::uint32_t, const poseidon_options&)>& member) {
    std::vector<std::future<Failure>> ranks;
    for (std::uint32_t rank = 0; rank < workers_; ++rank) {
      ranks.push_back(std::async(std::launch::async, [&, rank] {
        return FailureOf([&] { member(rank, Options(rank)); });
      }));
    }
    std::vector<Failure> failures;
    failures.reserve(ranks.size());
    for (auto& rank : ranks) failures.push_back(rank.get());
    return failures;
  }

 private:
  const std::uint32_t workers_;
  const std::uint32_t servers_;
  std::promise<std::uint32_t> port_known_;
  std::shared_future<std::uint32_t> port_;
};

inline void ExpectAllOk(const std::vector<Failure>& failures) {
  for (const Failure& failure : failures) EXPECT_EQ(failure.code, POSEIDON_OK) << failure.message;
}

inline poseidon_options Alone() {
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.workers = 1;
  options.hosts_coordinator = 1;
  options.final_plan_step = POSEIDON_NEVER;
  return options;
}

inline poseidon_layer Dense(const char* name, std::uint64_t elements) {
  poseidon_layer layer = POSEIDON_NEW(poseidon_layer);
  layer.name = name;
  layer.elements = elements;
  layer.dtype = POSEIDON_F32;
  return layer;
}

inline poseidon_layer WithFactors(const char* name, std::uint64_t outputs, std::uint64_t inputs) {
  poseidon_layer layer = Dense(name, outputs * (inputs + 1));
  layer.outputs = outputs;
  layer.inputs = inputs;
  layer.bias = 1;
  return layer;
}

inline poseidon_layer Table(const char* name, std::uint64_t entries, std::uint64_t width, std::int32_t dtype = POSEIDON_F32) {
  poseidon_layer layer = Dense(name, entries * width);
  layer.dtype = dtype;
  layer.outputs = entries;
  layer.inputs = width;
  layer.table = 1;
  return layer;
}

inline poseidon_layer MultipliedByDevice(const char* name, std::uint64_t outputs, std::uint64_t inputs, std::uint64_t hash) {
  poseidon_layer layer = WithFactors(name, outputs, inputs);
  layer.product_rows = 64;
  layer.product_hash = hash;
  layer.product_seconds = 1e-6;
  return layer;
}

inline poseidon_view OnDevice(FakeAccelerator& device, std::size_t offset, std::uint64_t elements,
                       FakeAccelerator::Event* ready = nullptr) {
  poseidon_view view = POSEIDON_NEW(poseidon_view);
  view.memory = device.At(offset);
  view.elements = elements;
  view.dtype = POSEIDON_F32;
  view.device_type = FakeAccelerator::kType;
  view.ready = ready;
  return view;
}

// A job of one worker with a device, and a model with a layer of each kind that it has not committed.
struct AloneWithDevice : testing::Test {
  FakeAccelerator accelerator{1 << 16};
  poseidon_device device = accelerator.Device();
  Session session{[this] {
    poseidon_options options = Alone();
    options.device = &device;
    options.schemes = "f=sfb";
    return options;
  }()};
  Model model = session.NewModel();
  std::uint32_t a = model.Declare(Dense("a", 4));
  std::uint32_t f = model.Declare(WithFactors("f", 2, 3));
};

}  // namespace poseidon_test

#endif  // POSEIDON_TESTS_C_API_ONE_PROCESS_H_
