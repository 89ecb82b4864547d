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
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Reason DefaultReason(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return Reason::kNone;
    case StatusCode::kCancelled:
      return Reason::kCancelled;
    case StatusCode::kInvalidArgument:
      return Reason::kInvalidField;
    case StatusCode::kDeadlineExceeded:
      return Reason::kDeadline;
    case StatusCode::kNotFound:
      return Reason::kNotFound;
    case StatusCode::kAlreadyExists:
      return Reason::kAlreadyExists;
    case StatusCode::kPermissionDenied:
      return Reason::kForbidden;
    case StatusCode::kResourceExhausted:
      return Reason::kExhausted;
    case StatusCode::kFailedPrecondition:
      return Reason::kNotLoaded;
    case StatusCode::kOutOfRange:
      return Reason::kOutOfRange;
    case StatusCode::kUnimplemented:
      return Reason::kUnsupported;
    case StatusCode::kInternal:
      return Reason::kInternal;
    case StatusCode::kUnavailable:
      return Reason::kUnavailable;
    case StatusCode::kDataLoss:
      return Reason::kDataLoss;
    case StatusCode::kUnauthenticated:
      return Reason::kUnknownKey;
  }
  return Reason::kInternal;
}

namespace {
const std::string kNoText;
const std::vector<Status::Number> kNoNumbers;
}  // namespace

Status::Status(StatusCode code, std::string message) {
  if (code == StatusCode::kOk) return;
  fault_ = std::make_unique<Fault>(
      Fault{.code = code, .reason = DefaultReason(code), .message = std::move(message)});
}

Status::Status(const Status& other)
    : fault_(other.ok() ? nullptr : std::make_unique<Fault>(*other.fault_)) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) *this = Status(other);
  return *this;
}

const std::string& Status::message() const { return ok() ? kNoText : fault_->message; }
const std::string& Status::field() const { return ok() ? kNoText : fault_->field; }
const std::vector<Status::Number>& Status::numbers() const {
  return ok() ? kNoNumbers : fault_->numbers;
}

std::string Status::ToString() const {
  return ok() ? "OK" : StrCat(StatusCodeName(code()), ": ", message());
}

Status Status::Annotate(std::string_view context) const {
  Status out = *this;
  if (!ok()) out.fault_->message = StrCat(context, ": ", message());
  return out;
}

Status Status::WithReason(Reason reason) const {
  Status out = *this;
  if (!ok()) out.fault_->reason = reason;
  return out;
}

Status Status::WithField(std::string_view field) const {
  Status out = *this;
  if (!ok()) out.fault_->field = field;
  return out;
}

Status Status::WithNumber(std::string_view name, std::int64_t value) const {
  Status out = *this;
  if (!ok()) out.fault_->numbers.emplace_back(name, value);
  return out;
}

void CheckFailed(const char* file, int line, const char* what, const std::string& values) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s %s\n", file, line, what, values.c_str());
  std::abort();
}

}  // namespace thermocline::base
