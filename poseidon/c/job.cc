// SPDX-License-Identifier: Apache-2.0
// The job through the C header: joining, collectives, the end. Nothing is decided here.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/c/callback_device.h"
#include "poseidon/c/handles.h"
#include "poseidon/c/options.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/c/run_files.h"
#include "poseidon/c/structs.h"
#include "poseidon/place/figures.h"
#include "poseidon/session/tcp_session.h"
#include "poseidon/session/verdict_file.h"

using namespace poseidon;           // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::c;        // NOLINT(google-build-using-namespace)
using namespace poseidon::session;  // NOLINT(google-build-using-namespace)

namespace {

Account AccountOf(const poseidon_session& session) {
  Account account{.rank = session.session->rank(),
                  .workers = session.session->workers(),
                  .counted = session.session->Collect(),
                  .models = {},
                  .spans = {}};
  if (session.trace) account.spans = session.trace->Take();
  for (std::size_t number = 0; number < session.models.size(); ++number) {
    const Model& model = *session.models[number]->model;
    const std::optional<plan::Plan> plan = model.NewestPlan();
    if (plan) account.models.push_back({number, model.layers(), *plan, model.Collect()});
  }
  LeaveOutGivenBack(&account);
  return account;
}

}  // namespace

Result<std::unique_ptr<poseidon_session>> poseidon_session::Open(const poseidon_options& options) {
  auto handle = std::make_unique<poseidon_session>(options);
  SessionOptions opened;
  POSEIDON_ASSIGN_OR_RETURN(opened.node, TakeNodeOptions(options, &handle->named_layers));
  POSEIDON_ASSIGN_OR_RETURN(const transport::tcp::Token token, TakeToken(options));
  POSEIDON_ASSIGN_OR_RETURN(const transport::tcp::Security::Mode mode,
                            TakeMode(options.wire, opened.node.listen.host));
  if (options.engine != nullptr) {
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_engine engine, Take(options.engine));
    if (engine.multiply == nullptr) return InvalidArgument("the engine's multiply is NULL");
    handle->own_engine = std::make_unique<CallbackEngine>(engine);
  } else {
    handle->blas_engine =
        std::make_unique<LateBlasEngine>(static_cast<int>(opened.node.compute_threads), TextOr(options.blas, ""));
  }
  const std::string run_dir = TextOr(options.run_dir, "");
  const std::uint64_t spans = options.trace_spans == 0 && !run_dir.empty() ? kSpansOfARun : options.trace_spans;
  if (spans != 0) handle->trace = std::make_unique<TraceRecorder>(TraceRecorder::Options{.spans = spans});
  opened.engine = handle->engine();
  opened.log = &handle->log;
  opened.trace = handle->trace.get();
  if (options.device != nullptr) {
    POSEIDON_ASSIGN_OR_RETURN(handle->device, Take(options.device));
    const poseidon_device& device = *handle->device;
    // TakePlacedView takes memory of these types for the host's, so a device of such a type would never be asked.
    if (device.copy_to_host == nullptr || device.copy_from_host == nullptr || device.device_type == 0 ||
        device.device_type == POSEIDON_HOST || device.device_type == POSEIDON_PINNED_HOST) {
      return InvalidArgument("the device of type " + std::to_string(device.device_type) +
                             " is the host or lacks a copy function, expected an accelerator with both");
    }
    opened.device = [device](Executor& io) { return std::make_unique<CallbackDevice>(io, device); };
  }
  // What keeps rank 0 from saying where it listens. The interruption below ends its wait for the others, on the same thread.
  const auto unannounced = std::make_shared<Status>();
  if (options.interrupted != nullptr || options.meeting != nullptr) {
    opened.interrupted = [unannounced, ask = options.interrupted, user = options.interrupted_user] {
      return !unannounced->ok() || (ask != nullptr && ask(user) != 0);
    };
  }

  if (options.verdict_file != nullptr) {
    opened.failed = [file = std::string(options.verdict_file)](const Status& failure) { WriteVerdict(file, failure); };
  }

  if (options.figures_file != nullptr) opened.figures = place::FiguresInto(options.figures_file);

  opened.node.cpu_seconds_per_wire_byte = CpuSecondsPerWireByte(mode);
  UniqueFunction<void(const transport::Address&)> listening;
  if (options.listening != nullptr || options.meeting != nullptr) {
    listening = [tell = options.listening, user = options.listening_user, meeting = options.meeting, unannounced,
                 advertised = opened.node.advertise_host](const transport::Address& address) {
      // The address that is listened at may be a wildcard, at which nobody reaches this member.
      const std::string& host = advertised.empty() ? address.host : advertised;
      if (tell != nullptr) tell(user, host.c_str(), address.port);
      if (meeting != nullptr && meeting->meeting) *unannounced = meeting->meeting->Announce(host, address.port);
    };
  }
  // Before there is a failure that could be written over.
  if (options.verdict_file != nullptr && opened.node.workers > 1) WriteThatItJoins(options.verdict_file);
  // The last step, because the session's threads call what the handle holds from here on.
  Result<std::unique_ptr<Session>> joined =
      OpenTcpSession({.security = {.mode = mode, .token = token}}, opened, std::move(listening));
  POSEIDON_RETURN_IF_ERROR(*unannounced);
  if (!joined.ok()) return joined.status();
  handle->session = *std::move(joined);
  if (!run_dir.empty() && handle->session->rank() == Rank(0)) handle->run = std::make_unique<RunFiles>(run_dir, &handle->log);
  return handle;
}

const char* poseidon_code_name(poseidon_code code) {
  static constexpr std::array<const char*, 12> kNames = {"OK",
                                                         "INVALID_ARGUMENT",
                                                         "NOT_FOUND",
                                                         "FAILED_PRECONDITION",
                                                         "UNAVAILABLE",
                                                         "DEADLINE_EXCEEDED",
                                                         "ABORTED",
                                                         "DATA_LOSS",
                                                         "PERMISSION_DENIED",
                                                         "RESOURCE_EXHAUSTED",
                                                         "UNIMPLEMENTED",
                                                         "INTERNAL"};
  const bool known = code >= 0 && static_cast<std::size_t>(code) < kNames.size();
  return known ? kNames[static_cast<std::size_t>(code)] : "UNKNOWN";
}

static_assert(POSEIDON_VERSION_MAJOR == POSEIDON_PROJECT_MAJOR && POSEIDON_VERSION_MINOR == POSEIDON_PROJECT_MINOR,
              "job.h names another version than project() in CMakeLists.txt");

uint32_t poseidon_version(void) { return POSEIDON_VERSION_MAJOR << 16 | POSEIDON_VERSION_MINOR; }

const char* poseidon_version_text(void) { return POSEIDON_PROJECT_VERSION; }

poseidon_code poseidon_make_token_file(const char* path, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    if (path == nullptr) return InvalidArgument("the token file's path is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const transport::tcp::Token token, transport::tcp::Token::Generate());
    return token.WriteFile(path);
  });
}

poseidon_code poseidon_open(const poseidon_options* options, poseidon_session** session,
                            poseidon_status* status) {
  // Whatever fails below, *session is NULL then.
  if (session != nullptr) *session = nullptr;
  return Answering(status, [&]() -> Status {
    if (session == nullptr) return InvalidArgument("the place for the session is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_options taken, Take(options));
    if (taken.role != POSEIDON_WORKER) {
      return InvalidArgument("role is " + std::to_string(taken.role) +
                             ", expected POSEIDON_WORKER; servers call poseidon_serve");
    }
    POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<poseidon_session> opened,
                              poseidon_session::Open(taken));
    *session = opened.release();
    return OkStatus();
  });
}

poseidon_code poseidon_serve(const poseidon_options* options, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_options taken, Take(options));
    if (taken.role != POSEIDON_SERVER) {
      return InvalidArgument("role is " + std::to_string(taken.role) +
                             ", expected POSEIDON_SERVER; workers call poseidon_open");
    }
    POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<poseidon_session> opened,
                              poseidon_session::Open(taken));
    return opened->session->AwaitEnd();
  });
}

uint32_t poseidon_rank(const poseidon_session* session) {
  return session != nullptr ? session->session->rank().value() : 0u;
}

uint32_t poseidon_workers(const poseidon_session* session) {
  return session != nullptr ? session->session->workers() : 0u;
}

int32_t poseidon_waits_for_all(const poseidon_session* session) {
  return session != nullptr && session->session->strategy().waits_for_all ? 1 : 0;
}

size_t poseidon_member_name(const poseidon_session* session, int32_t member, char* buffer,
                            size_t capacity) {
  if (session == nullptr) return 0;
  const std::string name = session->session->NameOf(member);
  CopyText(name, buffer, capacity);
  return name.size();
}

poseidon_code poseidon_failure(const poseidon_session* session, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    return session->session->failure();
  });
}

void poseidon_say_busy(poseidon_session* session, const char* with) {
  if (!CheckSession(session).ok()) return;
  session->session->SayBusy(TextOr(with, ""));
}

void poseidon_log_to_stderr(void*, int32_t level, const char* line) {
  if (level < POSEIDON_LOG_WARNING || line == nullptr) return;
  std::string text = "poseidon: " + std::string(line);
  // A pipe that is ready takes PIPE_BUF bytes at once. With more the write would wait for a reader all the same.
  if (text.size() >= PIPE_BUF) text.replace(PIPE_BUF - 4, std::string::npos, "...");
  text += '\n';
  pollfd standard_error{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  // The core logs on its own threads. A pipe that nobody empties must not block them, so the line is lost instead.
  if (::poll(&standard_error, 1, 0) != 1) return;
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

poseidon_code poseidon_leave(poseidon_session* session, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    // Before the goodbye, while the session still says what it knows.
    if (const std::unique_ptr<RunFiles> run = std::exchange(session->run, nullptr)) run->WriteAccount(AccountOf(*session));
    return session->session->Leave();
  });
}

void poseidon_abort(poseidon_session* session, const char* reason) {
  if (!CheckSession(session).ok()) return;
  Answering(nullptr, [&] {
    session->session->Abort(session->OwnAbort(TextOr(reason, "ended the job")));
    return OkStatus();
  });
}

void poseidon_close(poseidon_session* session) {
  // In a forked child the handle is not freed: threads and connections behind it are the parent's.
  if (!CheckSession(session).ok()) return;
  Answering(nullptr, [&] {
    // Has no effect where the job has ended, in whatever way.
    session->session->Abort(session->OwnAbort("closed its session without leaving"));
    return session->session->AwaitEnd();
  });
  delete session;
}

poseidon_code poseidon_sum(poseidon_session* session, const poseidon_view* view,
                           poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    POSEIDON_ASSIGN_OR_RETURN(const TensorView taken, TakeView(view, "the sum's view"));
    return session->session->Sum(taken);
  });
}

poseidon_code poseidon_broadcast(poseidon_session* session, const poseidon_view* view,
                                 uint32_t root, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    POSEIDON_ASSIGN_OR_RETURN(const TensorView taken, TakeView(view, "the broadcast's view"));
    if (root >= session->session->workers()) {
      return InvalidArgument("the broadcast's root is " + std::to_string(root) +
                             ", expected less than the " +
                             std::to_string(session->session->workers()) + " workers");
    }
    return session->session->Broadcast(taken, Rank(static_cast<std::uint16_t>(root)));
  });
}

poseidon_code poseidon_barrier(poseidon_session* session, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    return session->session->Barrier();
  });
}

poseidon_code poseidon_gather(poseidon_session* session, const void* bytes, size_t size,
                              void (*take)(void* user, uint32_t rank, const void* bytes,
                                           size_t size),
                              void* user, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (take == nullptr) return InvalidArgument("the gather's callback is NULL");
    if (bytes == nullptr && size != 0) return InvalidArgument("the gather's bytes are NULL");
    POSEIDON_ASSIGN_OR_RETURN(
        const std::vector<ByteBuffer> gathered,
        session->session->Gather(ConstBytes(static_cast<const std::byte*>(bytes), size)));
    for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
      take(user, static_cast<std::uint32_t>(rank), gathered[rank].data(), gathered[rank].size());
    }
    return OkStatus();
  });
}
