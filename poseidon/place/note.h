// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_NOTE_H_
#define POSEIDON_PLACE_NOTE_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "poseidon/base/result.h"

namespace poseidon::place {

// Where members of a job whose launcher does not connect them meet: rank 0 leaves a file that says
// where it listens, the others wait for it. Its place is what keeps jobs apart; it holds no secret.
struct Note {
  std::string host;
  std::uint16_t port = 0;
  pid_t writer = 0;
};

// Writes the note under another name and renames it, over one that an earlier job may have left: a reader finds a whole
// note or none. kUnavailable with the path.
Status LeaveNote(const std::string& path, const Note& note);

struct NoteWait {
  std::chrono::milliseconds timeout = std::chrono::seconds(120);
  bool same_host = false;  // then a note whose writer has ended is an earlier job's
  std::function<bool()> interrupted = {};  // asked at every look, on the caller's thread; true: wait no longer, kAborted
};
// Waits for a note at `path`. kUnavailable with the path when none came in time.
// Blocks, and looks every 20 ms: no event announces new files on a file system of several hosts.
Result<Note> AwaitNote(const std::string& path, const NoteWait& wait);

// Returns the path of a folder in `parent` that is this user's alone, for files of members that share a host; makes it, with
// mode 0700, where there is none. kPermissionDenied when what is there belongs to somebody else or is open to others.
Result<std::string> PrivateFolder(const std::string& parent);

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_NOTE_H_
