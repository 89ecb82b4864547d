#include "server/openai/response.h"

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

TEST(Response, TimingsAreThoseOfTheAnswer) {
  const Json answer = WholeAnswer(MakeAnswerHead(true, "m", false), {{.text = "x"}}, MakeUsage());
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

TEST(Response, TimesOfAnEmptyAnswerAreNumbers) {
  const Json answer = WholeAnswer(MakeAnswerHead(true, "m", false), {{}}, {});
  EXPECT_EQ(Timing(answer, "prompt_per_second"), 0);
  EXPECT_EQ(Timing(answer, "predicted_per_second"), 0);
}

TEST(Response, TheLastChunkOfAStreamHasTheTimings) {
  const AnswerHead plain = MakeAnswerHead(true, "m", false),
                   with_usage = MakeAnswerHead(true, "m", true);
  const Usage usage_of_all = MakeUsage();
  const Json finish = Parsed(FinishEvent(plain, 0, FinishReason::kStop, &usage_of_all));
  EXPECT_EQ(Timing(finish, "draft_n"), 12);
  EXPECT_EQ(finish.FindRaw("usage"), nullptr);
  const Json before_usage = Parsed(FinishEvent(with_usage, 0, FinishReason::kStop));
  EXPECT_EQ(before_usage.FindRaw("timings"), nullptr);
  ASSERT_NE(before_usage.FindRaw("usage"), nullptr);
  EXPECT_TRUE(before_usage.FindRaw("usage")->is_null());
  const Json usage = Parsed(UsageEvent(with_usage, MakeUsage()));
  EXPECT_EQ(Timing(usage, "draft_n"), 12);
  EXPECT_EQ(usage.Find("usage")->Find("completion_tokens")->as_int(), 9);
  EXPECT_EQ(Parsed(ContentEvent(plain, 0, "x")).FindRaw("timings"), nullptr);
}

TEST(Response, ChoicesAreInOrder) {
  const Json answer =
      WholeAnswer(MakeAnswerHead(false, "m", false),
                  {{.text = "a"}, {.text = "b", .reason = FinishReason::kLength}}, MakeUsage());
  const Json::Array& choices = answer.Find("choices")->as_array();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[1].Find("index")->as_int(), 1);
  EXPECT_EQ(choices[1].Find("text")->as_string(), "b");
  EXPECT_EQ(choices[1].Find("finish_reason")->as_string(), "length");
  EXPECT_EQ(answer.Find("object")->as_string(), "text_completion");
  EXPECT_TRUE(answer.Find("id")->as_string().starts_with("cmpl-"));
}

TEST(Response, OnlyProgressHasNoChoices) {
  const AnswerHead head = MakeAnswerHead(true, "m", false);
  const Json progress =
      Parsed(ProgressEvent(head, {.index = 0, .total = 9, .cached = 2, .read = 5}));
  EXPECT_TRUE(progress.Find("choices")->as_array().empty());
  EXPECT_EQ(progress.Find("prompt_progress")->Find("processed")->as_int(), 5);
  for (const std::string& event : {RoleEvent(head, 1), ContentEvent(head, 1, "x"),
                                   FinishEvent(head, 1, FinishReason::kStop)}) {
    ASSERT_EQ(Parsed(event).Find("choices")->as_array().size(), 1U);
    EXPECT_EQ(Parsed(event).Find("choices")->as_array()[0].Find("index")->as_int(), 1);
  }
}

}  // namespace
}  // namespace thermocline::openai
