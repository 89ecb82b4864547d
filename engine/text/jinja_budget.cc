#include "engine/text/jinja_budget.h"

#include <ctime>

#include "engine/base/interruption.h"

namespace thermocline::text::jinja {
namespace {

constexpr std::int64_t kStepsUntimed = 4096;

// Seconds that the calling thread has had a processor.
double ThreadSeconds() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Budget::Budget(const Limits& limits) : limits_(limits), begin_s_(ThreadSeconds()) {}

Status Budget::Charge(std::size_t bytes) {
  steps_ += 1 + static_cast<std::int64_t>(bytes / 64) + WalkMeter::Take();
  if (steps_ > limits_.steps)
    return base::ResourceExhausted("the chat template takes more than ", limits_.steps, " steps");
  if (steps_ >= timed_steps_) {
    timed_steps_ = steps_ + kStepsUntimed;
    if (ThreadSeconds() - begin_s_ > limits_.thread_s)
      return base::ResourceExhausted("the chat template takes more than ", limits_.thread_s, " s");
  }
  if (base::Interrupted()) return base::Unavailable("nobody waits for the chat template's text");
  return OkStatus();
}

std::size_t BytesMade(const Expr& expr, const Value& result) {
  using Kind = Expr::Kind;
  if (result.is_string()) return result.as_string().size();
  const bool is_new = expr.kind == Kind::kBinary || expr.kind == Kind::kSlice ||
                      expr.kind == Kind::kFilter || expr.kind == Kind::kCall;
  std::size_t bytes = 0;
  if (!is_new || !result.is_list()) return bytes;
  for (const Value& item : result.list())
    bytes += sizeof(Value) + (item.is_string() ? item.as_string().size() : 0);
  return bytes;
}

}  // namespace thermocline::text::jinja
