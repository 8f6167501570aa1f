// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_PLACE_H_
#define POSEIDON_C_PLACE_H_

#include <stddef.h>
#include <stdint.h>

#include "poseidon/c/job.h"

// The place of a process that mpirun, srun or torchrun started, and how such processes meet, whom their launcher does not
// connect. Part of poseidon.h, whose rules hold.
//
//   poseidon_find_place         which worker this is, and where rank 0 listens as far as that is said
//   poseidon_meet               the rest: an address and a secret, by files
//   poseidon_open               with the place, poseidon_meeting_token_file, and options.meeting
//   poseidon_end_meeting        all have joined, or the job has failed

// C's names, not the tree's. NOLINTBEGIN(readability-identifier-naming)

#ifdef __cplusplus
extern "C" {
#endif

enum { POSEIDON_GIVEN_RANK = 1, POSEIDON_GIVEN_WORKERS = 2 };

// What the program says by itself; it comes before the environment.
typedef struct poseidon_place_wanted {
  size_t struct_size;
  uint32_t given;  // POSEIDON_GIVEN_RANK | POSEIDON_GIVEN_WORKERS: which of these two count
  int32_t rank;
  int32_t workers;
  uint32_t port;            // where rank 0 listens; 0: as the environment says
  const char* coordinator;  // rank 0's host or address; NULL: as the environment says
  const char* listen;       // numeric, of this process; NULL: the address from which rank 0's host is reached
} poseidon_place_wanted;

// Text that is not known is empty, and cut where it is longer than its field.
typedef struct poseidon_place {
  size_t struct_size;
  uint32_t rank;
  uint32_t workers;
  uint32_t port;          // where rank 0 listens; 0: not known
  uint32_t local;         // processes of the job on this host; 0: not known
  char coordinator[256];  // rank 0's numeric address; empty: not known before the processes meet
  char listen[256];       // numeric, of this process; empty: not known before rank 0's address is
  char launcher[16];      // "torchrun", "mpirun" or "srun"; empty: none, or `wanted` said everything
  char job[256];          // differs between two jobs of the launcher; empty: it has no such name
} poseidon_place;

// Fills `place`: worker 0 of 1 where nobody says anything. `wanted` may be NULL. `environment` is "NAME=VALUE", NULL at its
// end, like `environ`; NULL: nothing. May ask a name server, which blocks. POSEIDON_INVALID_ARGUMENT names the variable that
// is wrong; POSEIDON_NOT_FOUND, POSEIDON_UNAVAILABLE: rank 0's host. Thread: any.
POSEIDON_API poseidon_code poseidon_find_place(const poseidon_place_wanted* wanted, const char* const* environment,
                                               poseidon_place* place, poseidon_status* status);

// Sets *left_open to 1 where the processes have to agree on an address or on a secret and can, else to 0. `token_file` is
// the user's, or NULL. Fails where they cannot: the message says what the user has to give. Thread: any.
POSEIDON_API poseidon_code poseidon_is_left_open(const poseidon_place* place, const char* token_file,
                                                 int32_t* left_open, poseidon_status* status);

typedef struct poseidon_meeting_options {
  size_t struct_size;
  const char* token_file;        // the user's; NULL: rank 0 makes one, which needs all processes on one host
  const char* temporary_folder;  // of this machine; NULL: /tmp
  const char* program;           // programs that differ in it do not meet; NULL: none
  double timeout_seconds;        // how long to wait for rank 0; 0: 120
  // As in poseidon_options, asked about every 20 ms: not 0: the call returns POSEIDON_ABORTED.
  int32_t (*interrupted)(void* user);
  void* interrupted_user;
} poseidon_meeting_options;

// Agrees with the others on what is left open, completes `place`, and sets *meeting. Rank 0 makes the job's token where the
// user has none, readable by its owner alone; the others block until rank 0 listens, whose poseidon_open says so. Where
// nothing is left open it does nothing. Fails like poseidon_is_left_open, and with POSEIDON_UNAVAILABLE or
// POSEIDON_PERMISSION_DENIED and the path. On failure *meeting is NULL, and nothing is left behind. Thread: any; the handle is
// freed by poseidon_end_meeting, and used by one thread at a time.
POSEIDON_API poseidon_code poseidon_meet(const poseidon_meeting_options* options, poseidon_place* place,
                                         poseidon_meeting** meeting, poseidon_status* status);
// The file of the job's token: the user's or what rank 0 made. NULL: the one worker of a job needs none. Lives as long as the
// meeting.
POSEIDON_API const char* poseidon_meeting_token_file(const poseidon_meeting* meeting);
// Removes what rank 0 left, and frees the meeting; NULL is allowed. After poseidon_open has returned, whatever it returned: a
// process that ends without this call leaves a secret in the file system.
POSEIDON_API void poseidon_end_meeting(poseidon_meeting* meeting);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming)

#endif  // POSEIDON_C_PLACE_H_
