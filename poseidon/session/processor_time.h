// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_PROCESSOR_TIME_H_
#define POSEIDON_SESSION_PROCESSOR_TIME_H_

#include "poseidon/base/executor.h"

namespace poseidon::session {

// Processor time that this process has used. Thread: any.
Duration ProcessorTime();

// Processor time of the processes that this one has started, and of theirs: of those that live, and of those that were
// waited for. It becomes less where one ends for which nobody waits. Reads files in /proc, a few for each thread of these
// processes. Thread: any.
Duration ProcessorTimeOfChildren();

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_PROCESSOR_TIME_H_
