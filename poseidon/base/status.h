// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_STATUS_H_
#define POSEIDON_BASE_STATUS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace poseidon {

// The kind of a failure; callers branch on it, users read the message.
enum class StatusCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 1,     // the caller or the user gave something wrong
  kNotFound = 2,            // a file, a key or a host that is not there
  kFailedPrecondition = 3,  // right call, wrong moment
  kUnavailable = 4,         // a peer or the network is gone
  kDeadlineExceeded = 5,
  kAborted = 6,             // the job was ended, by someone named in the message
  kDataLoss = 7,            // bytes that do not check: a file, a frame
  kPermissionDenied = 8,    // authentication or file permissions
  kResourceExhausted = 9,   // memory, disk, descriptors, bounds on input
  kUnimplemented = 10,
  kInternal = 11,
};

// How much is broken, so that the caller can repair the smallest thing.
enum class StatusScope : std::uint8_t { kRequest = 0, kConnection = 1, kPeer = 2, kJob = 3 };

// Value of `Status::culprit` when no member is to blame.
inline constexpr std::int32_t kNoCulprit = -1;

// Success, or one failure with its message. Copyable; success costs nothing to make.
// The message is one sentence: what, where, what was expected; it starts in lower case and has no
// final full stop, so that callers can put it behind "NAME: ".
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, StatusScope scope = StatusScope::kRequest,
         std::int32_t culprit = kNoCulprit)
      : code_(code), scope_(scope), culprit_(culprit), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  explicit operator bool() const = delete;
  StatusCode code() const { return code_; }
  StatusScope scope() const { return scope_; }
  // The member id that is to blame for a failure of scope peer or job, else kNoCulprit.
  std::int32_t culprit() const { return culprit_; }
  const std::string& message() const { return message_; }

  // "UNAVAILABLE: connection to worker 2 was reset", or "OK".
  std::string ToString() const;
  // The same failure with `prefix` and ": " before its message; OK stays OK.
  Status WithPrefix(std::string_view prefix) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  StatusScope scope_ = StatusScope::kRequest;
  std::int32_t culprit_ = kNoCulprit;
  std::string message_;
};

inline Status OkStatus() { return {}; }
std::string_view StatusCodeName(StatusCode code);
// Returns the system's text of an errno value: "No such file or directory". Thread: any.
std::string ErrnoText(int error);

// Shorthands for the frequent kinds, scope request.
Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status FailedPrecondition(std::string message);
Status Unavailable(std::string message);
Status DataLoss(std::string message);
Status PermissionDenied(std::string message);
Status ResourceExhausted(std::string message);
Status Unimplemented(std::string message);
Status Internal(std::string message);

}  // namespace poseidon

// Returns from the enclosing function when `expression` (a Status) is not OK.
#define POSEIDON_RETURN_IF_ERROR(expression)                          \
  do {                                                                \
    if (::poseidon::Status poseidon_status_ = (expression); !poseidon_status_.ok()) \
      return poseidon_status_;                                        \
  } while (false)

#endif  // POSEIDON_BASE_STATUS_H_
