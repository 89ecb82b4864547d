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

// A stream of choices with one text each.
class PlainAnswer final : public ChoicesAnswer {
 public:
  using ChoicesAnswer::ChoicesAnswer;
  std::string OnStart(int choice) override { return Chunk(choice, "begin"); }
  std::string OnDelta(const server::ChoiceDelta& delta) override {
    texts_.push_back(delta.parts[0].text);
    return Chunk(delta.choice, delta.parts[0].text);
  }

 protected:
  Json EmptyDelta() const override { return ""; }
  std::vector<Json::Object> WholeChoices() override {
    std::vector<Json::Object> out;
    for (const std::string& text : texts_) out.push_back({{"text", text}});
    return out;
  }

 private:
  std::vector<std::string> texts_;
};

std::string TextDelta(PlainAnswer& answer, int choice, const std::string& text) {
  const chat::MessagePart part{.text = text};
  return answer.OnDelta({.choice = choice, .parts = {&part, 1}});
}

// A complete response of one ended choice.
Json WholeOf(const Usage& usage) {
  PlainAnswer answer(MakeAnswerHead(true, "m", false));
  TextDelta(answer, 0, "x");
  answer.OnEnd({.choice = 0, .usage = usage, .last = true, .total = usage});
  return answer.FullResponse(usage);
}

double Timing(const Json& answer, const char* name) {
  return answer.Find("timings")->Find(name)->as_double();
}

TEST(Response, TimingsAreThoseOfTheAnswer) {
  const Json answer = WholeOf(MakeUsage());
  EXPECT_EQ(Timing(answer, "cache_n"), 10);
  EXPECT_EQ(Timing(answer, "prompt_n"), 20);
  EXPECT_EQ(Timing(answer, "prompt_ms"), 500);
  EXPECT_EQ(Timing(answer, "prompt_per_second"), 40);
  EXPECT_EQ(Timing(answer, "predicted_n"), 9);
  EXPECT_EQ(Timing(answer, "predicted_ms"), 2000);
  EXPECT_EQ(Timing(answer, "predicted_per_second"), 4);  // the first came from prefill
  EXPECT_EQ(Timing(answer, "draft_n"), 12);
  EXPECT_EQ(Timing(answer, "draft_n_accepted"), 7);
  EXPECT_EQ(Timing(answer, "drafts"), 4);
  EXPECT_EQ(Timing(answer, "branch_hits"), 3);
  EXPECT_EQ(Timing(answer, "branch_misses"), 1);
  EXPECT_EQ(Timing(answer, "draft_wait_ms"), 250);
}

TEST(Response, TimesOfAnEmptyAnswerAreNumbers) {
  const Json answer = WholeOf({});
  EXPECT_EQ(Timing(answer, "prompt_per_second"), 0);
  EXPECT_EQ(Timing(answer, "predicted_per_second"), 0);
}

// The events of a stream's end.
std::vector<Json> EndOf(bool include_usage) {
  PlainAnswer answer(MakeAnswerHead(true, "m", include_usage));
  std::string events =
      answer.OnEnd({.choice = 0, .usage = MakeUsage(), .last = true, .total = MakeUsage()});
  EXPECT_TRUE(events.ends_with(kDoneEvent));
  events.resize(events.size() - std::string_view(kDoneEvent).size());
  std::vector<Json> out;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = events.find("\n\n", at) + 2;
    out.push_back(Parsed(events.substr(at, end - at)));
    at = end;
  }
  return out;
}

TEST(Response, TheLastChunkOfAStreamHasTheTimings) {
  const std::vector<Json> plain = EndOf(false), with_usage = EndOf(true);
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(Timing(plain[0], "draft_n"), 12);
  EXPECT_EQ(plain[0].FindRaw("usage"), nullptr);
  ASSERT_EQ(with_usage.size(), 2U);
  EXPECT_EQ(with_usage[0].FindRaw("timings"), nullptr);
  ASSERT_NE(with_usage[0].FindRaw("usage"), nullptr);
  EXPECT_TRUE(with_usage[0].FindRaw("usage")->is_null());
  EXPECT_EQ(Timing(with_usage[1], "draft_n"), 12);
  EXPECT_EQ(with_usage[1].Find("usage")->Find("completion_tokens")->as_int(), 9);
  PlainAnswer answer(MakeAnswerHead(true, "m", false));
  EXPECT_EQ(Parsed(TextDelta(answer, 0, "x")).FindRaw("timings"), nullptr);
}

TEST(Response, ChoicesAreInOrder) {
  PlainAnswer plain(MakeAnswerHead(false, "m", false));
  TextDelta(plain, 0, "a");
  TextDelta(plain, 1, "b");
  plain.OnEnd({.choice = 1, .reason = FinishReason::kLength});
  plain.OnEnd({.choice = 0, .last = true});
  const Json answer = plain.FullResponse(MakeUsage());
  const Json::Array& choices = answer.Find("choices")->as_array();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[1].Find("index")->as_int(), 1);
  EXPECT_EQ(choices[1].Find("text")->as_string(), "b");
  EXPECT_EQ(choices[1].Find("finish_reason")->as_string(), "length");
  EXPECT_EQ(answer.Find("object")->as_string(), "text_completion");
  EXPECT_TRUE(answer.Find("id")->as_string().starts_with("cmpl-"));
}

TEST(Response, OnlyProgressHasNoChoices) {
  PlainAnswer answer(MakeAnswerHead(true, "m", false));
  const Json progress = Parsed(answer.Progress({.choice = 0, .total = 9, .cached = 2, .read = 5}));
  EXPECT_TRUE(progress.Find("choices")->as_array().empty());
  EXPECT_EQ(progress.Find("prompt_progress")->Find("processed")->as_int(), 5);
  for (const std::string& event :
       {answer.OnStart(1), TextDelta(answer, 1, "x"), answer.OnEnd({.choice = 1})}) {
    ASSERT_EQ(Parsed(event).Find("choices")->as_array().size(), 1U);
    EXPECT_EQ(Parsed(event).Find("choices")->as_array()[0].Find("index")->as_int(), 1);
  }
}

}  // namespace
}  // namespace thermocline::openai
