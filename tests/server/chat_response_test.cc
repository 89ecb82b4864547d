#include "server/openai/chat_response.h"

#include <gtest/gtest.h>

namespace thermocline::openai {
namespace {

Usage MakeUsage() {
  return {.prompt_tokens = 30,
          .cached_tokens = 10,
          .completion_tokens = 9,
          .prefill_s = 0.5,
          .decode_s = 2,
          .spec = {.drafts = 4,
                   .draft_tokens = 12,
                   .accepted_tokens = 7,
                   .branch_hits = 3,
                   .branch_misses = 1,
                   .wait_s = 0.25}};
}

// The JSON of an event.
Json Parsed(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n")) << event;
  return *base::ParseJson(event.substr(6, event.size() - 8));
}

double Timing(const Json& answer, const char* name) {
  return answer.Find("timings")->Find(name)->as_double();
}

TEST(ChatResponse, TimingsAreThoseOfTheAnswer) {
  const Json answer =
      WholeAnswer(MakeAnswerHead("m", false), "x", FinishReason::kStop, MakeUsage());
  EXPECT_EQ(Timing(answer, "cache_n"), 10);
  EXPECT_EQ(Timing(answer, "prompt_n"), 20);
  EXPECT_EQ(Timing(answer, "prompt_ms"), 500);
  EXPECT_EQ(Timing(answer, "prompt_per_second"), 40);
  EXPECT_EQ(Timing(answer, "predicted_n"), 9);
  EXPECT_EQ(Timing(answer, "predicted_ms"), 2000);
  EXPECT_EQ(Timing(answer, "predicted_per_second"), 4);  // the first came from the prompt
  EXPECT_EQ(Timing(answer, "draft_n"), 12);
  EXPECT_EQ(Timing(answer, "draft_n_accepted"), 7);
  EXPECT_EQ(Timing(answer, "drafts"), 4);
  EXPECT_EQ(Timing(answer, "branch_hits"), 3);
  EXPECT_EQ(Timing(answer, "branch_misses"), 1);
  EXPECT_EQ(Timing(answer, "draft_wait_ms"), 250);
}

TEST(ChatResponse, TimesOfAnEmptyAnswerAreNumbers) {
  const Json answer = WholeAnswer(MakeAnswerHead("m", false), "", FinishReason::kStop, {});
  EXPECT_EQ(Timing(answer, "prompt_per_second"), 0);
  EXPECT_EQ(Timing(answer, "predicted_per_second"), 0);
}

TEST(ChatResponse, TheLastChunkOfAStreamHasTheTimings) {
  const AnswerHead plain = MakeAnswerHead("m", false), with_usage = MakeAnswerHead("m", true);
  const Json finish = Parsed(FinishEvent(plain, FinishReason::kStop, MakeUsage()));
  EXPECT_EQ(Timing(finish, "draft_n"), 12);
  EXPECT_EQ(finish.FindRaw("usage"), nullptr);
  const Json before_usage = Parsed(FinishEvent(with_usage, FinishReason::kStop, MakeUsage()));
  EXPECT_EQ(before_usage.FindRaw("timings"), nullptr);
  ASSERT_NE(before_usage.FindRaw("usage"), nullptr);
  EXPECT_TRUE(before_usage.FindRaw("usage")->is_null());
  const Json usage = Parsed(UsageEvent(with_usage, MakeUsage()));
  EXPECT_EQ(Timing(usage, "draft_n"), 12);
  EXPECT_EQ(usage.Find("usage")->Find("completion_tokens")->as_int(), 9);
  EXPECT_EQ(Parsed(ContentEvent(plain, "x")).FindRaw("timings"), nullptr);
}

}  // namespace
}  // namespace thermocline::openai
