// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_MEETING_H_
#define POSEIDON_PLACE_MEETING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "poseidon/base/file.h"
#include "poseidon/base/result.h"
#include "poseidon/place/address.h"
#include "poseidon/place/note.h"
#include "poseidon/place/place.h"

namespace poseidon::place {

// Whether the launcher has left open where the processes meet, or by which secret, and they can agree on it by themselves.
// `place` has been located. kInvalidArgument, kPermissionDenied where they cannot.
Result<bool> IsLeftOpen(const Place& place, const std::string& token_file);

struct MeetingOptions {
  std::string token_file;        // the user's; empty: rank 0 makes one, which needs all processes on one host
  std::string temporary_folder;  // of this machine
  std::string program;           // programs that differ in it do not meet; empty: none
  std::string otherwise;         // names the job where its launcher does not; empty: the process that started all of them
};

// How the processes of one job meet whose launcher connects nobody. Rank 0 leaves a note that says where it listens, and the
// others wait for it. On one host the note, and the job's token where the user has none, are in a folder of this user alone
// in the temporary folder. On several hosts the user's token file is in a folder that all of them share, and the note
// beside it. Where the place and the user's token file say everything, a meeting does nothing.
//
// Thread: one at a time. What rank 0 leaves goes with the meeting, whose end is therefore after all have joined.
class Meeting {
 public:
  // Chooses the files. Rank 0 removes the note of an earlier job, and looks whether it can leave one. Does not block.
  // kUnavailable, kPermissionDenied with the path.
  static Result<std::unique_ptr<Meeting>> Begin(const Place& place, const MeetingOptions& options);
  ~Meeting() { End(); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Locates the place. Rank 0 makes the token where the user has none; the others wait for the note, `wait.same_host` aside.
  // Blocks. kUnavailable, kNotFound, and kAborted where it was interrupted.
  Status Meet(NoteWait wait, const Resolver& resolver);
  // Rank 0 says where it listens. For the others it does nothing. kUnavailable with the path.
  Status Announce(const std::string& host, std::uint16_t port);
  // Removes what this process has left, and what others of this user have whose process was killed. Harmless when repeated.
  void End();

  // After Meet: rank 0's address is known, and where this process listens.
  const Place& place() const { return place_; }
  // The user's, or what rank 0 makes; the others read it after Meet.
  const std::string& token_file() const { return token_file_; }
  // What this process leaves until the end, for who ends it in another way.
  std::vector<std::string> files_left() const;

 private:
  Meeting(const Place& place, const MeetingOptions& options);
  Status ChooseFiles(const MeetingOptions& options);

  Place place_;
  std::string token_file_;
  std::string note_;  // empty: everything is said
  const bool makes_token_;
  bool left_note_ = false;
  std::unique_ptr<File> held_token_;  // what rank 0 has left, see left_token.h
};

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_MEETING_H_
