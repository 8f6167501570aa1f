// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_STOP_SIGNAL_H_
#define POSEIDON_TOOLS_CONSOLE_STOP_SIGNAL_H_

namespace poseidon::tools {

// Requests to stop this process, by a signal or another way. Thread: any, signal handlers too.

// SIGINT, SIGTERM and SIGHUP, which are blocked from the program's start (main.cc), are delivered from here on.
void UnblockSignals();

// Returns the first signal that asked the process to stop; 0: none has.
int StopSignal();
// Notes a request to stop; false where one came before. Thread: any, also a signal handler.
bool NoteStop(int signal_number);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_STOP_SIGNAL_H_
