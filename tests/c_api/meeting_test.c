// SPDX-License-Identifier: Apache-2.0
// A launched process' place and the meeting of two of them, as a program in plain C has them: this one links libposeidon.so
// and nothing else of ours.
#define _POSIX_C_SOURCE 200809L  // mkdtemp

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "poseidon/c/poseidon.h"

#define EXPECT(condition)                                                \
  do {                                                                   \
    if (!(condition)) {                                                  \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

#define EXPECT_OK(call)                                                                \
  do {                                                                                 \
    if ((call) != POSEIDON_OK) {                                                       \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, status.message);   \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

static poseidon_status status;

static char temporary[64];        // of this test
static char private_folder[128];  // in it, of this user

static int begins(const char* text, const char* with) { return strncmp(text, with, strlen(with)) == 0; }

// How many files are in the private folder; -1: there is none.
static int files_left(void) {
  DIR* const folder = opendir(private_folder);
  if (folder == NULL) return -1;
  int count = 0;
  for (const struct dirent* entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
    count += entry->d_name[0] != '.';
  }
  closedir(folder);
  return count;
}

static const char* const kFirst[] = {"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=node7", "SLURM_JOB_ID=3",
                                     NULL};
static const char* const kSecond[] = {"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=node7", "SLURM_JOB_ID=3",
                                      NULL};

static poseidon_place found(const char* const* environment) {
  poseidon_place place = POSEIDON_NEW(poseidon_place);
  EXPECT_OK(poseidon_find_place(NULL, environment, &place, &status));
  return place;
}

static void places_are_found(void) {
  poseidon_place place = found(NULL);
  EXPECT(place.rank == 0 && place.workers == 1 && place.launcher[0] == '\0');
  place = found(kSecond);
  EXPECT(place.rank == 1 && place.workers == 2 && place.local == 2 && place.port == 0);
  EXPECT(strcmp(place.launcher, "srun") == 0 && strcmp(place.job, "3") == 0);
  EXPECT(strcmp(place.coordinator, "127.0.0.1") == 0 && strcmp(place.listen, "127.0.0.1") == 0);

  poseidon_place_wanted wanted = POSEIDON_NEW(poseidon_place_wanted);
  wanted.given = POSEIDON_GIVEN_RANK | POSEIDON_GIVEN_WORKERS;
  wanted.rank = 2;
  wanted.workers = 3;
  wanted.port = 4711;
  wanted.coordinator = "127.0.0.2";
  wanted.listen = "127.0.0.3";
  EXPECT_OK(poseidon_find_place(&wanted, kSecond, &place, &status));
  EXPECT(place.rank == 2 && place.workers == 3 && place.port == 4711 && place.local == 0 && place.launcher[0] == '\0');
  EXPECT(strcmp(place.coordinator, "127.0.0.2") == 0 && strcmp(place.listen, "127.0.0.3") == 0);
  wanted.rank = 3;
  EXPECT(poseidon_find_place(&wanted, NULL, &place, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(strcmp(status.message, "the rank is 3, expected 0 to 2") == 0);

  const char* const half[] = {"RANK=1", NULL};
  EXPECT(poseidon_find_place(NULL, half, &place, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(begins(status.message, "environment variable RANK is set and WORLD_SIZE is not"));
  const char* const nowhere[] = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=no..name", NULL};
  EXPECT(poseidon_find_place(NULL, nowhere, &place, &status) == POSEIDON_NOT_FOUND);
  EXPECT(begins(status.message, "host no..name has no address"));
}

static void mistakes_of_the_program_are_named(void) {
  poseidon_place place = POSEIDON_NEW(poseidon_place);
  int32_t open = 0;
  poseidon_meeting* meeting = NULL;
  poseidon_meeting_options options = POSEIDON_NEW(poseidon_meeting_options);
  EXPECT(poseidon_find_place(NULL, NULL, NULL, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(poseidon_is_left_open(NULL, NULL, &open, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(poseidon_is_left_open(&place, NULL, NULL, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(poseidon_meet(NULL, &place, &meeting, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(poseidon_meet(&options, &place, NULL, &status) == POSEIDON_INVALID_ARGUMENT);
  place.struct_size = 16;
  EXPECT(poseidon_meet(&options, &place, &meeting, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(begins(status.message, "the struct_size of a poseidon_place is 16"));
  place = POSEIDON_NEW(poseidon_place);
  place.workers = 0xffffffffu;
  EXPECT(poseidon_meet(&options, &place, &meeting, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(begins(status.message, "workers is 4294967295"));
  options.timeout_seconds = -1;
  place.workers = 2;
  EXPECT(poseidon_meet(&options, &place, &meeting, &status) == POSEIDON_INVALID_ARGUMENT);
  EXPECT(begins(status.message, "timeout_seconds is -1"));
  poseidon_end_meeting(NULL);
  EXPECT(poseidon_meeting_token_file(NULL) == NULL);
}

static poseidon_meeting_options how(void) {
  poseidon_meeting_options options = POSEIDON_NEW(poseidon_meeting_options);
  options.temporary_folder = temporary;
  options.timeout_seconds = 60;
  return options;
}

static void what_is_not_open_is_left_alone(void) {
  poseidon_place place = found(NULL);
  poseidon_meeting* meeting = NULL;
  poseidon_meeting_options options = how();
  EXPECT_OK(poseidon_meet(&options, &place, &meeting, &status));
  EXPECT(poseidon_meeting_token_file(meeting) == NULL && files_left() == -1);
  poseidon_end_meeting(meeting);

  const char* const said[] = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711", NULL};
  place = found(said);
  options.token_file = "mine";
  EXPECT_OK(poseidon_meet(&options, &place, &meeting, &status));
  EXPECT(strcmp(poseidon_meeting_token_file(meeting), "mine") == 0 && files_left() == -1);
  poseidon_end_meeting(meeting);

  int32_t open = -1;
  EXPECT_OK(poseidon_is_left_open(&place, "mine", &open, &status));
  EXPECT(open == 0);
  EXPECT_OK(poseidon_is_left_open(&place, NULL, &open, &status));
  EXPECT(open == 1);
}

static void what_cannot_be_agreed_on_is_named(void) {
  const char* const spread[] = {"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALNRANKS=1", NULL};
  poseidon_place place = found(spread);
  poseidon_meeting* meeting = (poseidon_meeting*)&place;
  poseidon_meeting_options options = how();
  EXPECT(poseidon_meet(&options, &place, &meeting, &status) == POSEIDON_PERMISSION_DENIED);
  EXPECT(begins(status.message, "mpirun started 2 processes and not all are on this host") && meeting == NULL);
}

static int32_t at_once(void* asked) {
  ++*(int*)asked;
  return 1;
}

static void waiting_ends_when_it_is_interrupted(void) {
  poseidon_place place = found(kSecond);
  poseidon_meeting* meeting = NULL;
  poseidon_meeting_options options = how();
  int asked = 0;
  options.interrupted = at_once;
  options.interrupted_user = &asked;
  EXPECT(poseidon_meet(&options, &place, &meeting, &status) == POSEIDON_ABORTED);
  EXPECT(asked == 1 && meeting == NULL);
}

static poseidon_options opened_at(const poseidon_place* place, poseidon_meeting* meeting) {
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.hosts_coordinator = place->rank == 0;
  options.workers = place->workers;
  options.requested_rank = (int32_t)place->rank;
  options.listen_host = place->listen;
  options.coordinator_host = place->coordinator;
  options.coordinator_port = place->port;
  options.token_file = poseidon_meeting_token_file(meeting);
  options.meeting = meeting;
  options.join_timeout_seconds = 60;
  return options;
}

static void live(const char* const* environment) {
  poseidon_place place = found(environment);
  const poseidon_meeting_options options = how();
  poseidon_meeting* meeting = NULL;
  EXPECT_OK(poseidon_meet(&options, &place, &meeting, &status));
  const poseidon_options opening = opened_at(&place, meeting);
  poseidon_session* session = NULL;
  EXPECT_OK(poseidon_open(&opening, &session, &status));
  poseidon_end_meeting(meeting);
  float number = 1.0f + (float)poseidon_rank(session);
  poseidon_view view = POSEIDON_NEW(poseidon_view);
  view.memory = &number;
  view.elements = 1;
  view.dtype = POSEIDON_F32;
  EXPECT_OK(poseidon_sum(session, &view, &status));
  EXPECT(number == 3.0f);
  EXPECT_OK(poseidon_leave(session, &status));
  poseidon_close(session);
}

static void two_processes_meet(void) {
  const pid_t other = fork();
  if (other == 0) {
    live(kSecond);
    _exit(0);
  }
  live(kFirst);
  int how_it_ended = 0;
  EXPECT(waitpid(other, &how_it_ended, 0) == other && how_it_ended == 0);
  EXPECT(files_left() == 0);
  struct stat folder;
  EXPECT(stat(private_folder, &folder) == 0 && (folder.st_mode & 0777) == 0700);
}

static void a_note_that_cannot_be_left_ends_rank_0(void) {
  char blocked[192];
  snprintf(blocked, sizeof blocked, "%s/srun-3.address", private_folder);
  EXPECT(mkdir(blocked, 0700) == 0);  // where the note should be
  poseidon_place place = found(kFirst);
  const poseidon_meeting_options options = how();
  poseidon_meeting* meeting = NULL;
  EXPECT_OK(poseidon_meet(&options, &place, &meeting, &status));
  const poseidon_options opening = opened_at(&place, meeting);
  poseidon_session* session = NULL;
  EXPECT(poseidon_open(&opening, &session, &status) == POSEIDON_UNAVAILABLE);
  EXPECT(begins(status.message, "the other processes cannot be told where to join: ") && session == NULL);
  EXPECT(strstr(status.message, blocked) != NULL);
  poseidon_end_meeting(meeting);
  EXPECT(rmdir(blocked) == 0 && files_left() == 0);
}

int main(void) {
  status = POSEIDON_NEW(poseidon_status);
  strcpy(temporary, "/tmp/poseidon-c-XXXXXX");
  EXPECT(mkdtemp(temporary) != NULL);
  snprintf(private_folder, sizeof private_folder, "%s/poseidon-%u", temporary, (unsigned)geteuid());
  places_are_found();
  mistakes_of_the_program_are_named();
  what_is_not_open_is_left_alone();
  what_cannot_be_agreed_on_is_named();
  waiting_ends_when_it_is_interrupted();
  two_processes_meet();
  a_note_that_cannot_be_left_ends_rank_0();
  EXPECT(rmdir(private_folder) == 0 && rmdir(temporary) == 0);
  puts("all is as poseidon/c/place.h promises");
  return 0;
}
