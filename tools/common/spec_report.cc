#include "tools/common/spec_report.h"

namespace thermocline::tools {

Json SpecJson(const SpecStats& spec) {
  if (!spec.used) return Json();
  return Json::Object{{"mode", spec.mode},
                      {"source", spec.source},
                      {"draft", spec.draft},
                      {"fallback", spec.fallback},
                      {"not_ahead", spec.not_ahead},
                      {"drafts", spec.drafts},
                      {"draft_tokens", spec.draft_tokens},
                      {"accepted_tokens", spec.accepted_tokens},
                      {"accepted_at", NumbersJson(spec.accepted_at)},
                      {"plain_steps", spec.plain_steps},
                      {"drafted_tokens", spec.drafted_tokens},
                      {"wasted_tokens", spec.wasted_tokens},
                      {"branch_hits", NumbersJson(spec.branch_hits)},
                      {"branch_misses", NumbersJson(spec.branch_misses)},
                      {"draft_s", spec.draft_s},
                      {"verify_s", spec.verify_s},
                      {"wait_s", spec.wait_s},
                      {"mode_now", spec.mode_now},
                      {"draft_length", spec.draft_length},
                      {"acceptance", spec.acceptance},
                      {"draft_token_s", spec.draft_token_s},
                      {"verify_1_s", spec.verify_1_s},
                      {"verify_per_token_s", spec.verify_per_token_s}};
}

}  // namespace thermocline::tools
