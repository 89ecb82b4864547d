// The bounds of one rendering of a template.
#pragma once

#include <cstdint>

#include "engine/text/chat_template.h"
#include "engine/text/jinja_ast.h"

namespace thermocline::text::jinja {

// Bounds of one rendering: what a real conversation needs, times a hundred.
struct Limits {
  // Expressions and statements evaluated, and a share of bytes copied.
  std::int64_t steps = 5'000'000;
  std::size_t output_bytes = kRenderedBytesMax;
  std::size_t made_of_output = 32;  // bytes of all texts and lists made, in output_bytes
  int depth = 150;                  // nested expressions and calls
};

// The steps and bytes that one rendering has taken so far.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  // Pays for a step that made `bytes`. ResourceExhausted: beyond a limit; Unavailable: interrupted.
  Status Charge(std::size_t bytes);

 private:
  const Limits limits_;
  std::int64_t steps_ = 0;
  std::size_t made_bytes_ = 0;
};

// Bytes of the texts that an expression has made or copied: a new list has copies of its texts.
std::size_t BytesMade(const Expr& expr, const Value& result);

}  // namespace thermocline::text::jinja
