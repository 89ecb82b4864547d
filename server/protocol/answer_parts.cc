#include "server/protocol/answer_parts.h"

#include <algorithm>

#include "engine/base/random.h"
#include "engine/base/strings.h"

namespace thermocline::protocol {
namespace {

double PerSecond(int tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

}  // namespace

std::string NewId(const std::string& prefix) { return prefix + base::RandomLetters(24); }

Json UsageJson(const Usage& usage) {
  return Json::Object{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", Json::Object{{"cached_tokens", usage.cached_tokens}}},
      {"completion_tokens_details", Json::Object{{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json TimingsJson(const Usage& usage) {
  const int computed = usage.prompt_tokens - usage.cached_tokens;
  const int decoded = std::max(0, usage.completion_tokens - 1);
  Json::Object out{{"cache_n", usage.cached_tokens},
                   {"prompt_n", computed},
                   {"prompt_ms", usage.prefill_s * 1000},
                   {"prompt_per_second", PerSecond(computed, usage.prefill_s)},
                   {"predicted_n", usage.completion_tokens},
                   {"predicted_ms", usage.decode_s * 1000},
                   {"predicted_per_second", PerSecond(decoded, usage.decode_s)},
                   {"draft_n", usage.spec.draft_tokens},
                   {"draft_n_accepted", usage.spec.accepted_tokens},
                   {"drafts", usage.spec.drafts},
                   {"branch_hits", usage.spec.branch_hits},
                   {"branch_misses", usage.spec.branch_misses},
                   {"draft_wait_ms", usage.spec.wait_s * 1000}};
  if (usage.cache_miss_at >= 0) out.emplace_back("cache_miss_at", usage.cache_miss_at);
  if (usage.replayed_tokens > 0) out.emplace_back("replayed_tokens", usage.replayed_tokens);
  if (usage.flash_tokens > 0) {
    out.emplace_back("cache_flash_n", usage.flash_tokens);
    out.emplace_back("restore_ms", usage.restore_s * 1000);
  }
  if (usage.energy_j > 0) {
    out.emplace_back("energy_j", usage.energy_j);
    if (usage.completion_tokens > 0)
      out.emplace_back("joules_per_token", usage.energy_j / usage.completion_tokens);
  }
  return out;
}

Json ExtensionJson(const Usage& usage, int default_max_tokens) {
  Json::Object out{{"queue_ms", usage.queue_s * 1000},
                   {"preemptions", usage.preemptions},
                   {"speculation", Json::Object{{"drafts", usage.spec.drafts},
                                                {"draft_tokens", usage.spec.draft_tokens},
                                                {"accepted_tokens", usage.spec.accepted_tokens},
                                                {"branch_hits", usage.spec.branch_hits},
                                                {"branch_misses", usage.spec.branch_misses},
                                                {"wait_ms", usage.spec.wait_s * 1000}}}};
  if (default_max_tokens > 0)
    out.emplace_back("ended_by", StrCat("sampling.max_tokens: ", default_max_tokens));
  return out;
}

Json ProgressJson(const server::PromptProgress& progress) {
  return Json::Object{{"index", progress.choice},
                      {"total", progress.total},
                      {"cache", progress.cached},
                      {"processed", progress.read},
                      {"time_ms", progress.ms}};
}

std::string DataEvent(const Json& json) { return "data: " + json.Dump() + "\n\n"; }

}  // namespace thermocline::protocol
