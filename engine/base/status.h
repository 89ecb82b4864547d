// Status and Result<T>: a failure as a value with a code and a message.
//
// The codes are those of gRPC's canonical codes that the program uses, with the same numbers. Two
// tables map them: server/openai/error.cc to HTTP and the OpenAI error body, server/grpc/refusal.cc
// to gRPC. A broken invariant is a CHECK (check.h), not a Status.
// Source: the shape of google/leveldb's Status, the codes of gRPC.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace thermocline::base {

enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "INVALID_ARGUMENT: what is wrong", or "OK".
  std::string ToString() const;
  // The same code, with `context` and ": " in front of the message. An OK status stays as it is.
  Status Annotate(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }

// Makers of the codes most used: the pieces are joined as by StrCat. Other codes take the
// constructor.
#define THERMOCLINE_STATUS_MAKER(name)                     \
  template <typename... Pieces>                            \
  Status name(const Pieces&... pieces) {                   \
    return Status(StatusCode::k##name, StrCat(pieces...)); \
  }
THERMOCLINE_STATUS_MAKER(Cancelled)
THERMOCLINE_STATUS_MAKER(InvalidArgument)
THERMOCLINE_STATUS_MAKER(NotFound)
THERMOCLINE_STATUS_MAKER(ResourceExhausted)
THERMOCLINE_STATUS_MAKER(FailedPrecondition)
THERMOCLINE_STATUS_MAKER(OutOfRange)
THERMOCLINE_STATUS_MAKER(Unimplemented)
THERMOCLINE_STATUS_MAKER(Internal)
THERMOCLINE_STATUS_MAKER(Unavailable)
THERMOCLINE_STATUS_MAKER(DataLoss)
#undef THERMOCLINE_STATUS_MAKER

// A value, or the Status that says why there is none. An OK Status without a value is a broken
// invariant (CHECK).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<1>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT
    CHECK(!std::get<0>(state_).ok());
  }

  bool ok() const { return state_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<0>(state_); }

  // Requires: ok(); otherwise the process ends as by a failed CHECK.
  T& operator*() & { return Value(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Value(); }
  T&& operator*() && { return std::move(Value()); }
  T* operator->() { return &Value(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Value(); }

 private:
  T& Value() {
    if (!ok())
      CheckFailed(__FILE__, __LINE__, "Result has no value", std::get<0>(state_).ToString());
    return std::get<1>(state_);
  }
  std::variant<Status, T> state_;
};

}  // namespace thermocline::base

namespace thermocline {
using base::OkStatus;
using base::Result;
using base::Status;
using base::StatusCode;
}  // namespace thermocline

#define RETURN_IF_ERROR(expression)                                                    \
  do {                                                                                 \
    if (::thermocline::base::Status status_macro = (expression); !status_macro.ok()) { \
      return status_macro;                                                             \
    }                                                                                  \
  } while (false)

#define THERMOCLINE_CONCAT_INNER(a, b) a##b
#define THERMOCLINE_CONCAT(a, b) THERMOCLINE_CONCAT_INNER(a, b)
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_IMPL(THERMOCLINE_CONCAT(result_macro_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                  \
  if (!result.ok()) return result.status();                    \
  declaration = *std::move(result)
