#include "loadtest/workload/answer.h"

#include "engine/base/index.h"
#include "loadtest/workload/request.h"

namespace thermocline::loadtest {
namespace {

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json();
}

}  // namespace

std::string_view FaultName(Fault fault) {
  static constexpr std::string_view kNames[kNumFaults] = {
      "none",         "not_json",    "no_input",     "wrong_type", "bad_role", "negative_tokens",
      "hot_sampling", "huge_number", "deep_nesting", "bad_utf8"};
  return kNames[base::Index(fault)];
}

std::string_view OutcomeName(Outcome outcome) {
  static constexpr std::string_view kNames[kNumOutcomes] = {
      "ok", "error", "timeout", "cancelled", "rate_limited", "unavailable", "refused"};
  return kNames[base::Index(outcome)];
}

Json AnswerJson(const Answer& answer) {
  return Json::Object{
      {"id", Json(answer.id)},
      {"kind", answer.kind},
      {"conversation", Json(answer.conversation)},
      {"turn", answer.turn},
      {"outcome", OutcomeName(answer.outcome)},
      {"status", answer.status},
      {"finish_reason", answer.finish_reason.empty() ? Json() : Json(answer.finish_reason)},
      {"error", answer.error.empty() ? Json() : Json(answer.error)},
      {"t_sched", answer.t_scheduled},
      {"t_sent", answer.t_sent},
      {"t_hdr", OrNull(answer.t_header)},
      {"t_first_byte", OrNull(answer.t_first_byte)},
      {"t_first_content", OrNull(answer.t_first_content)},
      {"t_last", answer.t_last},
      {"chunks", answer.chunks},
      {"t_chunks", Json::Array(answer.t_chunks.begin(), answer.t_chunks.end())},
      {"prompt_tokens", OrNull(answer.prompt_tokens)},
      {"output_tokens", OrNull(answer.output_tokens)},
      {"cached_tokens", OrNull(answer.cached_tokens)}};
}

}  // namespace thermocline::loadtest
