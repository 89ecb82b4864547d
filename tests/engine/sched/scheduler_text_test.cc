// Results about a request's text that must be the same in every turn: scores of its tokens and of
// its prompt, its stops, a prompt that several requests share.
#include <algorithm>
#include <cmath>

#include "tests/engine/sched/tidepool_engine.h"

namespace thermocline {
namespace {

TEST(Scheduler, LogProbabilitiesAreThoseOfTheModel) {
  EngineConfig config = Tidepool();
  for (const SpecMode mode : {SpecMode::kOff, SpecMode::kSync}) {
    config.model.spec.mode = mode;
    const auto engine = Load(config);
    Request greedy = Story(5, 40);
    greedy.sampling.temperature = 0;
    greedy.sampling.logit_bias = {{700, 3.0F}};  // scores are of the logits before this bias
    greedy.logprobs = 3;
    const auto end = End(**engine->Submit(greedy));
    ASSERT_EQ(end.scores.size(), 40U * 4);
    // The same text as a prompt has the same scores.
    Request read;
    read.prompt = greedy.prompt;
    read.prompt.insert(read.prompt.end(), end.tokens.begin(), end.tokens.end());
    read.logprobs = 3;
    read.prompt_logprobs = read.prompt_only = true;
    const auto scored = End(**engine->Submit(read));
    EXPECT_EQ(scored.usage.completion_tokens, 0);
    EXPECT_EQ(scored.usage.cached_tokens, 0);
    ASSERT_EQ(scored.prompt_scores.size(), 42U * 4);
    for (std::size_t i = 0; i < end.scores.size(); ++i) {
      const auto& there = scored.prompt_scores[i + 2 * 4];
      EXPECT_EQ(there.token, end.scores[i].token) << i;
      EXPECT_EQ(there.logprob, end.scores[i].logprob) << i;
    }
    double sum = 0;
    for (std::size_t i = 1; i < 4; ++i) sum += std::exp(end.scores[i].logprob);
    EXPECT_LE(sum, 1.0 + 1e-6);
  }
}

TEST(Scheduler, StopTokensAndMinTokens) {
  const auto engine = Load(Tidepool());
  Request request = Story(5, 60);
  const auto plain = End(**engine->Submit(request));
  Request stopped = request;
  stopped.stop_tokens = {plain.tokens[10]};
  const auto first = std::find(plain.tokens.begin(), plain.tokens.end(), plain.tokens[10]);
  const auto end = End(**engine->Submit(stopped));
  EXPECT_EQ(end.reason, FinishReason::kStop);
  EXPECT_EQ(end.tokens, std::vector<int>(plain.tokens.begin(), first));
  stopped.sampling.min_tokens = 30;
  const auto later = End(**engine->Submit(stopped));
  EXPECT_GE(later.usage.completion_tokens, 30);
}

// A prompt whose KV cache was evicted before the end of its prefill is scored once.
TEST(Scheduler, APromptThatIsReadAnewIsScoredOnce) {
  EngineConfig config = Tidepool();
  config.serving.prefix_cache_bytes = 0;
  config.model.context_length = 512;
  config.serving.prefill_chunk = 1;
  config.serving.quantum_tokens = 1;
  config.serving.reader_buffer_tokens = 64;
  const auto engine = Load(config);
  Request scored = Story(1, 0);
  scored.prompt.resize(440, 321);
  scored.logprobs = 0;
  scored.prompt_logprobs = scored.prompt_only = true;
  const auto alone = End(**engine->Submit(scored));
  ASSERT_EQ(alone.prompt_scores.size(), 439U);
  scored.progress = true;
  Request first = Story(2, 400);
  first.priority = 5;
  for (int i = 0; i < 20 && engine->Stats().recomputed_tokens == 0; ++i) {
    const Channel grows = *engine->Submit(first);  // waits for its reader, then takes all memory
    EXPECT_TRUE(Eventually([&] { return engine->Stats().paused == 1; }));
    const Channel begins = *engine->Submit(scored);
    TokenChannel::Update update;
    while (update.prompt_done < 200 && !update.finished) begins->WaitForUpdate(update);
    End(*grows);
    const auto end = End(*begins);
    ASSERT_EQ(end.prompt_scores.size(), 439U);
    for (std::size_t k = 0; k < 439; ++k) {
      EXPECT_EQ(end.prompt_scores[k].token, alone.prompt_scores[k].token);
      EXPECT_EQ(end.prompt_scores[k].logprob, alone.prompt_scores[k].logprob);
    }
  }
  EXPECT_GT(engine->Stats().recomputed_tokens, 0);
}

// Returns the tokens that a neighbour gets while the request is computed.
std::ptrdiff_t TokensMeanwhile(Engine& engine, const Request& request) {
  Channel channel;
  const Channel answer =
      SubmitAndThen(engine, Story(2, 500), [&] { channel = *engine.Submit(request); });
  const auto neighbour = End(*answer), read = End(*channel);
  return std::count_if(neighbour.times.begin(), neighbour.times.end(), [&read](const auto& time) {
    return time > read.usage.begun_at && time < read.usage.ended_at;
  });
}

// One connection that scored prompts took turns of sixteen tokens' time, and a neighbour's tokens
// came seven times as late.
TEST(Scheduler, ScoresOfAPromptLetOthersInBehindEachStep) {
  const auto engine = Load(Tidepool());
  Request scored = Story(1, 0);
  scored.prompt.resize(400, 321);
  scored.logprobs = 0;
  scored.prompt_logprobs = scored.prompt_only = true;
  // A step scores 16 tokens, and behind each the neighbour has a turn of 8.
  EXPECT_GE(TokensMeanwhile(*engine, scored), 100);
}

// Vectors of a chat's model took whole turns: a neighbour's tokens came five times as late.
TEST(Scheduler, VectorsOfLongTextsLetOthersInBehindEachStep) {
  EngineConfig config = Tidepool();
  config.serving.prefill_chunk = 16;
  const auto engine = Load(config);
  Request text = Story(1, 0);
  text.prompt.resize(400, 321);
  text.embed = EmbedRequest{.ends = {400}};
  EXPECT_GE(TokensMeanwhile(*engine, text), 100);
}

TEST(Scheduler, ASharedPromptIsReadOnce) {
  const auto engine = Load(Tidepool());
  Request request = Story(5, 100);
  request.prompt.resize(200, 321);
  request.share_prompt = true;
  std::vector<Channel> channels;
  for (int i = 0; i < 3; ++i) {
    request.sampling.seed = static_cast<std::uint64_t>(i);
    channels.push_back(*engine->Submit(request));
  }
  int cached = 0;
  for (const Channel& channel : channels) cached += End(*channel).usage.cached_tokens;
  EXPECT_EQ(cached, 2 * 199);
}

// A key learnt that another key's prompt was its guess, because its request waited for it.
TEST(Scheduler, APromptOfAnotherOwnerIsNotWaitedFor) {
  EngineConfig config = Tidepool();
  config.serving.prefill_chunk = 16;
  const auto engine = Load(config);
  Request request = Story(2, 1);
  request.prompt.resize(400, 321);
  request.share_prompt = true;
  bool together = false;
  for (int i = 0; i < 20 && !together; ++i) {  // a busy machine may come to the second too late
    request.prefix_owner = request.tenant = base::StrCat("first ", i);
    const Channel first = *engine->Submit(request);
    request.prefix_owner = request.tenant = base::StrCat("second ", i);
    const auto second = End(**engine->Submit(request));
    together = second.usage.begun_at < End(*first).times.front();
    EXPECT_EQ(second.usage.cached_tokens, 0);
  }
  EXPECT_TRUE(together);
}

}  // namespace
}  // namespace thermocline
