#include "engine/text/jinja_budget.h"

#include "engine/base/interruption.h"

namespace thermocline::text::jinja {

Status Budget::Charge(std::size_t bytes) {
  steps_ += 1 + static_cast<std::int64_t>(bytes / 64);
  made_bytes_ += bytes;
  if (steps_ > limits_.steps)
    return base::ResourceExhausted("the chat template takes more than ", limits_.steps, " steps");
  if (made_bytes_ / limits_.made_of_output > limits_.output_bytes)
    return base::ResourceExhausted("the chat template makes more than ", limits_.made_of_output,
                                   " times ", limits_.output_bytes, " bytes of text");
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
    if (item.is_string()) bytes += item.as_string().size();
  return bytes;
}

}  // namespace thermocline::text::jinja
