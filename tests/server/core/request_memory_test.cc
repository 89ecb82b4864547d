#include "server/core/request_memory.h"

#include <gtest/gtest.h>

#include <optional>

namespace thermocline::server {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

RequestSizes SizesOf(std::int64_t budget, std::int64_t asked) {
  ServerConfig config;
  config.model.memory.budget_bytes = budget;
  config.request_memory_bytes = asked;
  return RequestSizesOf(config);
}

TEST(RequestMemory, IsAnEighthOfTheBudgetAtMostAnd24MiBAtLeast) {
  EXPECT_EQ(SizesOf(8LL << 30, 256 << 20).total(), 256 * kMiB);
  EXPECT_EQ(SizesOf(1LL << 30, 256 << 20).total(), 128 * kMiB);
  EXPECT_EQ(SizesOf(64LL << 20, 256 << 20).total(), 24 * kMiB);
  EXPECT_EQ(SizesOf(8LL << 30, 4 << 20).total(), 4 * kMiB);
}

// Two keys with unfinished uploads once kept out all other clients' requests of more than 4 KiB.
TEST(RequestMemory, AQuarterIsForClientsThatHoldLittle) {
  RequestMemory memory(160, 10);
  RequestMemory::Hold ada(memory, "ada"), eve(memory, "eve"), bob(memory, "bob"),
      cleo(memory, "cleo");
  EXPECT_TRUE(ada.Grow(80).ok());
  EXPECT_TRUE(eve.Grow(40).ok());
  EXPECT_FALSE(eve.Grow(41).ok());
  EXPECT_TRUE(bob.Grow(10).ok());
  EXPECT_FALSE(bob.Grow(11).ok());
  EXPECT_TRUE(cleo.Grow(10).ok());
}

// A body that is larger than the whole memory is rejected.
TEST(RequestMemory, LargeBodiesNeverExceedIt) {
  RequestMemory memory(12, 64);
  RequestMemory::Hold ada(memory, "ada");
  EXPECT_TRUE(ada.Grow(12).ok());
  EXPECT_FALSE(ada.Grow(13).ok());
}

TEST(RequestMemory, WhatOthersFreeAddsUp) {
  RequestMemory memory(100 * kMiB, kMiB);
  memory.CountFreed(3 * kMiB);
  EXPECT_FALSE(memory.TakeTrimHint());
  memory.CountFreed(kMiB);
  EXPECT_TRUE(memory.TakeTrimHint());
  memory.CountFreed(3 * kMiB);
  EXPECT_FALSE(memory.TakeTrimHint());
}

TEST(RequestMemory, OneClientHoldsHalfAndAllTogetherNoMoreThanThereIs) {
  RequestMemory memory(100, 10);
  RequestMemory::Hold ada(memory, "ada"), ada_too(memory, "ada"), bob(memory, "bob"),
      eve(memory, "eve");
  EXPECT_TRUE(ada.Grow(30).ok());
  EXPECT_TRUE(ada.Grow(40).ok());
  const Status more = ada_too.Grow(11);
  EXPECT_EQ(more.reason(), Reason::kRequestMemory);
  EXPECT_NE(more.message().find("server.request_memory_mib"), std::string::npos);
  EXPECT_TRUE(ada_too.Grow(10).ok());
  EXPECT_TRUE(bob.Grow(25).ok());
  EXPECT_FALSE(eve.Grow(7).ok());
  EXPECT_TRUE(bob.Grow(0).ok());
  EXPECT_TRUE(eve.Grow(7).ok());
  EXPECT_EQ(memory.held(), 57u);
}

TEST(RequestMemory, AClientHoldsOneBodyInAnyCase) {
  RequestMemory memory(100, 90);
  RequestMemory::Hold ada(memory, "ada");
  EXPECT_TRUE(ada.Grow(90).ok());
  EXPECT_FALSE(ada.Grow(91).ok());
}

// A client that does not read its answers keeps out its own bodies, not others'.
TEST(RequestMemory, AnswersCountForTheirClientAlone) {
  RequestMemory memory(100, 10);
  RequestMemory::Hold own(memory, "ada"), body(memory, "bob");
  {
    RequestMemory::Hold answer(memory, "ada");
    answer.Force(1000);
    EXPECT_EQ(memory.held(), 0u);
    EXPECT_FALSE(own.Grow(1).ok());
    EXPECT_TRUE(body.Grow(50).ok());
  }
  EXPECT_TRUE(own.Grow(1).ok());
  EXPECT_EQ(memory.held(), 51u);
}

TEST(RequestMemory, TheHeapIsGivenBackOnceAfterMuchWasHeld) {
  RequestMemory memory(100 * kMiB, kMiB);
  EXPECT_FALSE(memory.TakeTrimHint());
  {
    RequestMemory::Hold body(memory, "ada");
    EXPECT_TRUE(body.Grow(8 * kMiB).ok());
    EXPECT_FALSE(memory.TakeTrimHint());
  }
  EXPECT_TRUE(memory.TakeTrimHint());
  EXPECT_FALSE(memory.TakeTrimHint());
}

std::string Repeated(const std::string& what, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += what;
  return out;
}

// The check for room and the allocation are one step, since two answers may be ready at once.
TEST(RequestMemory, ALargeAnswerWaitsForThoseOfItsClient) {
  RequestMemory memory(100, 10);
  std::optional<RequestMemory::Hold> first(std::in_place, memory, "a");
  RequestMemory::Hold second(memory, "a"), other(memory, "b"), third(memory, "c");
  EXPECT_TRUE(first->ReserveForAnswer(1000)) << "a client's first one, however large";
  EXPECT_FALSE(second.ReserveForAnswer(1));
  EXPECT_TRUE(other.ReserveForAnswer(1)) << "of another client";
  first.reset();
  EXPECT_TRUE(second.ReserveForAnswer(49));
  EXPECT_TRUE(third.ReserveForAnswer(50));
  RequestMemory::Hold more(memory, "a");
  EXPECT_FALSE(more.ReserveForAnswer(1)) << "all clients' are enough";
  second.Force(0);
  EXPECT_TRUE(more.ReserveForAnswer(1));
}

// Texts cost their copies, values their parsed form, words without an end the memory of merging.
TEST(BodyCost, CountsWhatIsMadeOfABody) {
  const auto per_byte = [](const std::string& body) {
    return static_cast<double>(CostOf(body).bytes) / static_cast<double>(body.size());
  };
  constexpr int kTimes = 100'000;
  EXPECT_LT(per_byte("\"" + Repeated("a word, [another]: ", kTimes) + "\""), 6);
  EXPECT_GT(per_byte("[" + Repeated("1,", kTimes) + "1]"), 50);
  EXPECT_GT(per_byte("[" + Repeated("[],", kTimes) + "1]"), 130);
  EXPECT_GT(per_byte("\"" + Repeated("a", kTimes) + "\""), 100);
  EXPECT_GT(per_byte("\"" + Repeated("\\n", kTimes) + "\""), 100);
  EXPECT_GT(per_byte("\"" + Repeated(" ", kTimes) + "\""), 100);
  EXPECT_LT(per_byte("\"" + Repeated("\\\" ,", kTimes) + "\""), 6);
  for (const char* cut_off : {"\"", "\"abc", "\"abc\\", "\"\\", "[\"a\", \"b"})
    EXPECT_GT(CostOf(cut_off).bytes, 0u);
}

TEST(BodyCost, CountsTheMembersOfTheLargestObject) {
  EXPECT_EQ(CostOf(R"({"a":1,"b":{"c":1,"d":2,"e":[{"f:":":"},{}]}})").members, 3u);
  EXPECT_EQ(CostOf(R"(["a:b",1])").members, 0u);
  EXPECT_EQ(CostOf(R"({"a":"{:\":::"})").members, 1u);
  EXPECT_EQ(CostOf("}]:::{\"a\":1").members, 1u);
  EXPECT_EQ(CostOf(std::string(100'000, '[')).members, 0u);
}

// A message may have its text in parts, and a template may put no text between messages.
TEST(BodyCost, TextsOfObjectsMayBeOneWord) {
  const auto bytes = [](const std::string& before, const std::string& text,
                        const std::string& after) {
    std::string body = "[0";
    for (int i = 0; i < 10; ++i) body += "," + before + "\"" + text + "\"" + after;
    return CostOf(body + "]").bytes;
  };
  const std::string endless(60 << 10, 'a'), broken = Repeated("broken text ", 5 << 10);
  EXPECT_GT(bytes(R"({"type":"text","text":)", endless, "}"), 100 * 10 * endless.size());
  EXPECT_GT(bytes(R"({"role":"user","content":)", endless, "}"), 100 * 10 * endless.size());
  EXPECT_LT(bytes("", endless, ""), 6 * 10 * endless.size());
  EXPECT_LT(bytes(R"({"type":"text","text":)", broken, "}"), 6 * 10 * broken.size());
}

// The error names the field.
TEST(BodyCost, NamesTheFieldOfTheLargestObject) {
  const std::string body = R"({"a":{"x":1},"b":[{"c":1,"d":2,"e":3}],"z":0})";
  EXPECT_EQ(CostOf(body).field, "b");
  EXPECT_EQ(CostOf(R"({"a":{"x":1},"b":2})").field, "");
  const Status refused = CheckCost({.members = kMembersMax + 1, .field = "b"}, {.values = 1});
  EXPECT_EQ(refused.field(), "b");
  EXPECT_TRUE(CheckCost({.members = kMembersMax}, {.values = 1}).ok());
}

TEST(BodyCost, MoreThanTheLaneOfLargeRequestsHasIsRefusedForGood) {
  const Status refused = CheckCost({.bytes = 76}, {.bodies = 100, .values = 100});
  EXPECT_EQ(refused.reason(), Reason::kTooLarge);
  EXPECT_NE(refused.message().find("server.request_memory_mib"), std::string::npos);
  EXPECT_TRUE(CheckCost({.bytes = 75}, {.bodies = 100, .values = 100}).ok());
}

}  // namespace
}  // namespace thermocline::server
