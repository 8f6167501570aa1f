// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_WIRE_MESSAGES_H_
#define POSEIDON_WIRE_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"

// The control messages, one struct each. Encode and Decode are pure; Decode checks every length and
// count before it allocates, and refuses what Encode cannot have written. Thread: any.
namespace poseidon::wire {

// Models of one job are numbered from 0 to below this.
inline constexpr std::uint16_t kMaxModels = 256;
// Members of one job, dedicated servers included: a roster of more is refused.
inline constexpr std::uint16_t kMaxMembers = 4096;

enum class Role : std::uint8_t { kWorker = 1, kServer = 2 };

// Joiner -> coordinator, first message of its connection.
struct Join {
  Role role = Role::kWorker;
  std::int32_t requested_rank = -1;  // of a worker; -1: any
  std::string host;                  // for messages and stable ranks
  std::string listen_host;           // where other members reach the joiner
  std::uint16_t listen_port = 0;
  std::string machine = {};          // whose memory it could share; empty: nobody's
  std::string strategy = "poseidon";  // sync/strategy.h; the coordinator's, or it is refused
  double bandwidth = 0;  // bytes/s of its link that it may use, each way; 0: all
  friend bool operator==(const Join&, const Join&) = default;
};

struct RosterEntry {
  MemberId member;
  Role role = Role::kWorker;
  Rank rank;  // of a worker
  std::string host;
  std::string listen_host;
  std::uint16_t listen_port = 0;
  std::string machine = {};  // workers of one machine combine on it first; empty: this one does not
  friend bool operator==(const RosterEntry&, const RosterEntry&) = default;
};

// Coordinator -> joiner, when all have joined: who everyone is.
struct Welcome {
  Generation generation;
  MemberId member;  // the receiver
  std::vector<RosterEntry> roster;
  double bandwidth = 0;  // the least that a member may use of its link; 0: nobody is held
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

// Coordinator -> joiner: it cannot take part.
struct Refuse {
  std::string reason;
  friend bool operator==(const Refuse&, const Refuse&) = default;
};

// Member -> member, first message of a connection between two that are welcome.
struct Hello {
  Generation generation;
  MemberId from;
  MemberId to;
  std::uint16_t lane = 0;  // which of the sender's lanes it belongs to (plan/lanes.h)
  friend bool operator==(const Hello&, const Hello&) = default;
};

// Member -> every member behind it in the roster: where one of its lanes listens, at the host of the roster.
struct LaneAddress {
  std::uint16_t lane = 0;  // never 0, whose address the roster has
  std::uint16_t port = 0;
  friend bool operator==(const LaneAddress&, const LaneAddress&) = default;
};

// Where all members wait for one another before the job goes on.
enum class Stage : std::uint8_t {
  kConnected = 1,  // to all others
  kMeasured = 2,   // its link is known, so that traffic disturbs no measurement
  kDeclared = 3,   // a model's layers are set up here
  kDone = 4,       // will close; once all are, the end of a connection means nothing any more
};
// Member -> coordinator: this member has come so far. `model` is that of kDeclared, else 0.
struct Reached {
  Stage stage = Stage::kConnected;
  ModelId model;
  friend bool operator==(const Reached&, const Reached&) = default;
};
// Coordinator -> all: every member has.
struct AllReached {
  Stage stage = Stage::kConnected;
  ModelId model;
  friend bool operator==(const AllReached&, const AllReached&) = default;
};

// Worker -> coordinator: the layers it has, and what its engine and its link can do.
struct Declare {
  ModelId model;
  std::vector<plan::LayerSpec> layers;
  std::vector<std::uint64_t> product_hashes;  // by layer; 0 where there are no factors
  std::string engine;
  double rebuild_flops = 0;  // measured by the test products; 0: unknown
  double bandwidth = 0;      // bytes/s to the next member, measured; 0: unknown
  double latency = 0;        // seconds one way, measured
  double cores = 1;          // that this worker may use; less than 1 where workers share one
  std::uint32_t compute_threads = 1;
  double cpu_seconds_per_wire_byte = 0;
  double copy_bytes_per_second = 0;  // within memory; 0: not measured, or workers stay flat
  friend bool operator==(const Declare&, const Declare&) = default;
};

// Coordinator -> all: the layers agreed on and the plan to follow from its switch step.
struct Agreed {
  ModelId model;
  std::vector<plan::LayerSpec> layers;
  plan::Plan plan;
  // The step from which the final plan holds; 0: this plan is final.
  std::uint64_t final_plan_step = 0;
  friend bool operator==(const Agreed&, const Agreed&) = default;
};

// Worker -> coordinator: what the first steps took; by layer.
struct Measured {
  ModelId model;
  struct Layer {
    double forward_seconds = 0;
    double backward_seconds = 0;
    std::uint32_t rows = 0;  // gradient rows of this worker; 0 where there are no factors
    friend bool operator==(const Layer&, const Layer&) = default;
  };
  std::vector<Layer> layers;
  friend bool operator==(const Measured&, const Measured&) = default;
};

// Member -> all: `about` is silent, or it is heard again. Member -> coordinator: the connection to it
// ended without a goodbye (`lost`), and the connection's error, where there is one.
struct Suspect {
  MemberId about;
  bool lost = false;
  bool heard_again = false;
  std::uint8_t code = 0;    // of a loss, a StatusCode; 0: not known
  std::string reason = {};  // at most 512 bytes
  friend bool operator==(const Suspect&, const Suspect&) = default;
};

// Anyone -> anyone, last message: the job ends, because of `culprit` (kNoCulprit: nobody).
struct Abort {
  Generation generation;
  std::int32_t culprit = kNoCulprit;
  bool verdict = false;  // sent by the coordinator: replaces the receiver's own evidence
  std::uint8_t code = 0; // a StatusCode
  std::string reason;
  friend bool operator==(const Abort&, const Abort&) = default;
};

// Member -> member: measuring the link. An echo is answered at once; a probe report contains the rate
// at which the kProbe frames came.
struct Echo {
  std::uint64_t token = 0;
  bool reply = false;
  friend bool operator==(const Echo&, const Echo&) = default;
};
struct ProbeReport {
  double bytes_per_second = 0;
  friend bool operator==(const ProbeReport&, const ProbeReport&) = default;
};

// A host's first worker -> the host's others: the memory in which they combine (local/segment.h).
struct Segment {
  ModelId model;
  std::uint32_t process = 0;     // that has it open
  std::uint32_t descriptor = 0;  // under this number
  std::uint64_t bytes = 0;
  std::uint64_t nonce = 0;       // the first eight bytes of the segment
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Something that a member waits for: contributions of others to a sum that it makes, or the sum that it is owed.
struct Wait {
  enum class For : std::uint8_t { kGradient = 1, kFactors, kShare, kCollective, kMean };
  For what = For::kGradient;
  ModelId model;
  LayerId layer;  // of a collective: its number
  Step step;
  std::vector<MemberId> on;  // who has not brought it
  friend bool operator==(const Wait&, const Wait&) = default;
};

// Member -> coordinator, while nothing moves at the member: what it lacks, and whether it works.
struct Progress {
  double quiet_seconds = 0;  // since anything moved
  double idle_seconds = 0;   // since it used a processor
  bool blocked = false;      // its program waits in a call to the core
  std::string busy_with;     // what it says that it does
  std::vector<Wait> waits;   // some of them, the earlier steps first
  friend bool operator==(const Progress&, const Progress&) = default;
};

using Message = std::variant<Join, Welcome, Refuse, Hello, Reached, AllReached, Declare, Agreed, Measured, Suspect,
                             Abort, Echo, ProbeReport, Segment, Progress, LaneAddress>;

ByteBuffer Encode(const Message& message);
Result<Message> Decode(ConstBytes bytes);

// One-off keys have numbers: collectives count up in the lower half, the sums that begin steps have theirs in the
// upper one.
struct StepSum {
  ModelId model;
  Step step;  // modulo kStepSums
  friend bool operator==(const StepSum&, const StepSum&) = default;
};
inline constexpr std::uint32_t kCollectives = 1u << 31;
inline constexpr std::uint32_t kStepSums = 1u << 23;  // of one model; far more than are under way at once
inline LayerId KeyOf(const StepSum& sum) {
  static_assert(kMaxModels <= 1u << 8);
  return LayerId(kCollectives | static_cast<std::uint32_t>(sum.model.value()) << 23 |
                 static_cast<std::uint32_t>(sum.step.value() % kStepSums));
}
inline std::optional<StepSum> StepSumOf(LayerId key) {
  if (key.value() < kCollectives) return std::nullopt;
  return StepSum{ModelId(static_cast<std::uint16_t>(key.value() >> 23 & 0xff)), Step(key.value() % kStepSums)};
}

// Of a Progress; more are left out.
inline constexpr std::size_t kMaxWaits = 16;

}  // namespace poseidon::wire

#endif  // POSEIDON_WIRE_MESSAGES_H_
