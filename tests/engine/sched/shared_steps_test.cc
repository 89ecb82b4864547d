// Shared steps with every placement of neurons on the host, mode and draft
// (shared_answers.h), and beside requests that cannot share.
#include "tests/engine/sched/shared_answers.h"

namespace thermocline {
namespace {

TEST_P(SharedAnswers, GiveEachTheBitsItHasAlone) { GivesEachTheBitsItHasAlone(); }

// Requests that cannot share have their turns while others do.
TEST(SharedSteps, OthersHaveTurnsBesideThem) {
  EngineConfig config = Tidepool();
  config.model.ffn.modes = "dense";
  config.model.ffn.also = "exact";
  const auto engine = Load(config);
  const auto ends_within = [&](Request other) {
    std::vector<Channel> sharers;
    for (std::uint64_t i = 0; i < 3; ++i) sharers.push_back(*engine->Submit(Story(i, 400)));
    TokenChannel::Update update;
    for (const Channel& channel : sharers) channel->WaitForUpdate(update);
    const auto end = End(**engine->Submit(std::move(other)));
    EXPECT_EQ(end.reason, FinishReason::kLength);
    bool before = true;
    for (const Channel& channel : sharers) {
      const auto one = End(*channel);
      before = before && one.usage.ended_at > end.usage.ended_at;
      EXPECT_LT(one.usage.preemptions, 60);  // fewer than one turn per token
    }
    return before;
  };
  Request scores = Story(8, 2), mode = Story(9, 40);
  scores.prompt_logprobs = true;
  scores.logprobs = 0;
  mode.ffn_mode = "exact";
  EXPECT_TRUE(ends_within(scores));
  EXPECT_TRUE(ends_within(mode));
}

void Drafts(EngineConfig& config, SpecMode mode, SpecSource source) {
  config.model.spec.mode = mode;
  config.model.spec.source = source;
  if (source == SpecSource::kModel)
    config.model.spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
}

INSTANTIATE_TEST_SUITE_P(
    Settings, SharedAnswers,
    testing::Values(
        Place{"exact", [](EngineConfig&) {}},
        Place{"dense_two_at_a_time",
              [](EngineConfig& c) {
                c.model.ffn.modes = "dense";
                c.serving.step_tokens = 2;
              }},
        Place{"many_tokens_in_a_step",
              [](EngineConfig& c) {
                c.serving.step_tokens = 40;
                c.serving.sequences_max = 40;
                c.serving.itl_target_ms = 1000;
              }},
        Place{"short_chunks", [](EngineConfig& c) { c.serving.prefill_chunk = 7; }},
        Place{"with_loss", [](EngineConfig& c) { c.model.ffn.modes = "sign"; }},
        Place{"little_memory",
              [](EngineConfig& c) {
                c.model.context_length = 320;
                c.serving.prefix_cache_bytes = 0;
              }},
        Place{"little_memory_with_loss",
              [](EngineConfig& c) {
                c.model.ffn.modes = "sign";
                c.model.context_length = 320;
                c.serving.prefix_cache_bytes = 0;
              }},
        Place{"four_bit_keys", [](EngineConfig& c) { c.model.kv_type = KvType::kQ4_0; }},
        Place{"flash", [](EngineConfig& c) { c.model.memory.ffn_share = 0.6; }},
        Place{"two_sides", [](EngineConfig& c) { c.model.hot.bytes = 2 << 20; }},
        Place{"experts",
              [](EngineConfig& c) {
                c.model.path = SOURCE_DIR "/config/models/tidepool-experts.gguf";
                c.model.ffn.modes = "";
              }},
        Place{"ngram", [](EngineConfig& c) { Drafts(c, SpecMode::kSync, SpecSource::kNgram); }},
        Place{"draft_ahead",
              [](EngineConfig& c) { Drafts(c, SpecMode::kBranch, SpecSource::kModel); }},
        Place{"draft_that_decides",
              [](EngineConfig& c) {
                Drafts(c, SpecMode::kSync, SpecSource::kModel);
                c.model.spec.acceptance = SpecAcceptance::kRejection;
              }},
        Place{"itself_ahead",
              [](EngineConfig& c) {
                c.model.ffn.modes = "dense";
                Drafts(c, SpecMode::kBranch, SpecSource::kSelf);
              }}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace thermocline
