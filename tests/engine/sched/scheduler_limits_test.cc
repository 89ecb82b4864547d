// Causes that delay a request or end it early: slow readers, deadlines, cancellations, a full
// queue.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "tests/engine/sched/tidepool_engine.h"

namespace thermocline {
namespace {

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
  Channel channel;
  std::atomic<int> tokens{0};
  std::mutex submitted;
  // Declared last, so that its thread ends before these counters.
  const auto engine = Load(Tidepool());
  submitted.lock();  // until `channel` is set
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
    channel->WaitForUpdate(update);
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
  for (const Channel& channel : channels) channel->WaitForUpdate(update);  // all have begun
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
  EXPECT_LE(engine->Stats().waiting, 1);  // the unused place is free
  const auto late = engine->Admit({.deadline = std::chrono::steady_clock::now()});
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded) << late.status().message();
  const auto never = engine->Admit({.requests = 3});
  EXPECT_EQ(never.status().code(), StatusCode::kInvalidArgument) << never.status().message();
  EXPECT_GE(engine->RetryAfterS(), 0);
  running->Cancel();
}

// Other clients' long prompts do not cause the rejection of a client's only request, which is next.
TEST(Scheduler, ADeadlineIsRefusedForTheClientsOwnQueueOnly) {
  EngineConfig config = Tidepool();
  config.serving.prefix_cache_bytes = 0;
  const auto engine = Load(config);
  Request request = Story(1, 100);
  request.prompt.resize(300, 321);
  request.tenant = "flood";
  End(**engine->Submit(request));  // teaches the engine its speed
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

// The KV cache is smaller than all of them need: two contexts.
TEST(Scheduler, OneClientsRequestsTakeNoMemoryFromAnothersFirst) {
  const auto engine = Load(Tidepool());
  constexpr int kTokens = 450;
  const auto of = [](const char* tenant, std::uint64_t seed) {
    Request request = Story(seed, kTokens);
    request.tenant = tenant;
    return request;
  };
  const std::string alone = End(**engine->Submit(of("other", 99))).text;
  std::vector<Channel> crowd;
  for (std::uint64_t i = 0; i < 15; ++i) crowd.push_back(*engine->Submit(of("crowd", i)));
  TokenChannel::Update update;
  for (const Channel& channel : crowd) channel->WaitForUpdate(update);
  const auto other = End(**engine->Submit(of("other", 99)));
  EXPECT_EQ(other.text, alone);
  EXPECT_EQ(other.usage.preemptions, 0);
  int preemptions = 0;
  for (const Channel& channel : crowd) {
    const auto one = End(*channel);
    EXPECT_EQ(one.reason, FinishReason::kLength);
    preemptions += one.usage.preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace thermocline
