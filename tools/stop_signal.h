// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_STOP_SIGNAL_H_
#define POSEIDON_TOOLS_STOP_SIGNAL_H_

namespace poseidon::tools {

// Requests to stop this process, by a signal or another way. Thread: any, signal handlers too.

// SIGINT, SIGTERM and SIGHUP, which are blocked from the program's start (main.cc), are delivered from here on.
void UnblockSignals();

// The first signal that asked for it; 0: none has.
int StopSignal();
// Notes a request; false where one came before.
bool NoteStop(int signal_number);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_STOP_SIGNAL_H_
