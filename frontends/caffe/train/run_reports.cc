// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/run_reports.h"

#include <cstdint>
#include <utility>

#include "poseidon/base/file.h"

namespace poseidon::caffe {
std::uint64_t BatchOf(const Net& net) {
  for (int i = 0; i < net.layer_count(); ++i) {
    const Blobs& tops = net.tops(i);
    if (!tops.empty() && tops[0]->data.dim() > 0 && tops[0]->data.size(0) > 0) {
      return static_cast<std::uint64_t>(tops[0]->data.size(0));
    }
  }
  return 0;
}

RunReports::RunReports(const MemberTask& task, Output& output)
    : task_(task), reporter_(output, task.rank == 0), caffe_log_(output) {
  observers_.Add(&reporter_);
  if (logs()) observers_.Add(&caffe_log_);
  if (!task.options.net_outputs.empty()) observers_.Add(&net_outputs_);
}

void RunReports::Begin(Solver& solver, std::function<session::Statistics()> communication, std::function<void(bool begins)> saving) {
  const SolverParameter& parameters = solver.parameters();
  Reporter::Options reporting;
  if (task_.rank == 0 && !task_.options.run_dir.empty()) reporting.metrics_path = task_.options.run_dir + "/metrics.jsonl";
  reporting.max_iter = static_cast<std::uint64_t>(parameters.max_iter());
  reporting.images_per_iteration =
      BatchOf(solver.net()) * static_cast<std::uint64_t>(parameters.iter_size()) * task_.options.workers;
  reporting.communication = std::move(communication);
  reporting.outputs_in_log = task_.options.caffe_log && task_.options.one_stream;
  reporting.resumed_from = task_.options.snapshot;
  reporting.saving = std::move(saving);
  reporter_.Begin(std::move(reporting));
  net_outputs_.Begin();
  if (!logs()) return;
  caffe_log_.Begin({.net = solver.net().name(),
                    .lr_policy = parameters.lr_policy(),
                    .display = parameters.display(),
                    .first_iteration = solver.iteration(),
                    .resumed_from = task_.options.snapshot,
                    .hdf5 = parameters.snapshot_format() == SolverParameter::HDF5});
}

Status RunReports::End(Solver& solver, Collectives* collectives) {
  if (logs()) caffe_log_.End(solver.stopped());
  if (task_.options.net_outputs.empty()) return OkStatus();
  net_outputs_text_ = net_outputs_.Text(task_.options.workers, collectives);
  // Outputs that have no mean are no failure of the job.
  if (net_outputs_text_.ok() || net_outputs_text_.status().code() == StatusCode::kInvalidArgument) return OkStatus();
  return net_outputs_text_.status();
}

Status RunReports::WriteNetOutputs() const {
  if (task_.options.net_outputs.empty()) return OkStatus();
  POSEIDON_RETURN_IF_ERROR(net_outputs_text_.status());
  return WriteFileAtomically(*net_outputs_text_, task_.options.net_outputs + ".netoutputs");
}

}  // namespace poseidon::caffe
