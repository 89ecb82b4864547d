// Status and Result<T>: every failure is a value with one of gRPC's canonical codes, a reason and,
// if there is one, the name of the field at fault. Programs read these; messages are for people.
//
// The codes have gRPC's numbers. One table maps a reason to HTTP, gRPC and the OpenAI error body:
// server/core/refusal_table.h. A broken invariant is a CHECK (check.h), not a Status.
// Source: the shape of google/leveldb's Status, the codes of gRPC.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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
  kUnauthenticated = 16,
};

std::string_view StatusCodeName(StatusCode code);

// The reason, more specific than the code: clients and metrics distinguish errors by it.
enum class Reason : unsigned char {
  kNone,  // nothing is wrong
  // Errors in the request.
  kInvalidField,   // the default for InvalidArgument (DefaultReason); likewise below
  kUnsupported,    // default for Unimplemented
  kOutOfRange,     // default for OutOfRange
  kContextLength,  // the prompt does not fit the context
  kChatTemplate,   // the chat template fails; message() names the template's line
  kNotLoaded,      // default for FailedPrecondition
  kNotFound,       // default for NotFound
  kModelNotFound,
  kRequestNotFound,
  kAlreadyExists,  // default for AlreadyExists
  kMalformed,      // the HTTP header
  kTooLarge,       // the body is too large for the available memory
  // Errors in the caller's identity or permissions.
  kUnknownKey,  // default for Unauthenticated
  kForbidden,   // default for PermissionDenied
  kHostNotAllowed,
  kOriginNotAllowed,
  // Errors that depend on the time of the request: load, the service's state, cancellation.
  kExhausted,  // default for ResourceExhausted
  kQueueFull,
  kPrefillBudget,  // too many prompt tokens wait
  kGrammarMemory,  // the grammars of other requests use all of it
  kRequestMemory,  // the bodies of other requests use all of it
  kConnections,    // the key already has as many connections as allowed
  kDeadline,       // default for DeadlineExceeded
  kUnavailable,    // default for Unavailable
  kLoading,
  kLoadFailed,
  kDraining,
  kCancelled,   // default for Cancelled
  kClientGone,  // the client has disconnected
  // Errors of the service.
  kDataLoss,  // default for DataLoss
  kInternal,  // default for Internal
};
inline constexpr int kNumReasons = static_cast<int>(Reason::kInternal) + 1;

// The reason of a Status that is made with `code` alone.
Reason DefaultReason(StatusCode code);

// One pointer; OK allocates nothing. Copies are deep.
class [[nodiscard]] Status {
 public:
  // A number that the message also states: {"n_ctx", 512}. The name is a literal.
  using Number = std::pair<std::string_view, std::int64_t>;

  Status() = default;
  Status(StatusCode code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return fault_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : fault_->code; }
  Reason reason() const { return ok() ? Reason::kNone : fault_->reason; }
  const std::string& message() const;
  // The field at fault in a request or a configuration; "" = none.
  const std::string& field() const;
  const std::vector<Number>& numbers() const;
  // "INVALID_ARGUMENT: MESSAGE", or "OK".
  std::string ToString() const;
  // The same status, with `context` and ": " in front of the message; OK stays OK, in the functions
  // below too.
  Status Annotate(std::string_view context) const;
  // The same status with another reason or field, or one more number.
  Status WithReason(Reason reason) const;
  Status WithField(std::string_view field) const;
  Status WithNumber(std::string_view name, std::int64_t value) const;

 private:
  struct Fault {
    StatusCode code;
    Reason reason;
    std::string message, field = {};
    std::vector<Number> numbers = {};
  };
  std::unique_ptr<Fault> fault_;  // nullptr = OK
};

inline Status OkStatus() { return {}; }

// Factories for the most used codes: the pieces are joined as by StrCat. Other codes use the
// constructor.
#define THERMOCLINE_STATUS_MAKER(name)                     \
  template <typename... Pieces>                            \
  Status name(const Pieces&... pieces) {                   \
    return Status(StatusCode::k##name, StrCat(pieces...)); \
  }
THERMOCLINE_STATUS_MAKER(Cancelled)
THERMOCLINE_STATUS_MAKER(InvalidArgument)
THERMOCLINE_STATUS_MAKER(DeadlineExceeded)
THERMOCLINE_STATUS_MAKER(NotFound)
THERMOCLINE_STATUS_MAKER(PermissionDenied)
THERMOCLINE_STATUS_MAKER(ResourceExhausted)
THERMOCLINE_STATUS_MAKER(FailedPrecondition)
THERMOCLINE_STATUS_MAKER(OutOfRange)
THERMOCLINE_STATUS_MAKER(Unimplemented)
THERMOCLINE_STATUS_MAKER(Internal)
THERMOCLINE_STATUS_MAKER(Unavailable)
THERMOCLINE_STATUS_MAKER(DataLoss)
THERMOCLINE_STATUS_MAKER(Unauthenticated)
#undef THERMOCLINE_STATUS_MAKER

// A value, or the Status that explains its absence. An OK Status without a value is a broken
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
using base::Reason;
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
