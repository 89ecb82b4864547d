// Turns, pauses and cancellations through the engine: what is said must not depend on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "engine/engine.h"

namespace thermocline {
namespace {

using Channel = std::shared_ptr<TokenChannel>;

EngineConfig Tidepool() {
  EngineConfig config;
  config.model.path = SOURCE_DIR "/config/models/tidepool.gguf";
  config.model.threads = 2;
  config.serving.quantum_tokens = 8;
  return config;
}

std::unique_ptr<Engine> Load(const EngineConfig& config) {
  auto engine = Engine::Load(config);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

Request Story(std::uint64_t seed, int max_tokens) {
  Request request;
  request.prompt = {1, static_cast<int>(300 + seed % 700), 500};
  request.sampling.seed = seed;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

TokenChannel::Update End(TokenChannel& channel) {
  TokenChannel::Update update, all;
  while (!all.finished) {
    channel.WaitAndTake(update);
    all.text += update.text;
    all.tokens.insert(all.tokens.end(), update.tokens.begin(), update.tokens.end());
    all.times.insert(all.times.end(), update.times.begin(), update.times.end());
    all.scores.insert(all.scores.end(), update.scores.begin(), update.scores.end());
    if (!update.prompt_scores.empty()) all.prompt_scores = update.prompt_scores;
    all.finished = update.finished;
    all.reason = update.reason;
    all.error = update.error;
    all.usage = update.usage;
  }
  return all;
}

template <typename Holds>
bool Eventually(Holds holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;  // asked once: what held may hold no more
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return holds();
}

struct Setting {
  const char* name;
  std::int64_t prefix_cache_bytes;  // beside one context: how much memory there is
  SpecMode spec_mode;
  SpecSource source;
  const char* ffn;
};

class Turns : public testing::TestWithParam<Setting> {};

// Each of six requests says what it says alone, though they take turns, and though, with little
// memory, they take each other's.
TEST_P(Turns, ChangeNoText) {
  const Setting& setting = GetParam();
  EngineConfig config = Tidepool();
  config.serving.prefix_cache_bytes = setting.prefix_cache_bytes;
  config.model.spec.mode = setting.spec_mode;
  config.model.spec.source = setting.source;
  if (setting.source == SpecSource::kModel)
    config.model.spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
  config.model.ffn.modes = setting.ffn;
  const auto engine = Load(config);
  const auto request = [](std::uint64_t i) {
    Request r = Story(i, 200);
    r.sampling.temperature = i % 2 == 0 ? 0 : 1;
    r.sampling.frequency_penalty = i % 3 == 0 ? 0.5 : 0;
    r.stop = {"zebra crossing"};
    return r;
  };
  std::vector<TokenChannel::Update> alone, together;
  for (std::uint64_t i = 0; i < 6; ++i) alone.push_back(End(**engine->Submit(request(i))));
  std::vector<Channel> channels;
  for (std::uint64_t i = 0; i < 6; ++i) {
    Request r = request(i);
    r.tenant = i < 4 ? "a" : "b";
    channels.push_back(*engine->Submit(std::move(r)));
  }
  for (const Channel& channel : channels) together.push_back(End(*channel));
  int preemptions = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
    EXPECT_EQ(together[i].text, alone[i].text) << "request " << i;
    EXPECT_EQ(alone[i].usage.preemptions, 0);
    preemptions += together[i].usage.preemptions;
  }
  EXPECT_GT(preemptions, 20);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.preemptions, preemptions);
  if (setting.prefix_cache_bytes == 0) {
    EXPECT_GT(stats.recomputed_tokens, 0);
  }
  EXPECT_TRUE(Eventually([&] { return engine->Stats().running == 0; }));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Turns,
    testing::Values(
        Setting{"memory_for_all", 64 << 20, SpecMode::kOff, SpecSource::kNgram, "exact"},
        Setting{"memory_for_one", 0, SpecMode::kOff, SpecSource::kNgram, "exact"},
        Setting{"memory_for_one_with_loss", 0, SpecMode::kOff, SpecSource::kNgram, "sign"},
        Setting{"ngram", -1, SpecMode::kSync, SpecSource::kNgram, "exact"},
        Setting{"draft", -1, SpecMode::kBranch, SpecSource::kModel, "dense"},
        Setting{"draft_and_memory_for_one", 0, SpecMode::kSync, SpecSource::kModel, "exact"},
        Setting{"itself", 0, SpecMode::kSync, SpecSource::kSelf, "exact"}),
    [](const auto& tested) { return tested.param.name; });

TEST(Scheduler, AShortRequestDoesNotWaitForLongOnes) {
  const auto engine = Load(Tidepool());
  std::vector<Channel> longs;
  for (std::uint64_t i = 0; i < 3; ++i) longs.push_back(*engine->Submit(Story(i, 400)));
  TokenChannel::Update update;
  for (const Channel& channel : longs) channel->WaitAndTake(update);
  const auto short_end = End(**engine->Submit(Story(9, 4)));
  const auto first = short_end.times.front();
  // Tokens that the others made between its arrival and its first.
  int tokens = 0;
  const auto submitted =
      first -
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(short_end.usage.queue_s + short_end.usage.prefill_s));
  for (const Channel& channel : longs) {
    const auto end = End(*channel);
    EXPECT_EQ(end.usage.completion_tokens, 400);
    for (const auto at : end.times) tokens += at > submitted && at < first ? 1 : 0;
    EXPECT_GT(end.times.back(), first) << "it had ended before";
  }
  EXPECT_LE(tokens, 2 * 8 + 2);
}

std::vector<Channel> FillPlaces(Engine& engine, int count, const std::string& tenant = "") {
  std::vector<Channel> channels;
  for (int i = 0; i < count; ++i) {
    Request request = Story(static_cast<std::uint64_t>(i), 400);
    request.tenant = tenant;
    channels.push_back(*engine.Submit(std::move(request)));
  }
  EXPECT_TRUE(Eventually([&] { return engine.Stats().running == count; }));
  return channels;
}

// Submits `request`; `then` is called on the decode thread behind its first token, so before any
// other step.
Channel SubmitAndThen(Engine& engine, Request request, const std::function<void()>& then) {
  auto first = std::make_shared<std::atomic<bool>>(true);
  return *engine.Submit(std::move(request), [first, then] {
    if (first->exchange(false)) then();
  });
}

TEST(Scheduler, PrioritiesGoFirst) {
  const auto engine = Load(Tidepool());
  Request low = Story(2, 5), high = Story(3, 5);
  low.priority = -1;
  high.priority = 1;
  Channel waits, goes;
  std::atomic<bool> submitted{false};
  const Channel running = SubmitAndThen(*engine, Story(1, 100), [&] {
    waits = *engine->Submit(low);
    goes = *engine->Submit(high);
    submitted = true;
  });
  ASSERT_TRUE(Eventually([&] { return submitted.load(); }));
  const auto low_end = End(*waits), high_end = End(*goes), running_end = End(*running);
  EXPECT_LT(high_end.times.back(), running_end.times.back());
  EXPECT_LT(running_end.times.back(), low_end.times.front());
}

TEST(Scheduler, OneClientsRequestsKeepNobodyElseOut) {
  EngineConfig config = Tidepool();
  config.serving.sequences_max = 2;
  const auto engine = Load(config);
  const auto begun = FillPlaces(*engine, 2, "many");
  Request same = Story(7, 400), other = Story(8, 3), high = Story(9, 3);
  same.tenant = high.tenant = "many";
  other.tenant = "one";
  high.priority = 1;
  const Channel waits = *engine->Submit(same);
  const auto other_end = End(**engine->Submit(other)), high_end = End(**engine->Submit(high));
  std::vector<TokenChannel::Update> ends;
  for (const Channel& channel : begun) ends.push_back(End(*channel));
  const auto last = End(*waits).times.front();
  for (const auto& end : ends) {
    EXPECT_LT(other_end.times.back(), end.times.back());
    EXPECT_LT(high_end.times.back(), end.times.back());
  }
  // Of the same client and priority, it waited for a place.
  EXPECT_GT(last, std::min(ends[0].times.back(), ends[1].times.back()));
}

TEST(Scheduler, SlowReadersHoldNoPlace) {
  EngineConfig config = Tidepool();
  config.serving.sequences_max = 1;
  config.serving.reader_buffer_tokens = 16;
  config.serving.reader_timeout_s = 0;
  const auto engine = Load(config);
  const Channel slow = *engine->Submit(Story(1, 400));
  EXPECT_TRUE(Eventually([&] { return engine->Stats().paused == 1; }));
  EXPECT_EQ(End(**engine->Submit(Story(2, 10))).usage.completion_tokens, 10);
  EXPECT_EQ(engine->Stats().paused, 1);
  EXPECT_EQ(End(*slow).usage.completion_tokens, 400);
}

TEST(Scheduler, TheDeadlineOfOneThatWaitsItsTurnIsKept) {
  const auto engine = Load(Tidepool());
  Request low = Story(1, 400), high = Story(2, 0);
  low.priority = -1;
  low.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  std::vector<Channel> essays;
  const Channel late = SubmitAndThen(*engine, low, [&] {
    for (int i = 0; i < 30; ++i) essays.push_back(*engine->Submit(high));
  });
  const auto end = End(*late);
  EXPECT_EQ(end.error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(end.usage.cancel_s, 0.5);
  EXPECT_GT(engine->Stats().running, 0) << "the others had ended";
}

TEST(Scheduler, ACancellationIsSeenBeforeTheNextStep) {
  const auto engine = Load(Tidepool());
  Channel channel;
  std::atomic<int> tokens{0};
  std::mutex submitted;
  submitted.lock();  // until `channel` is there
  Request request = Story(1, 400);
  channel = *engine->Submit(std::move(request), [&] {
    if (++tokens != 5) return;  // on the decode thread, between two steps
    const std::lock_guard lock(submitted);
    channel->Cancel(CancelCause::kApi);
  });
  submitted.unlock();
  const auto end = End(*channel);
  EXPECT_EQ(end.reason, FinishReason::kCancelled);
  EXPECT_EQ(end.usage.completion_tokens, 5);
}

TEST(Scheduler, ASlowReaderPausesAloneAndIsGivenUp) {
  EngineConfig config = Tidepool();
  config.serving.reader_buffer_tokens = 16;
  config.serving.reader_timeout_s = 0.5;
  const auto engine = Load(config);
  const Channel slow = *engine->Submit(Story(1, 400));
  EXPECT_TRUE(Eventually([&] { return engine->Stats().paused == 1; }));
  EXPECT_EQ(End(**engine->Submit(Story(2, 50))).usage.completion_tokens, 50);
  EXPECT_TRUE(Eventually([&] { return engine->Stats().running == 0; }));
  const auto end = End(*slow);
  EXPECT_EQ(end.reason, FinishReason::kCancelled);
  EXPECT_EQ(end.usage.cause, CancelCause::kSlowReader);
  EXPECT_GE(end.tokens.size(), 16U);
  EXPECT_LE(end.tokens.size(), 16U + kDraftTokensMax + 1);
}

TEST(Scheduler, AReaderThatReadsAgainGetsTheSameText) {
  EngineConfig config = Tidepool();
  const auto expected = End(**Load(config)->Submit(Story(1, 200))).text;
  config.serving.reader_buffer_tokens = 16;
  const auto engine = Load(config);
  const Channel channel = *engine->Submit(Story(1, 200));
  TokenChannel::Update update;
  std::string text;
  while (!update.finished) {
    EXPECT_TRUE(
        Eventually([&] { return engine->Stats().paused == 1 || engine->Stats().running == 0; }));
    channel->WaitAndTake(update);
    text += update.text;
  }
  EXPECT_EQ(text, expected);
}

TEST(Scheduler, CancelsBetweenTurns) {
  EngineConfig config = Tidepool();
  const auto engine = Load(config);
  std::vector<Channel> channels;
  for (std::uint64_t i = 0; i < 5; ++i) channels.push_back(*engine->Submit(Story(i, 400)));
  TokenChannel::Update update;
  for (const Channel& channel : channels) channel->WaitAndTake(update);  // all are begun
  for (std::size_t i = 1; i < 5; ++i) channels[i]->Cancel(CancelCause::kApi);
  for (std::size_t i = 1; i < 5; ++i) {
    const auto end = End(*channels[i]);
    EXPECT_EQ(end.reason, FinishReason::kCancelled);
    EXPECT_EQ(end.usage.cause, CancelCause::kApi);
    EXPECT_LT(end.usage.cancel_s, 1.0);
  }
  EXPECT_EQ(End(*channels[0]).usage.completion_tokens, 400);
}

TEST(Scheduler, AdmissionsKeepPlacesAndGiveThemBack) {
  EngineConfig config = Tidepool();
  config.serving.queue_capacity = 2;
  config.serving.sequences_max = 1;
  const auto engine = Load(config);
  const Channel running = *engine->Submit(Story(1, 400));
  EXPECT_TRUE(Eventually([&] { return engine->Stats().running == 1; }));
  {
    auto admission = engine->Admit({.requests = 2, .prompt_bytes = 100});
    ASSERT_TRUE(admission.ok());
    EXPECT_EQ(engine->Admit({.requests = 1, .prompt_bytes = 1}).status().code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(engine->Stats().waiting, 2);
    EXPECT_TRUE(engine->Submit(Story(2, 1), {}, &*admission).ok());
  }
  EXPECT_LE(engine->Stats().waiting, 1);  // the place that was not used is free
  const auto late = engine->Admit({.deadline = std::chrono::steady_clock::now()});
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded) << late.status().message();
  const auto never = engine->Admit({.requests = 3});
  EXPECT_EQ(never.status().code(), StatusCode::kInvalidArgument) << never.status().message();
  EXPECT_GE(engine->RetryAfterS(), 0);
  running->Cancel();
}

TEST(Scheduler, LogProbabilitiesAreThoseOfTheModel) {
  EngineConfig config = Tidepool();
  for (const SpecMode mode : {SpecMode::kOff, SpecMode::kSync}) {
    config.model.spec.mode = mode;
    const auto engine = Load(config);
    Request greedy = Story(5, 40);
    greedy.sampling.temperature = 0;
    greedy.sampling.logit_bias = {{700, 3.0F}};  // they are of what stands before it
    greedy.logprobs = 3;
    const auto end = End(**engine->Submit(greedy));
    ASSERT_EQ(end.scores.size(), 40U * 4);
    // The same text read as a prompt is scored the same.
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

// Others' long prompts are no reason to refuse the one request of a client that would be next.
TEST(Scheduler, ADeadlineIsRefusedForTheClientsOwnQueueOnly) {
  EngineConfig config = Tidepool();
  config.serving.prefix_cache_bytes = 0;
  const auto engine = Load(config);
  Request request = Story(1, 100);
  request.prompt.resize(300, 321);
  request.tenant = "flood";
  End(**engine->Submit(request));  // from which the engine knows its speed
  EXPECT_TRUE(Eventually([&] { return engine->Stats().running == 0; }));
  std::vector<Channel> channels;
  for (int i = 0; i < 60; ++i) channels.push_back(*engine->Submit(request));
  const double wait = engine->WaitS();
  const auto in_time = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(wait / 2));
  const auto own = engine->Admit({.deadline = in_time, .tenant = "flood"});
  EXPECT_EQ(own.status().code(), StatusCode::kDeadlineExceeded) << own.status().message();
  EXPECT_TRUE(engine->Admit({.deadline = in_time, .tenant = "another"}).ok());
  engine->CancelAll(CancelCause::kShutdown);
}

// A prompt whose keys and values were taken before it was read to its end is scored once.
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
    const Channel grows = *engine->Submit(first);  // waits for its reader, then takes all there is
    EXPECT_TRUE(Eventually([&] { return engine->Stats().paused == 1; }));
    const Channel begins = *engine->Submit(scored);
    TokenChannel::Update update;
    while (update.prompt_read < 200 && !update.finished) begins->WaitAndTake(update);
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

}  // namespace
}  // namespace thermocline
