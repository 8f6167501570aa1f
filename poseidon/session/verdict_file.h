// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_VERDICT_FILE_H_
#define POSEIDON_SESSION_VERDICT_FILE_H_

#include <string>

#include "poseidon/base/status.h"

// The file in which a launcher reads that its process has joined a job, and what ended that (tools/run/rank.cc). It is there, and is
// not made; one that is gone is read no more, which is no failure of this member's. Thread: any, one at a time.
namespace poseidon::session {

void WriteThatItJoins(const std::string& path);
void WriteVerdict(const std::string& path, const Status& failure);

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_VERDICT_FILE_H_
