// SPDX-License-Identifier: Apache-2.0
// `poseidon rank`: one rank of `poseidon run`, on its host. Its task comes as one JSON line on standard input, the
// secret included; what follows are commands; the end of the input means that the launcher is gone. It runs the user's
// command, sends on what that prints, and leaves nothing of it behind.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

#include "poseidon/transport/tcp/token.h"
#include "tools/console/fail.h"
#include "tools/launch/beats.h"
#include "tools/launch/events.h"
#include "tools/launch/kept_command.h"
#include "tools/launch/memory_file.h"
#include "tools/launch/pipe.h"
#include "tools/launch/process.h"
#include "tools/launch/task_text.h"
#include "tools/run/commands.h"
#include "tools/run/lines.h"
#include "tools/run/rank_task.h"

namespace poseidon::tools {
namespace {

using Clock = std::chrono::steady_clock;
using launch::KeptCommand;
using nlohmann::json;
using transport::tcp::Token;

// The time of a command between the request to end and its end by force.
constexpr std::chrono::milliseconds kToEnd{500};
// Most bytes that wait for the launcher before the command itself has to wait.
constexpr std::size_t kMostUnsent = 256 << 10;
// A line of figures is shorter.
constexpr std::size_t kLongestFigures = 4096;
// How often rank 0 says in a log how far a progress bar is, which a terminal shows at once.
constexpr std::chrono::seconds kBetweenPassing{10};

// A port of `address` that is free now. The command will listen there; until then somebody else may take it, which
// the job then says.
Result<std::uint16_t> FreePort(const std::string& address) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  socklen_t size = sizeof place;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ResourceExhausted("no socket: " + ErrnoText(errno));
  const bool found = inet_pton(AF_INET, address.c_str(), &place.sin_addr) == 1 &&
                     bind(fd, reinterpret_cast<sockaddr*>(&place), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&place), &size) == 0;
  const int error = errno;
  close(fd);
  if (!found) return Unavailable("no port is free at " + address + ": " + ErrnoText(error));
  return ntohs(place.sin_port);
}

// The failure of the job as the session of a command has written it (poseidon_options.verdict_file): whom it blames, the
// code, and the sentence.
void AddVerdict(int fd, launch::Failed* failed) {
  std::array<char, 4096> text;
  const ssize_t length = fd < 0 ? -1 : pread(fd, text.data(), text.size(), 0);
  if (length <= 0) return;  // it used no session, or the job went well
  std::istringstream line(std::string(text.data(), static_cast<std::size_t>(length)));
  int culprit = kNoCulprit;
  std::string code, sentence;
  if (!(line >> culprit >> code) || !std::getline(line >> std::ws, sentence)) return;
  failed->culprit = culprit;
  failed->code = launch::StatusCodeNamed(code);
  failed->verdict = sentence;
}

// Whether a session of several workers was about to open.
bool HasJoined(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 && file.st_size > 0;
}

int OwnCores() {
  cpu_set_t mine;
  return sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
}

// Returns the variables that the command gets, by the names that frameworks know.
std::map<std::string, std::string> EnvironmentOf(const RankTask& task, const MeetingPlace& place,
                                                 const std::string& token_path, const std::string& verdict_path,
                                                 const std::string& figures_path) {
  std::map<std::string, std::string> set = task.environment;
  const auto unless_set = [&set](const char* name, const std::string& value) {
    if (std::getenv(name) == nullptr) set.emplace(name, value);
  };
  unless_set("OMP_NUM_THREADS", std::to_string(std::max(1, OwnCores() / task.local_workers)));
  unless_set("PYTHONUNBUFFERED", "1");  // lines as they come, although no terminal reads them
  set["RANK"] = std::to_string(task.rank);
  set["WORLD_SIZE"] = std::to_string(task.workers);
  set["LOCAL_RANK"] = std::to_string(task.local_rank);
  set["LOCAL_WORLD_SIZE"] = std::to_string(task.local_workers);
  set["NODE_RANK"] = std::to_string(task.node);
  set["MASTER_ADDR"] = place.host;
  set["MASTER_PORT"] = std::to_string(place.port);
  set["POSEIDON_PORT"] = std::to_string(place.poseidon_port);
  set["POSEIDON_TOKEN_FILE"] = token_path;
  set["POSEIDON_VERDICT_FILE"] = verdict_path;
  if (!figures_path.empty()) set["POSEIDON_FIGURES_FILE"] = figures_path;
  if (!task.host.empty()) set["POSEIDON_HOST"] = task.host;
  if (task.draws_output || task.draws_errors) set["TERM"] = "dumb";  // it has one line, and no cursor that moves
  return set;
}

class Rank {
 public:
  int Run();

 private:
  struct Stream {
    int fd = -1;
    bool error = false;
    bool draws = false;  // it is a terminal
    bool open = true;
    Lines lines = {};
    Clock::time_point passed_at = {};  // when a passing line was sent last
  };

  bool ReadTask();
  Result<MeetingPlace> Meet();
  Status Start();
  void Step();
  void ReadInput();
  void ObeyInput();
  void ObeyWhatCame();
  void Obey(const json& command);
  void Forward(Stream& stream);
  void SendLine(Stream& stream, const std::string& line, bool passing);
  void ForwardFigures();
  void Emit(const launch::Event& event);
  void Send();
  void BeginToEnd(int code);
  void Signal(int signal) const;
  int Close(int code, const std::string& how);
  void ForwardTheRest();
  void SendTheRest();
  int UntilLook() const;

  std::string input_;
  bool input_open_ = true;
  json message_;  // the task as it came, without its secret
  RankTask task_;
  std::optional<Token> token_;
  std::optional<KeptCommand> command_;
  std::array<Stream, 2> streams_;
  std::string unsent_;
  bool output_open_ = true;
  bool held_ = false;      // nobody takes what the launcher prints: the command waits, and what it does not print travels
  bool stopping_ = false;  // it has been asked to end
  int verdict_file_ = -1;
  launch::Pipe figures_;  // from the command's session; not open where nobody asks
  std::string figures_begun_;  // a line of them without its end so far
  int signals_ = -1;
  launch::Beats beats_;
  std::optional<Clock::time_point> end_at_;  // when the command, asked to end, is killed
  int asked_code_ = 0;                       // the exit code that the launcher asked for
};

bool Rank::ReadTask() {
  while (input_open_ && input_.find('\n') == std::string::npos) ReadInput();
  const std::size_t end = input_.find('\n');
  if (end == std::string::npos) return false;
  message_ = launch::DecodeTask(input_.substr(0, end));
  std::fill_n(input_.begin(), end, '\0');  // it held the secret
  input_.erase(0, end + 1);
  if (!message_.is_object()) return false;
  try {
    task_ = message_.get<RankTask>();
    Result<Token> token = Token::FromHex(message_.at("token").get<std::string>());
    if (!token.ok()) return false;
    token_ = *std::move(token);
    message_.erase("token");
  } catch (const json::exception&) {
    return false;
  }
  return true;
}

Result<MeetingPlace> Rank::Meet() {
  if (task_.rank > 0) return message_.at("coordinator").get<MeetingPlace>();
  MeetingPlace place{task_.address, task_.port, 0};
  if (place.port == 0) {
    POSEIDON_ASSIGN_OR_RETURN(place.port, FreePort(task_.address));
  }
  POSEIDON_ASSIGN_OR_RETURN(place.poseidon_port, FreePort(task_.address));
  Emit(launch::Listening{place.host, place.port, place.poseidon_port});
  return place;
}

Status Rank::Start() {
  POSEIDON_ASSIGN_OR_RETURN(const MeetingPlace place, Meet());
  POSEIDON_ASSIGN_OR_RETURN(const int token_file, launch::FileInMemory("poseidon-token"));
  POSEIDON_RETURN_IF_ERROR(token_->WriteDescriptor(token_file));
  POSEIDON_ASSIGN_OR_RETURN(verdict_file_, launch::FileInMemory("poseidon-verdict"));
  if (task_.tells_figures && !figures_.Open()) return ResourceExhausted("no pipe for a rank's figures: " + ErrnoText(errno));
  if (task_.tells_figures) fcntl(figures_.read, F_SETFL, O_NONBLOCK);
  unsetenv("POSEIDON_FIGURES_FILE");  // of a job around us
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");  // of a torchrun around us, which has no part in this job
  POSEIDON_ASSIGN_OR_RETURN(KeptCommand command,
                            KeptCommand::Start(task_.argv, EnvironmentOf(task_, place, launch::PathOf(token_file),
                                                                         launch::PathOf(verdict_file_),
                                                                         figures_.write < 0 ? "" : launch::PathOf(figures_.write)),
                                               {task_.draws_output, task_.draws_errors, task_.columns}));
  command_.emplace(std::move(command));
  streams_[0] = {.fd = command_->output(), .error = false, .draws = task_.draws_output};
  streams_[1] = {.fd = command_->errors(), .error = true, .draws = task_.draws_errors};
  Emit(launch::Joined{});
  return OkStatus();
}

void Rank::Emit(const launch::Event& event) { unsent_ += launch::EncodeEvent(event) + "\n"; }

// As much as the launcher takes now.
void Rank::Send() {
  while (!unsent_.empty() && output_open_) {
    const ssize_t n = write(STDOUT_FILENO, unsent_.data(), unsent_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) output_open_ = false;
    if (n > 0) unsent_.erase(0, static_cast<std::size_t>(n));
  }
  if (!output_open_) unsent_.clear();
}

// Of progress bars those of rank 0 travel: a terminal draws them, a log has one now and then.
void Rank::SendLine(Stream& stream, const std::string& line, bool passing) {
  if (stopping_ && unsent_.size() > kMostUnsent) return;
  launch::Line event{.rank = static_cast<std::size_t>(task_.rank), .error = stream.error, .line = line};
  if (passing) {
    const bool is_due = stream.draws || Clock::now() - stream.passed_at >= kBetweenPassing;
    if (task_.rank > 0 || !is_due) return;
    stream.passed_at = Clock::now();
    if (stream.draws) event.passing = true;
  }
  Emit(event);
}

void Rank::Forward(Stream& stream) {
  std::array<char, 16384> bytes;
  const ssize_t n = read(stream.fd, bytes.data(), bytes.size());
  const Lines::OnLine send = [&](const std::string& line, bool passing) { SendLine(stream, line, passing); };
  if (n > 0) {
    stream.lines.Take({bytes.data(), static_cast<std::size_t>(n)}, send);
    if (stream.draws) stream.lines.Show(send);
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {  // EIO at the end of a terminal
    stream.open = false;
    stream.lines.End(send);
  }
}

// Of lines that came together the last counts. One that cannot leave now is not kept: the next one is newer.
void Rank::ForwardFigures() {
  std::array<char, 16384> bytes;
  const ssize_t n = figures_.read < 0 ? 0 : read(figures_.read, bytes.data(), bytes.size());
  if (n <= 0) return;
  figures_begun_.append(bytes.data(), static_cast<std::size_t>(n));
  const std::size_t end = figures_begun_.rfind('\n');
  if (end == std::string::npos) {
    if (figures_begun_.size() > kLongestFigures) figures_begun_.clear();  // somebody else writes there
    return;
  }
  const std::size_t before = end == 0 ? std::string::npos : figures_begun_.rfind('\n', end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  if (unsent_.empty() && !held_ && end - begin <= kLongestFigures) Emit(launch::Figures{figures_begun_.substr(begin, end - begin)});
  figures_begun_.erase(0, end + 1);
}

void Rank::ReadInput() {
  std::array<char, 16384> bytes;
  const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
  if (n > 0) {
    input_.append(bytes.data(), static_cast<std::size_t>(n));
  } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
    input_open_ = false;
  }
}

void Rank::ObeyInput() {
  ReadInput();
  ObeyWhatCame();
}

void Rank::ObeyWhatCame() {
  for (std::size_t end; (end = input_.find('\n')) != std::string::npos;) {
    Obey(json::parse(input_.substr(0, end), nullptr, false));
    input_.erase(0, end + 1);
  }
}

void Rank::Obey(const json& command) {
  if (!command.is_object()) return;
  const std::string word = command.value("command", "");
  if (word == "hold") held_ = true;
  if (word == "go on") held_ = false;
  // A command that waits for its output to be taken could not end.
  stopping_ |= word == "interrupt" || word == "terminate" || word == "end";
  if (word == "interrupt") Signal(SIGINT);
  if (word == "terminate") Signal(SIGTERM);
  if (word == "hangup") Signal(SIGHUP);
  if (word == "end") BeginToEnd(command.value("code", kExitFailed));
  beats_.Take(command);
}

void Rank::BeginToEnd(int code) {
  if (end_at_) return;
  asked_code_ = code;
  end_at_ = Clock::now() + kToEnd;
  Signal(SIGTERM);
}

void Rank::Signal(int signal) const {
  if (command_) command_->Signal(signal);  // none where it could not be started
}

// For poll: how long until beats of the launcher's machine are looked for; without end where none are expected.
int Rank::UntilLook() const {
  return beats_.Expected() ? static_cast<int>(launch::Beats::kBetweenLooks.count()) : -1;
}

void Rank::Step() {
  const bool full = !stopping_ && (held_ || unsent_.size() > kMostUnsent);
  std::array<pollfd, 7> polled = {{{input_open_ ? STDIN_FILENO : -1, POLLIN, 0},
                                   {signals_, POLLIN, 0},
                                   {command_->ended(), POLLIN, 0},
                                   {streams_[0].open && !full ? streams_[0].fd : -1, POLLIN, 0},
                                   {streams_[1].open && !full ? streams_[1].fd : -1, POLLIN, 0},
                                   {unsent_.empty() ? -1 : STDOUT_FILENO, POLLOUT, 0},
                                   {figures_.read, POLLIN, 0}}};
  int timeout = UntilLook();
  if (end_at_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*end_at_ - Clock::now()).count();
    timeout = left > 0 ? static_cast<int>(left) + 1 : 0;
  }
  poll(polled.data(), polled.size(), timeout);
  if (polled[0].revents != 0) ObeyInput();
  if (polled[1].revents != 0 || !input_open_ || beats_.Missed()) BeginToEnd(kExitFailed);
  if (polled[6].revents != 0) ForwardFigures();
  for (std::size_t i = 0; i < 2; ++i) {
    if (polled[3 + i].revents != 0) Forward(streams_[i]);
  }
  Send();
}

// The command has ended, and all that it started: sends on what it still has to say, and how it ended.
int Rank::Close(int code, const std::string& how) {
  ForwardFigures();
  ForwardTheRest();
  if (code == kExitOk) {
    if (!HasJoined(verdict_file_)) Emit(launch::Alone{});
  } else {
    launch::Failed failed{.message = task_.name + how, .exit = code};
    AddVerdict(verdict_file_, &failed);
    Emit(failed);
  }
  SendTheRest();
  return code;
}

void Rank::ForwardTheRest() {
  for (Stream& stream : streams_) {
    while (stream.open && stream.fd >= 0) Forward(stream);
  }
}

// Waits until the launcher has all, is gone, or wants no more.
void Rank::SendTheRest() {
  while (!unsent_.empty() && output_open_ && input_open_ && !end_at_) {
    std::array<pollfd, 3> polled = {
        {{STDIN_FILENO, POLLIN, 0}, {signals_, POLLIN, 0}, {STDOUT_FILENO, POLLOUT, 0}}};
    poll(polled.data(), polled.size(), UntilLook());
    if (polled[0].revents != 0) ObeyInput();
    if (polled[1].revents != 0 || beats_.Missed()) break;
    Send();
  }
  Send();
}

int Rank::Run() {
  if (!ReadTask()) Fail("poseidon rank is started by poseidon run");
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);  // the kernel's, when the launcher has died; blocked since the program's start
  signals_ = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
  fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
  fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
  if (const Status status = Start(); !status.ok()) return Close(127, ": " + status.message());
  ObeyWhatCame();  // with the task
  while (true) {
    Step();
    if (const std::optional<int> status = command_->TryWait()) {
      return Close(launch::ExitCodeOf(*status), " " + launch::DescribeWaitStatus(*status));
    }
    if (end_at_ && Clock::now() >= *end_at_) {
      command_->End();
      return Close(asked_code_, " was ended");
    }
  }
}

}  // namespace

void AddRank(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("rank", "One rank of a job (started by run)");
  command->group("");  // not for people
  command->callback([] {
    signal(SIGPIPE, SIG_IGN);
    const int code = Rank().Run();
    if (code != kExitOk) throw CLI::RuntimeError(code);
  });
}

}  // namespace poseidon::tools
