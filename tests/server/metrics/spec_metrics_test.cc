#include <gtest/gtest.h>

#include "server/metrics/metrics.h"

namespace thermocline::server {
namespace {

EngineStats MakeStats() {
  EngineStats stats;
  stats.spec = {.used = true,
                .mode = "auto",
                .source = "model",
                .drafts = 5,
                .draft_tokens = 20,
                .accepted_tokens = 12,
                .plain_steps = 3,
                .drafted_tokens = 25,
                .wasted_tokens = 8,
                .draft_s = 0.5,
                .verify_s = 1.5,
                .wait_s = 0.25,
                .mode_now = "sync",
                .draft_length = 4,
                .acceptance = 0.75,
                .draft_token_s = 0.001};
  stats.spec.accepted_at[0] = 5;
  stats.spec.accepted_at[2] = 2;
  stats.spec.branch_hits[3] = 4;
  stats.spec.branch_misses[0] = 1;
  return stats;
}

class SpecMetricsTest : public testing::Test {
 protected:
  std::string Expose(const EngineStats& stats) {
    return metrics_.Expose(ServiceState::kReady, &stats, "m");
  }
  Metrics metrics_{"t_"};
};

TEST_F(SpecMetricsTest, ShowsWhatTheEngineCounts) {
  const std::string text = Expose(MakeStats());
  for (const char* line : {
           "\nt_spec_decode_num_drafts_total 5\n",
           "\nt_spec_decode_num_draft_tokens_total 20\n",
           "\nt_spec_decode_num_accepted_tokens_total 12\n",
           "\nt_spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 5\n",
           "\nt_spec_decode_num_accepted_tokens_per_pos_total{position=\"2\"} 2\n",
           "\nt_spec_decode_num_accepted_tokens_per_pos_total{position=\"14\"} 0\n",
           "\nt_spec_branch_hits_total{k=\"3\"} 4\n",
           "\nt_spec_branch_misses_total{k=\"0\"} 1\n",
           "\nt_spec_branch_misses_total{k=\"15\"} 0\n",
           "\nt_spec_draft_wait_seconds_total 0.25\n",
           "\nt_spec_draft_seconds_total 0.5\n",
           "\nt_spec_verify_seconds_total 1.5\n",
           "\nt_spec_drafted_tokens_total 25\n",
           "\nt_spec_wasted_tokens_total 8\n",
           "\nt_spec_plain_steps_total 3\n",
           "\nt_spec_draft_length 4\n",
           "\nt_spec_acceptance 0.75\n",
           "\nt_spec_draft_token_seconds 0.001\n",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST_F(SpecMetricsTest, CountersFollowAndTheInfoIsOneSeries) {
  EngineStats stats = MakeStats();
  Expose(stats);
  stats.spec.drafts = 9;
  stats.spec.mode_now = "branch";
  stats.spec.not_ahead = "two words";
  const std::string text = Expose(stats);
  EXPECT_NE(text.find("\nt_spec_decode_num_drafts_total 9\n"), std::string::npos);
  const std::size_t info = text.find("\nt_spec_info{");
  ASSERT_NE(info, std::string::npos) << text;
  const std::string line = text.substr(info + 1, text.find('\n', info + 1) - info - 1);
  EXPECT_NE(line.find("mode_now=\"branch\""), std::string::npos) << line;
  EXPECT_NE(line.find("mode=\"auto\""), std::string::npos) << line;
  EXPECT_NE(line.find("source=\"model\""), std::string::npos) << line;
  EXPECT_NE(line.find("not_ahead=\"two words\""), std::string::npos) << line;
  EXPECT_EQ(text.find("\nt_spec_info{", info + 1), std::string::npos) << text;
}

TEST_F(SpecMetricsTest, NothingIsShownOfWhatIsNotUsed) {
  EXPECT_EQ(Expose(EngineStats()).find("t_spec_decode_num_drafts_total 0"), std::string::npos);
}

}  // namespace
}  // namespace thermocline::server
