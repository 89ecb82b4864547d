#include "engine/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace thermocline::base {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  return ok() ? "OK" : StrCat(StatusCodeName(code_), ": ", message_);
}

Status Status::Annotate(std::string_view context) const {
  return ok() ? *this : Status(code_, StrCat(context, ": ", message_));
}

void CheckFailed(const char* file, int line, const char* what, const std::string& values) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s %s\n", file, line, what, values.c_str());
  std::abort();
}

}  // namespace thermocline::base
