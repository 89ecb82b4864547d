#include "engine/sched/request_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace thermocline::sched {
namespace {

using std::chrono::milliseconds;

Job MakeJob(std::size_t prompt) {
  Job job{.request = {},
          .channel = std::make_shared<TokenChannel>(std::function<void()>()),
          .submitted = SteadyClock::now()};
  job.request.prompt.assign(prompt, 1);
  return job;
}

TEST(RequestQueue, BoundsRequests) {
  RequestQueue queue({.requests = 2, .tokens = 0});
  EXPECT_TRUE(queue.Reserve(1, 5).ok());
  EXPECT_EQ(queue.Reserve(2, 5).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.Reserve(1, 5).ok());
  const Status full = queue.Reserve(1, 5);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("2 of at most 2"), std::string::npos) << full.message();
  queue.Unreserve(1, 5);
  EXPECT_TRUE(queue.Reserve(1, 5).ok());
}

TEST(RequestQueue, BoundsPromptTokensButLetsOneThrough) {
  RequestQueue queue({.requests = 10, .tokens = 100});
  EXPECT_TRUE(queue.Reserve(1, 500).ok());
  EXPECT_EQ(queue.Reserve(1, 1).code(), StatusCode::kResourceExhausted);
  queue.Push(MakeJob(40), 500);  // the exact number replaces an estimate
  EXPECT_EQ(queue.counts().tokens, 40);
  EXPECT_TRUE(queue.Reserve(2, 30).ok());
  EXPECT_EQ(queue.Reserve(1, 1).code(), StatusCode::kResourceExhausted);
}

TEST(RequestQueue, NobodyIsKeptOutByOneTenant) {
  RequestQueue queue({.requests = 2, .tokens = 100});
  EXPECT_TRUE(queue.Reserve(2, 5000, "alice").ok());
  EXPECT_FALSE(queue.Reserve(1, 1, "alice").ok());
  EXPECT_TRUE(queue.Reserve(1, 20, "bob").ok());
  EXPECT_FALSE(queue.Reserve(1, 20, "bob").ok());
  EXPECT_TRUE(queue.Reserve(1, 20, "carol").ok());
  EXPECT_FALSE(queue.Reserve(1, 20, "dave").ok());  // twice the limit of waiting requests
  queue.Unreserve(1, 20, "bob");
  Job job = MakeJob(20);
  job.request.tenant = "carol";
  queue.Push(std::move(job), 20);
  EXPECT_FALSE(queue.Reserve(1, 20, "carol").ok());
  EXPECT_TRUE(queue.Pop(1).has_value());
  EXPECT_TRUE(queue.Reserve(1, 20, "carol").ok());
}

TEST(RequestQueue, TakesByNumber) {
  RequestQueue queue({.requests = 4, .tokens = 0});
  for (std::size_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(queue.Reserve(1, 9).ok());
    queue.Push(MakeJob(i), 9);
  }
  std::vector<std::uint64_t> numbers;
  queue.ForEach([&](const Job& job) { numbers.push_back(job.number); });
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(queue.Pop(2)->request.prompt.size(), 2U);
  EXPECT_FALSE(queue.Pop(2).has_value());
  EXPECT_EQ(queue.counts().tokens, 4);
  EXPECT_EQ(queue.counts().places(), 2);
}

TEST(RequestQueue, ACancelledRequestEndsAtOnceWithItsCause) {
  RequestQueue queue({.requests = 1, .tokens = 0});
  ASSERT_TRUE(queue.Reserve(1, 3).ok());
  Job job = MakeJob(3);
  const auto channel = job.channel;
  channel->SetOnRoom([&queue, self = channel.get()] { queue.NotifyScheduler(*self); });
  queue.Push(std::move(job), 3);
  channel->Cancel(CancelCause::kApi);
  TokenChannel::Update update;
  ASSERT_TRUE(channel->TakeUpdate(update));
  EXPECT_EQ(update.reason, FinishReason::kCancelled);
  EXPECT_EQ(update.usage.cause, CancelCause::kApi);
  EXPECT_EQ(update.usage.phase, Phase::kQueued);
  EXPECT_EQ(queue.counts().places(), 0);
  EXPECT_EQ(queue.counts().tokens, 0);
}

TEST(RequestQueue, ALateRequestEndsWithItsDeadline) {
  RequestQueue queue({.requests = 2, .tokens = 0});
  ASSERT_TRUE(queue.Reserve(2, 3).ok());
  Job late = MakeJob(3), waits = MakeJob(3);
  const auto channel = late.channel;
  late.request.deadline = late.submitted + milliseconds(5);
  queue.Push(std::move(late), 3);
  queue.Push(std::move(waits), 3);
  queue.ExpireLate(SteadyClock::now() - milliseconds(100));
  EXPECT_EQ(queue.counts().places(), 2);
  queue.ExpireLate(SteadyClock::now() + milliseconds(5));
  EXPECT_EQ(queue.counts().places(), 1);
  TokenChannel::Update update;
  ASSERT_TRUE(channel->TakeUpdate(update));
  EXPECT_EQ(update.reason, FinishReason::kError);
  EXPECT_EQ(update.error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(update.error.message().find("in the queue"), std::string::npos);
}

TEST(RequestQueue, WaitSeesWhatCameBefore) {
  RequestQueue queue({.requests = 2, .tokens = 0});
  ASSERT_TRUE(queue.Reserve(1, 1).ok());
  queue.Push(MakeJob(1), 1);
  queue.Wait({});  // returns, since there is news
  EXPECT_TRUE(queue.TakeNotification());
  std::thread closer([&] { queue.Close(); });
  queue.Wait({});
  closer.join();
  EXPECT_TRUE(queue.closed());
}

}  // namespace
}  // namespace thermocline::sched
