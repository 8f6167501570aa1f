// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/status.h"

#include <system_error>

namespace poseidon {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "OK";
    case StatusCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case StatusCode::kNotFound: return "NOT_FOUND";
    case StatusCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case StatusCode::kUnavailable: return "UNAVAILABLE";
    case StatusCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case StatusCode::kAborted: return "ABORTED";
    case StatusCode::kDataLoss: return "DATA_LOSS";
    case StatusCode::kPermissionDenied: return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case StatusCode::kUnimplemented: return "UNIMPLEMENTED";
    case StatusCode::kInternal: return "INTERNAL";
  }
  return "UNKNOWN";
}

// Not strerror, which may share one buffer among threads.
std::string ErrnoText(int error) { return std::generic_category().message(error); }

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(StatusCodeName(code_)) + ": " + message_;
}

Status Status::WithPrefix(std::string_view prefix) const {
  if (ok()) return *this;
  return Status(code_, std::string(prefix) + ": " + message_, scope_, culprit_);
}

Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status FailedPrecondition(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
Status Unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
Status DataLoss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
Status PermissionDenied(std::string message) {
  return {StatusCode::kPermissionDenied, std::move(message)};
}
Status ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
Status Unimplemented(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}
Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace poseidon
