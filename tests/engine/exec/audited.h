// Audits every token of a text, and compares the counts.
#pragma once

#include "tests/engine/exec/ffn_models.h"

namespace thermocline::exec {

using Counts = std::vector<predictor::AuditCounts>;  // [L]

inline ffn::Auditor AuditorOf(const load::LoadedModel& model) {
  return ffn::Auditor({.config = model.config,
                       .predictors = *model.predictors,
                       .ops = *model.ops,
                       .interval = 1,
                       .shadow = model.audit_shadow});
}

// Counts of the shadow, if there is one, else of the modes.
inline Counts CountsOf(const load::LoadedModel& model, const ffn::Auditor& auditor) {
  const FfnMode shadow = model.audit_shadow;
  Counts out;
  for (int l = 0; l < model.config.num_hidden_layers; ++l)
    out.push_back(shadow == FfnMode::kDense ? auditor.total(l)
                                            : auditor.window(l, shadow, true).sum());
  return out;
}

// Audits every one of `tokens`; steps of `at_once` tokens are verified and keep their first.
inline Counts AuditedBy(const load::LoadedModel& model, std::span<const int> tokens,
                        std::size_t at_once = 1) {
  const auto transformer = model.MakeTransformer(16, 64, 16);
  ffn::Auditor auditor = AuditorOf(model);
  transformer->SetAuditor(&auditor);
  const auto cache = *model.MakeCache(64);
  for (std::size_t at = 0; at + at_once <= tokens.size(); ++at) {
    const auto done =
        transformer->Forward(tokens.subspan(at, at_once), *cache, Transformer::Logits::kAll,
                             at_once > 1 ? Transformer::Step::kVerify : Transformer::Step::kDecode);
    EXPECT_TRUE(done.ok()) << done.status().message();
    cache->SetLength(cache->length() - static_cast<int>(at_once) + 1);
    auditor.EndStep();
    while (auditor.pending()) auditor.AuditOne(transformer->audited_sides());
  }
  return CountsOf(model, auditor);
}

// mass_error: the relative difference that masses may have.
inline void ExpectSame(const Counts& got, const Counts& want, const std::string& what = "",
                       double mass_error = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t l = 0; l < got.size(); ++l) {
    SCOPED_TRACE(what + ", layer " + std::to_string(l));
    EXPECT_GT(got[l].tokens, 0);
    EXPECT_GT(got[l].tp, 0);
    EXPECT_EQ(got[l].tokens, want[l].tokens);
    EXPECT_EQ(got[l].tp, want[l].tp);
    EXPECT_EQ(got[l].fp, want[l].fp);
    EXPECT_EQ(got[l].fn, want[l].fn);
    EXPECT_EQ(got[l].tn, want[l].tn);
    EXPECT_NEAR(got[l].missed_mass, want[l].missed_mass, mass_error * want[l].total_mass);
    EXPECT_NEAR(got[l].total_mass, want[l].total_mass, mass_error * want[l].total_mass);
  }
}

}  // namespace thermocline::exec
