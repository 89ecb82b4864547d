#include "server/metrics/spec_metrics.h"

namespace thermocline::server {

// Source: the first four names are vLLM's.
void ExposeSpec(const EngineStats& stats, MetricSet& set) {
  const SpecStats& spec = stats.spec;
  if (!spec.used) return;
  set.CatchUp("spec_decode_num_drafts_total", spec.drafts);
  set.CatchUp("spec_decode_num_draft_tokens_total", spec.draft_tokens);
  set.CatchUp("spec_decode_num_accepted_tokens_total", spec.accepted_tokens);
  for (std::size_t i = 0; i < spec.accepted_at.size(); ++i)
    set.CatchUp("spec_decode_num_accepted_tokens_per_pos_total", spec.accepted_at[i],
                {{"position", StrCat(i)}});
  set.SetInfo("spec_info", {{"mode", spec.mode},
                            {"source", spec.source},
                            {"mode_now", spec.mode_now},
                            {"fallback", spec.fallback},
                            {"not_ahead", spec.not_ahead}});
  for (std::size_t k = 0; k < spec.branch_hits.size(); ++k) {
    set.CatchUp("spec_branch_hits_total", spec.branch_hits[k], {{"k", StrCat(k)}});
    set.CatchUp("spec_branch_misses_total", spec.branch_misses[k], {{"k", StrCat(k)}});
  }
  set.CatchUp("spec_draft_wait_seconds_total", spec.wait_s);
  set.CatchUp("spec_draft_seconds_total", spec.draft_s);
  set.CatchUp("spec_verify_seconds_total", spec.verify_s);
  set.CatchUp("spec_drafted_tokens_total", spec.drafted_tokens);
  set.CatchUp("spec_wasted_tokens_total", spec.wasted_tokens);
  set.CatchUp("spec_plain_steps_total", spec.plain_steps);
  set.Set("spec_draft_length", spec.draft_length);
  set.Set("spec_acceptance", spec.acceptance);
  set.Set("spec_draft_token_seconds", spec.draft_token_s);
}

}  // namespace thermocline::server
