// SPDX-License-Identifier: Apache-2.0
// Solvers through the C interface.
#include "frontends/caffe/solver/solver.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/c/failure.h"
#include "frontends/caffe/c/handles.h"
#include "frontends/caffe/c/job.h"
#include "frontends/caffe/c/say.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/solver/weights_hash.h"
#include "frontends/caffe/train/job_options.h"
#include "frontends/caffe/train/reporter.h"
#include "frontends/caffe/train/run_reports.h"

using namespace poseidon;         // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::caffe;  // NOLINT(google-build-using-namespace)

struct poseidon_caffe_solver {
  explicit poseidon_caffe_solver(const place::Place& place) : reporter(output, place.rank == 0) {
    if (place.workers > 1) job = std::make_unique<Job>(place, output);
  }

  // Trains together with the other workers, if there are any: a failure of this one is theirs, too.
  template <typename Work>
  Status Train(Work&& work) {
    return Run([&]() -> Status {
      if (!job) return work();
      Status status = job->Join(solver.get());
      if (status.ok()) status = work();
      if (!status.ok()) job->Abort(status);
      return status;
    });
  }

  // Runs `work` of the solver; its net has had other passes and gradients then.
  template <typename Work>
  Status Run(Work&& work) {
    POSEIDON_RETURN_IF_ERROR(train->FollowReshapes());
    train->NeedParamDiffs();  // now: a callback that looks at gradients must not make them anew
    const Status status = std::forward<Work>(work)();
    train->passes = solver->iteration() * static_cast<std::uint64_t>(solver->parameters().iter_size());
    return status;
  }

  SaidOutput output;
  Reporter reporter;
  std::unique_ptr<Solver> solver;
  std::unique_ptr<poseidon_caffe_net> train;
  std::vector<std::unique_ptr<poseidon_caffe_net>> tests;
  std::unique_ptr<Job> job;  // ends before the solver
};

namespace {

Status Tell(int32_t (*callback)(void)) { return Answered(WantsOut() ? 0 : callback()); }

SolverOptions OptionsOf(const std::string& prototxt, const place::Place& place, const SolverParameter& parameters,
                        std::int64_t default_seed, poseidon_caffe_solver* handle) {
  SolverOptions options;
  const std::int64_t seed = parameters.random_seed() >= 0 ? parameters.random_seed() : default_seed;
  options.seed = seed >= 0 ? static_cast<std::uint64_t>(seed) : 1;
  options.share.rank = place.rank;
  options.share.world = place.workers;
  options.folder = std::filesystem::path(prototxt).parent_path().string();
  options.writes_snapshots = place.rank == 0;
  options.observer = &handle->reporter;
  options.diffs_are_updates = true;
  options.fuse = false;  // a script may run a part of a net, and look at every blob
  options.stop_wanted = WantsOut;
  options.poll = [handle](std::uint64_t) {
    if (handle->job) return handle->job->Agreed();
    return WantsOut() ? SolverAction::kStop : SolverAction::kNone;
  };
  return options;
}

Status Make(const std::string& prototxt, const poseidon_caffe_solver_options& wanted, const place::Place& place,
            poseidon_caffe_solver* handle) {
  POSEIDON_ASSIGN_OR_RETURN(SolverParameter parameters, ReadJobSolver({.solver = prototxt}));
  if (wanted.type != nullptr) parameters.set_type(wanted.type);
  POSEIDON_ASSIGN_OR_RETURN(handle->solver, Solver::Create(parameters, OptionsOf(prototxt, place, parameters, wanted.seed, handle)));
  handle->reporter.Begin({.metrics_path = {},
                          .max_iter = static_cast<std::uint64_t>(parameters.max_iter()),
                          .images_per_iteration = BatchOf(handle->solver->net()) * static_cast<std::uint64_t>(parameters.iter_size()) *
                                                  static_cast<std::uint64_t>(place.workers),
                          .communication = {},
                          .resumed_from = {},
                          .saving = {}});
  handle->train = std::make_unique<poseidon_caffe_net>(&handle->solver->net());
  for (const auto& net : handle->solver->test_nets()) handle->tests.push_back(std::make_unique<poseidon_caffe_net>(net.get()));
  return OkStatus();
}

}  // namespace

poseidon_caffe_code poseidon_caffe_solver_new(const char* prototxt, const poseidon_caffe_solver_options* options,
                                              poseidon_caffe_solver** solver) {
  return Guarded([&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const place::Place place, OwnPlace());
    auto handle = std::make_unique<poseidon_caffe_solver>(place);
    POSEIDON_RETURN_IF_ERROR(Make(prototxt, *options, place, handle.get()));
    *solver = handle.release();
    return OkStatus();
  });
}

void poseidon_caffe_solver_free(poseidon_caffe_solver* solver) { delete solver; }

poseidon_caffe_net* poseidon_caffe_solver_net(poseidon_caffe_solver* solver, int32_t test) {
  if (test < 0) return solver->train.get();
  const auto index = static_cast<std::size_t>(test);
  return index < solver->tests.size() ? solver->tests[index].get() : nullptr;
}

uint64_t poseidon_caffe_solver_iteration(const poseidon_caffe_solver* solver) { return solver->solver->iteration(); }

double poseidon_caffe_solver_rate(const poseidon_caffe_solver* solver) { return solver->solver->last_rate(); }

const char* poseidon_caffe_solver_parameters(const poseidon_caffe_solver* solver) {
  return Lent(ToText(solver->solver->parameters()));
}

void poseidon_caffe_solver_call(poseidon_caffe_solver* solver, int32_t (*began)(void), int32_t (*gradients_ready)(void)) {
  solver->solver->CallInIterations({.begins = [began] { return Tell(began); },
                                    .gradients_ready = [gradients_ready] { return Tell(gradients_ready); }});
}

poseidon_caffe_code poseidon_caffe_solver_set_base_lr(poseidon_caffe_solver* solver, float rate) {
  return Guarded([&] {
    solver->solver->set_base_lr(rate);
    return OkStatus();
  });
}

poseidon_caffe_code poseidon_caffe_solver_step(poseidon_caffe_solver* solver, uint64_t iterations) {
  return Guarded([&] { return solver->Train([&] { return solver->solver->Step(iterations); }); });
}

poseidon_caffe_code poseidon_caffe_solver_solve(poseidon_caffe_solver* solver) {
  return Guarded([&] { return solver->Train([&] { return solver->solver->Solve(); }); });
}

poseidon_caffe_code poseidon_caffe_solver_restore(poseidon_caffe_solver* solver, const char* state) {
  return Guarded([&] { return solver->Run([&] { return solver->solver->Restore(state); }); });
}

poseidon_caffe_code poseidon_caffe_solver_snapshot(poseidon_caffe_solver* solver) {
  return Guarded([&]() -> Status {
    if (solver->solver->parameters().snapshot_prefix().empty()) return InvalidArgument("the solver has no snapshot_prefix");
    POSEIDON_RETURN_IF_ERROR(solver->solver->Snapshot());
    return solver->reporter.SnapshotOutcome();
  });
}

poseidon_caffe_code poseidon_caffe_place(int32_t* rank, int32_t* workers) {
  return Guarded([&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const place::Place place, OwnPlace());
    *rank = place.rank;
    *workers = place.workers;
    return OkStatus();
  });
}

void poseidon_caffe_solver_abort(poseidon_caffe_solver* solver, const char* failure) {
  Guarded([&] {
    if (solver->job) solver->job->Abort(Status(StatusCode::kAborted, failure));
    return OkStatus();
  });
}

const char* poseidon_caffe_solver_hash(poseidon_caffe_solver* solver) { return Lent(WeightsHash(solver->solver->net())); }
