#include "server/metrics/spec_metrics.h"

#include "server/metrics/catch_up.h"

namespace thermocline::server {
namespace {

auto& MakeGauges(prometheus::Registry& registry, const std::string& name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
auto& MakeCounters(prometheus::Registry& registry, const std::string& name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

}  // namespace

// Source: the first four are vLLM's.
SpecMetrics::SpecMetrics(prometheus::Registry& r, const std::string& p)
    : drafts_(MakeCounters(r, p + "spec_decode_num_drafts_total", "Drafts verified")),
      draft_tokens_(
          MakeCounters(r, p + "spec_decode_num_draft_tokens_total", "Drafted tokens verified")),
      accepted_tokens_(
          MakeCounters(r, p + "spec_decode_num_accepted_tokens_total", "Drafted tokens accepted")),
      accepted_at_(MakeCounters(r, p + "spec_decode_num_accepted_tokens_per_pos_total",
                                "Drafted tokens accepted, by their position in the draft")),
      hits_(MakeCounters(r, p + "spec_branch_hits_total",
                         "Verifications whose outcome had been drafted on from by then, by the "
                         "accepted length k")),
      misses_(
          MakeCounters(r, p + "spec_branch_misses_total",
                       "Verifications whose outcome had not been drafted on from, by the accepted "
                       "length k")),
      wait_(MakeCounters(r, p + "spec_draft_wait_seconds_total",
                         "Time in which the target waited for a draft")),
      draft_(MakeCounters(r, p + "spec_draft_seconds_total", "Time spent drafting, on any thread")),
      verify_(MakeCounters(r, p + "spec_verify_seconds_total",
                           "Time of the target's decoding steps, those without a draft included")),
      wasted_(MakeCounters(r, p + "spec_wasted_tokens_total",
                           "Tokens drafted and refused, or dropped unverified")),
      plain_(MakeCounters(r, p + "spec_plain_steps_total", "Decoding steps without a draft")),
      length_(MakeGauges(r, p + "spec_draft_length", "Tokens of the last draft")),
      acceptance_(MakeGauges(r, p + "spec_acceptance",
                             "Probability that a drafted token is accepted after those before it, "
                             "as fitted")),
      token_(
          MakeGauges(r, p + "spec_draft_token_seconds", "Time of one drafted token, as measured")),
      info_(
          MakeGauges(r, p + "spec_info",
                     "How drafts are made; mode_now: what mode auto does at present; fallback: why "
                     "there is no draft model though one was asked for; always 1")) {}

void SpecMetrics::Expose(const EngineStats& stats) {
  const SpecStats& spec = stats.spec;
  if (!spec.used) return;
  ExposeInfo(spec);
  CatchUp(drafts_.Add({}), spec.drafts);
  CatchUp(draft_tokens_.Add({}), spec.draft_tokens);
  CatchUp(accepted_tokens_.Add({}), spec.accepted_tokens);
  for (std::size_t i = 0; i < spec.accepted_at.size(); ++i)
    CatchUp(accepted_at_.Add({{"position", StrCat(i)}}), spec.accepted_at[i]);
  for (std::size_t k = 0; k < spec.branch_hits.size(); ++k) {
    CatchUp(hits_.Add({{"k", StrCat(k)}}), spec.branch_hits[k]);
    CatchUp(misses_.Add({{"k", StrCat(k)}}), spec.branch_misses[k]);
  }
  CatchUp(wait_.Add({}), spec.wait_s);
  CatchUp(draft_.Add({}), spec.draft_s);
  CatchUp(verify_.Add({}), spec.verify_s);
  CatchUp(wasted_.Add({}), spec.wasted_tokens);
  CatchUp(plain_.Add({}), spec.plain_steps);
  length_.Add({}).Set(spec.draft_length);
  acceptance_.Add({}).Set(spec.acceptance);
  token_.Add({}).Set(spec.draft_token_s);
}

void SpecMetrics::ExposeInfo(const SpecStats& spec) {
  const auto series = [&](const std::string& mode_now) -> prometheus::Gauge& {
    return info_.Add({{"mode", spec.mode},
                      {"source", spec.source},
                      {"mode_now", mode_now},
                      {"fallback", spec.fallback}});
  };
  if (spec.mode_now != mode_now_) info_.Remove(&series(mode_now_));
  mode_now_ = spec.mode_now;
  series(mode_now_).Set(1);
}

}  // namespace thermocline::server
