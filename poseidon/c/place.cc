// SPDX-License-Identifier: Apache-2.0
// A launched process' place through the C header. Nothing is decided here.
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "poseidon/c/handles.h"
#include "poseidon/c/options.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/c/structs.h"
#include "poseidon/place/address.h"
#include "poseidon/place/meeting.h"
#include "poseidon/place/place.h"

using namespace poseidon;     // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::c;  // NOLINT(google-build-using-namespace)

namespace {

place::Environment TakeEnvironment(const char* const* environment) {
  place::Environment taken;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string text = *environment;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) taken.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return taken;
}

Result<int> TakeCount(std::uint32_t number, const char* what) {
  if (number <= static_cast<std::uint32_t>(std::numeric_limits<int>::max())) return static_cast<int>(number);
  return InvalidArgument(std::string(what) + " is " + std::to_string(number) + ", expected at most " +
                         std::to_string(std::numeric_limits<int>::max()));
}

Result<place::Wanted> TakeWanted(const poseidon_place_wanted* given) {
  if (given == nullptr) return place::Wanted{};
  POSEIDON_ASSIGN_OR_RETURN(const poseidon_place_wanted taken, Take(given));
  place::Wanted wanted{.coordinator = TextOr(taken.coordinator, ""), .listen = TextOr(taken.listen, "")};
  if ((taken.given & POSEIDON_GIVEN_RANK) != 0) wanted.rank = taken.rank;
  if ((taken.given & POSEIDON_GIVEN_WORKERS) != 0) wanted.workers = taken.workers;
  POSEIDON_ASSIGN_OR_RETURN(wanted.port, TakeCount(taken.port, "port"));
  return wanted;
}

template <std::size_t kSize>
std::string TakeText(const char (&text)[kSize]) {
  return std::string(text, strnlen(text, kSize));
}

Result<place::Place> TakePlace(const poseidon_place* given) {
  POSEIDON_ASSIGN_OR_RETURN(const poseidon_place taken, Take(given));
  place::Place place{.launcher = TakeText(taken.launcher),
                     .coordinator = TakeText(taken.coordinator),
                     .listen = TakeText(taken.listen),
                     .job = TakeText(taken.job)};
  POSEIDON_ASSIGN_OR_RETURN(place.rank, TakeCount(taken.rank, "rank"));
  POSEIDON_ASSIGN_OR_RETURN(place.workers, TakeCount(taken.workers, "workers"));
  POSEIDON_ASSIGN_OR_RETURN(place.port, TakeCount(taken.port, "port"));
  POSEIDON_ASSIGN_OR_RETURN(const int local, TakeCount(taken.local, "local"));
  if (local > 0) place.local = local;
  return place;
}

Status GivePlace(const place::Place& place, poseidon_place* to) {
  poseidon_place given = POSEIDON_NEW(poseidon_place);
  given.rank = static_cast<std::uint32_t>(place.rank);
  given.workers = static_cast<std::uint32_t>(place.workers);
  given.port = static_cast<std::uint32_t>(place.port);
  given.local = static_cast<std::uint32_t>(place.local.value_or(0));
  CopyText(place.coordinator, given.coordinator, sizeof given.coordinator);
  CopyText(place.listen, given.listen, sizeof given.listen);
  CopyText(place.launcher, given.launcher, sizeof given.launcher);
  CopyText(place.job, given.job, sizeof given.job);
  return Give("poseidon_place", given, to);
}

Result<place::NoteWait> TakeWait(const poseidon_meeting_options& options) {
  place::NoteWait wait;
  POSEIDON_ASSIGN_OR_RETURN(const Duration timeout,
                            TakeSeconds(options.timeout_seconds, 0, wait.timeout, "timeout_seconds"));
  wait.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
  if (options.interrupted != nullptr) {
    wait.interrupted = [ask = options.interrupted, user = options.interrupted_user] { return ask(user) != 0; };
  }
  return wait;
}

}  // namespace

poseidon_code poseidon_find_place(const poseidon_place_wanted* wanted, const char* const* environment,
                                  poseidon_place* place, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const place::Wanted taken, TakeWanted(wanted));
    POSEIDON_ASSIGN_OR_RETURN(place::Place found, place::FindPlace(TakeEnvironment(environment), taken));
    POSEIDON_RETURN_IF_ERROR(place::Locate(place::SystemResolver(), &found));
    return GivePlace(found, place);
  });
}

poseidon_code poseidon_is_left_open(const poseidon_place* place, const char* token_file, int32_t* left_open,
                                    poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    if (left_open == nullptr) return InvalidArgument("the place for the answer is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const place::Place taken, TakePlace(place));
    POSEIDON_ASSIGN_OR_RETURN(const bool open, place::IsLeftOpen(taken, TextOr(token_file, "")));
    *left_open = open ? 1 : 0;
    return OkStatus();
  });
}

poseidon_code poseidon_meet(const poseidon_meeting_options* options, poseidon_place* place, poseidon_meeting** meeting,
                            poseidon_status* status) {
  if (meeting != nullptr) *meeting = nullptr;
  return Answering(status, [&]() -> Status {
    if (meeting == nullptr) return InvalidArgument("the place for the meeting is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_meeting_options taken, Take(options));
    POSEIDON_ASSIGN_OR_RETURN(const place::Place known, TakePlace(place));
    POSEIDON_ASSIGN_OR_RETURN(const place::NoteWait wait, TakeWait(taken));
    auto made = std::make_unique<poseidon_meeting>();
    made->token_file = TextOr(taken.token_file, "");
    POSEIDON_ASSIGN_OR_RETURN(const bool open, place::IsLeftOpen(known, made->token_file));
    if (open) {
      POSEIDON_ASSIGN_OR_RETURN(made->meeting,
                                place::Meeting::Begin(known, {.token_file = made->token_file,
                                                              .temporary_folder = TextOr(taken.temporary_folder, "/tmp"),
                                                              .program = TextOr(taken.program, "")}));
      POSEIDON_RETURN_IF_ERROR(made->meeting->Meet(wait, place::SystemResolver()));
      POSEIDON_RETURN_IF_ERROR(GivePlace(made->meeting->place(), place));
      made->token_file = made->meeting->token_file();
    }
    *meeting = made.release();
    return OkStatus();
  });
}

const char* poseidon_meeting_token_file(const poseidon_meeting* meeting) {
  return meeting == nullptr || meeting->token_file.empty() ? nullptr : meeting->token_file.c_str();
}

void poseidon_end_meeting(poseidon_meeting* meeting) { delete meeting; }
