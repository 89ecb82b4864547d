// The limits of one rendering of a template.
#pragma once

#include <cstdint>

#include "engine/text/chat_template.h"
#include "engine/text/jinja_ast.h"

namespace thermocline::text::jinja {

// Limits of one rendering: a hundred times the needs of a real conversation.
struct Limits {
  // Evaluated expressions and statements, plus a share of the bytes copied.
  std::int64_t steps = 5'000'000;
  std::size_t output_bytes = kRenderedBytesMax;
  int depth = 200;      // nested expressions, statements and calls
  double thread_s = 1;  // time on a processor; a long conversation takes a hundredth
};

// The steps and the time that one rendering has used so far.
class Budget {
 public:
  // The time of the calling thread counts from here on.
  explicit Budget(const Limits& limits);

  const Limits& limits() const { return limits_; }
  // Charges a step that created `bytes`. ResourceExhausted: a limit is exceeded; Unavailable:
  // interrupted.
  Status Charge(std::size_t bytes);

 private:
  const Limits limits_;
  const double begin_s_;
  std::int64_t steps_ = 0, timed_steps_ = 0;
};

// Bytes of the texts and elements that an expression has created or copied: a new list has copies
// of its texts.
std::size_t BytesMade(const Expr& expr, const Value& result);

}  // namespace thermocline::text::jinja
