// SPDX-License-Identifier: Apache-2.0
#include "tools/train/poseidon_caffe_flags.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <vector>

#include "poseidon/base/listed.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"

namespace poseidon::tools {
namespace {

// A flag that changes nothing here, whatever its value, or with one of some values.
struct OldFlag {
  const char* name;
  const char* taken;    // values that are taken, separated by spaces; null: all
  const char* instead;  // what to write instead of another value
  bool is_switch = false;
};

constexpr const char* kExact = "every step here is synchronous and exact, without staleness; leave it out";
constexpr const char* kSnapshots =
    "shards are not saved by themselves; the solver's snapshot and snapshot_prefix save all, and --snapshot FILE goes on from there";

constexpr std::array kOldFlags = {
    // Consistency.
    OldFlag{"table_staleness", "0", kExact},
    OldFlag{"consistency_model", "SSP SSPPush", "updates are not sent in parts here; leave it out"},
    // The tables of the parameter server: gradients are cut into slices by their sizes.
    OldFlag{"num_rows_per_table", nullptr, ""}, OldFlag{"row_type", nullptr, ""}, OldFlag{"row_oplog_type", nullptr, ""},
    OldFlag{"oplog_dense_serialized", nullptr, "", true}, OldFlag{"oplog_type", nullptr, ""}, OldFlag{"append_only_oplog_type", nullptr, ""},
    OldFlag{"append_only_buffer_capacity", nullptr, ""}, OldFlag{"append_only_buffer_pool_size", nullptr, ""},
    OldFlag{"bg_apply_append_oplog_freq", nullptr, ""}, OldFlag{"process_storage_type", nullptr, ""},
    OldFlag{"no_oplog_replay", nullptr, "", true}, OldFlag{"server_push_row_upper_bound", nullptr, ""},
    OldFlag{"client_send_oplog_upper_bound", nullptr, ""}, OldFlag{"version_maintain", nullptr, "", true},
    OldFlag{"server_table_logic", "-1", "the solver's rule updates the weights; write type: \"AdaGrad\" or another into it"},
    OldFlag{"init_step_size", nullptr, ""}, OldFlag{"old_grad_upper_bound", nullptr, ""}, OldFlag{"random_init", nullptr, ""},
    // How it communicates: one connection a pair of workers, events instead of polls, the urgent layer first.
    OldFlag{"num_comm_channels_per_client", nullptr, ""}, OldFlag{"num_zmq_threads", nullptr, ""},
    OldFlag{"svb_timeout_ms", nullptr, ""}, OldFlag{"bg_idle_milli", nullptr, ""}, OldFlag{"server_idle_milli", nullptr, ""},
    OldFlag{"client_bandwidth_mbps", nullptr, ""}, OldFlag{"server_bandwidth_mbps", nullptr, ""},
    OldFlag{"thread_oplog_batch_size", nullptr, ""}, OldFlag{"row_candidate_factor", nullptr, ""},
    OldFlag{"update_sort_policy", nullptr, ""}, OldFlag{"naive_table_oplog_meta", nullptr, "", true},
    OldFlag{"suppression_on", nullptr, "", true}, OldFlag{"use_approx_sort", nullptr, "", true},
    // Files of its own.
    OldFlag{"snapshot_clock", "-1", kSnapshots}, OldFlag{"snapshot_dir", "", kSnapshots},
    OldFlag{"resume_clock", "-1", kSnapshots}, OldFlag{"resume_dir", "", kSnapshots},
    OldFlag{"stats_path", nullptr, ""},
    // Memory nodes.
    OldFlag{"numa_opt", "false", "start the command under numactl", true}, OldFlag{"numa_index", nullptr, ""},
    OldFlag{"numa_policy", nullptr, ""},
};

bool IsTaken(const OldFlag& flag, const std::string& value) {
  if (flag.taken == nullptr || value == flag.taken) return true;
  std::istringstream words(flag.taken);
  for (std::string word; words >> word;) {
    if (word == value) return true;
  }
  return false;
}

std::string Expected(const OldFlag& flag) {
  std::string values;
  std::istringstream words(flag.taken);
  for (std::string word; words >> word;) values += (values.empty() ? "" : " or ") + word;
  return values;
}

void RefuseOthers(const PoseidonCaffeFlags& flags) {
  for (const OldFlag& flag : kOldFlags) {
    const auto found = flags.given.find(flag.name);
    if (found == flags.given.end() || IsTaken(flag, found->second)) continue;
    const std::string taken = Expected(flag);
    FailUsage(std::string("--") + flag.name + " " + found->second + (taken.empty() ? "" : ": expected " + taken) + "; " + flag.instead);
  }
}

// One notice for all of them: a script gives ten.
void NoteNoEffect(const PoseidonCaffeFlags& flags, caffe::Output& output) {
  std::string names;
  for (const auto& [name, value] : flags.given) {
    if (name != "table_staleness" && name != "consistency_model" && !value.empty()) AddListed("--" + name, &names);
  }
  if (!names.empty()) output.Log(LogLevel::kNotice, "without effect here: " + names);
  if (flags.given.contains("stats_path")) {
    output.Log(LogLevel::kNotice, "statistics are in the run directory's summary.json and trace.json, not in --stats_path");
  }
}

void SetWorkers(const PoseidonCaffeFlags& flags, caffe::TrainOptions& options) {
  if (flags.command->count("--num_clients") + flags.command->count("--num_table_threads") == 0) return;
  const int workers = flags.num_clients * WorkersPerClient(flags);
  if (flags.command->count("--workers") > 0 && options.workers != workers) {
    FailUsage("--workers " + std::to_string(options.workers) + " and --num_clients " + std::to_string(flags.num_clients) +
              " with " + std::to_string(WorkersPerClient(flags)) + " worker threads each contradict each other; write --workers alone");
  }
  if (workers > 1024) FailUsage("--num_clients and --num_table_threads make " + std::to_string(workers) + " workers, expected at most 1024");
  options.workers = static_cast<std::uint16_t>(workers);
}

}  // namespace

void AddPoseidonCaffeFlags(CLI::App& c, PoseidonCaffeFlags& flags) {
  flags.command = &c;
  c.option_defaults()->group("Of Poseidon-Caffe");
  c.add_option("--net_outputs", flags.net_outputs, "Writes the outputs of all displays and tests to PREFIX.netoutputs at the end")
      ->type_name("PREFIX");
  c.option_defaults()->group("");  // known, and not for new users
  c.add_flag("--svb,!--nosvb", flags.svb);
  c.add_flag("--init_thread_access_table,!--noinit_thread_access_table", flags.init_thread_access_table);
  c.add_option("--num_clients", flags.num_clients)->check(WholeNumber(1, 1024));
  c.add_option("--client_id", flags.client_id)->check(WholeNumber(0, 1023));
  c.add_option("--num_table_threads", flags.num_table_threads)->check(WholeNumber(1, 1025));
  for (const OldFlag& flag : kOldFlags) {
    const std::string name = flag.name;
    if (flag.is_switch) {
      c.add_flag_function("--" + name + ",!--no" + name,
                          [&flags, name](std::int64_t times) { flags.given[name] = times > 0 ? "true" : "false"; });
    } else {
      c.add_option_function<std::string>("--" + name, [&flags, name](const std::string& value) { flags.given[name] = value; });
    }
  }
}

std::uint16_t WorkersPerClient(const PoseidonCaffeFlags& flags) {
  return static_cast<std::uint16_t>(std::max(1, flags.num_table_threads - 1));
}

ClientPart ApplyPoseidonCaffe(const PoseidonCaffeFlags& flags, caffe::TrainOptions& options, caffe::Output& output) {
  RefuseOthers(flags);
  if (flags.client_id >= std::max(1, flags.num_clients)) {
    FailUsage("--client_id is " + std::to_string(flags.client_id) + ", expected below --num_clients " + std::to_string(flags.num_clients));
  }
  if (flags.client_id > 0) {
    output.Print("client " + std::to_string(flags.client_id) + " is started by client 0, which starts the workers of all hosts: nothing to do here");
    return ClientPart::kNothing;
  }
  SetWorkers(flags, options);
  if (!flags.svb) options.schemes.emplace("*", "kv");
  if (!flags.net_outputs.empty()) {
    const std::string path = flags.net_outputs + ".netoutputs";
    std::string checked = path;
    if (const std::string why = OutputFile()(checked); !why.empty()) FailUsage("--net_outputs: " + why);
    options.net_outputs = std::filesystem::absolute(flags.net_outputs).string();  // the same for a member in another folder
  }
  NoteNoEffect(flags, output);
  return ClientPart::kStarts;
}

}  // namespace poseidon::tools
