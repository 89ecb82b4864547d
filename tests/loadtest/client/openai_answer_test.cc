#include "loadtest/client/openai_answer.h"

#include <gtest/gtest.h>

#include "loadtest/client/openai_body.h"
#include "loadtest/client/stream_chunk.h"

namespace thermocline::loadtest {
namespace {

constexpr const char* kStream = "text/event-stream; charset=utf-8";

struct Piece {
  double time;
  std::string bytes;
};

Answer Read(const std::vector<Piece>& pieces, int status = 200, const char* type = kStream,
            const Request& request = {}, const Status& end = OkStatus()) {
  OpenAiAnswer answer(request, 0.5, 1);
  answer.OnHeader(1.5, status, type);
  for (const Piece& piece : pieces) answer.OnBody(piece.time, piece.bytes);
  return answer.Finish(9, end);
}

std::string Delta(const std::string& text) {
  return "data: {\"choices\":[{\"delta\":{\"content\":\"" + text + "\"}}]}\n\n";
}
const std::string kRole =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const std::string kStop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const std::string kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
const std::string kDone = "data: [DONE]\n\n";

TEST(OpenAiAnswerTest, TheRoleIsNoContentAndTokensAreTheUsages) {
  const Answer answer = Read(
      {{2, kRole}, {3, Delta("a")}, {4, Delta("b") + Delta("c")}, {5, kStop + kUsage + kDone}});
  EXPECT_EQ(answer.outcome, Outcome::kOk) << answer.error;
  EXPECT_EQ(answer.t_header, 1.5);
  EXPECT_EQ(answer.t_first_byte, 2);
  EXPECT_EQ(answer.t_first_content, 3);
  EXPECT_EQ(answer.t_chunks, (std::vector<double>{3, 4, 4}));
  EXPECT_EQ(answer.t_last, 5);
  EXPECT_EQ(answer.chunks, 3);
  EXPECT_EQ(answer.tokens(), 5);
  EXPECT_EQ(answer.prompt_tokens, 9);
  EXPECT_EQ(answer.cached_tokens, 4);
  EXPECT_EQ(answer.finish_reason, "stop");
}

TEST(OpenAiAnswerTest, OtherServersHabits) {
  // No usage, no [DONE], null content, CR LF, reasoning, completions.
  EXPECT_EQ(Read({{2, Delta("a") + kStop}}).outcome, Outcome::kOk);
  EXPECT_EQ(Read({{2, Delta("a") + kDone}}).outcome, Outcome::kOk);
  EXPECT_EQ(Read({{2, Delta("a") + kStop}}).tokens(), 1);
  const Answer reasoning = Read(
      {{2,
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"x\",\"content\":null}}]}\r\n\r\n"},
       {3, kDone}});
  EXPECT_EQ(reasoning.outcome, Outcome::kOk) << reasoning.error;
  EXPECT_EQ(reasoning.t_first_content, 2);
  const Answer text =
      Read({{2, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"length\"}]}\n\n"}});
  EXPECT_EQ(text.chunks, 1);
  EXPECT_EQ(text.finish_reason, "length");
}

TEST(OpenAiAnswerTest, FailuresAreTold) {
  const Answer early = Read({{2, Delta("a")}});
  EXPECT_EQ(early.outcome, Outcome::kError);
  EXPECT_NE(early.error.find("[DONE]"), std::string::npos);
  const Answer dropped = Read({{2, Delta("a")}}, 200, kStream, {}, base::Unavailable("gone"));
  EXPECT_EQ(dropped.outcome, Outcome::kError);
  EXPECT_EQ(dropped.t_last, 9);
  const Answer error = Read({{2, "data: {\"error\":{\"message\":\"bad <b>\"}}\n\n"}});
  EXPECT_EQ(error.error, "bad <b>");
  EXPECT_EQ(Read({{2, "data: owl\n\n"}}).outcome, Outcome::kError);
  EXPECT_EQ(Read({{2, "{}"}}, 200, "application/json").outcome, Outcome::kError);
  EXPECT_EQ(Read({{2, "slow down"}}, 429, "text/plain").outcome, Outcome::kRateLimited);
  EXPECT_EQ(Read({}, 503, "text/plain").outcome, Outcome::kUnavailable);
  const Answer refused = Read({{2, "{\"error\":{\"message\":\"no\"}}"}}, 400, "application/json");
  EXPECT_EQ(refused.outcome, Outcome::kError);
  EXPECT_EQ(refused.error, "HTTP 400: no");
  const Answer timeout =
      Read({{2, Delta("a")}}, 200, kStream, {}, base::DeadlineExceeded("too late"));
  EXPECT_EQ(timeout.outcome, Outcome::kTimeout);
}

TEST(OpenAiAnswerTest, AMalformedRequestShouldBeRefused) {
  const Request request{.fault = Fault::kNoInput};
  EXPECT_EQ(Read({}, 400, "application/json", request).outcome, Outcome::kRefused);
  EXPECT_EQ(Read({}, 422, "application/json", request).outcome, Outcome::kRefused);
  EXPECT_EQ(Read({}, 500, "application/json", request).outcome, Outcome::kError);
  EXPECT_EQ(Read({{2, Delta("a") + kDone}}, 200, kStream, request).outcome, Outcome::kError);
}

TEST(OpenAiAnswerTest, AClientLeavesBehindItsChunks) {
  OpenAiAnswer answer(Request{.leave_after_chunks = 2}, 0, 0);
  answer.OnHeader(1, 200, kStream);
  answer.OnBody(2, kRole + Delta("a"));
  EXPECT_FALSE(answer.should_disconnect());
  answer.OnBody(3, Delta("b"));
  EXPECT_TRUE(answer.should_disconnect());
  EXPECT_EQ(answer.Finish(4, base::Cancelled("left")).outcome, Outcome::kCancelled);
}

// Any bytes from a server, cut anywhere.
TEST(OpenAiAnswerTest, OddJsonNeverHarms) {
  for (const char* data :
       {"null", "[]", "{}", "1e999", "{\"choices\":3}", "{\"choices\":[]}", "{\"choices\":[null]}",
        "{\"choices\":[{\"delta\":7}]}", "{\"choices\":[{\"delta\":{\"content\":7}}]}",
        "{\"usage\":[]}", "{\"usage\":{\"completion_tokens\":-5}}",
        "{\"usage\":{\"completion_tokens\":1.5}}",
        "{\"usage\":{\"completion_tokens\":99999999999999999999}}", "{\"error\":null,\"usage\":{}}",
        "{\"error\":[[[]]]}", "{\"choices\":[{\"delta\":{\"content\":\"\xFF\xFE\"}}]}"}) {
    const StreamChunk chunk = ParseStreamChunk(data);
    EXPECT_FALSE(chunk.output_tokens.has_value()) << data;
    Read({{2, std::string("data: ") + data + "\n\n" + kDone}});
  }
  EXPECT_TRUE(ParseStreamChunk("{\"choices\":[{\"delta\":{\"content\":\"\xFF\"}}]}").content);
}

TEST(OpenAiAnswerTest, ErrorTextsAreOneShortLine) {
  EXPECT_EQ(ErrorText("{\"detail\": \"no\\nway\"}"), "no way");
  EXPECT_EQ(ErrorText("{\"error\": \"no\"}"), "no");
  EXPECT_LE(ErrorText(std::string(10000, 'x')).size(), kErrorBytesMax + 3);
  EXPECT_EQ(ErrorText("a\x1b[31mb"), "a [31mb");
}

TEST(OpenAiBodyTest, FaultsMakeDifferentBodies) {
  const Request good{.messages = {{.role = "user", .content = "Hello"}}, .max_tokens = 3};
  const BodyOptions options{.model = "owl", .temperature = 0.5, .extra = "{\"top_k\": 4}"};
  const auto json = base::ParseJson(RequestBody(good, options));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->Find("max_tokens")->as_int(), 3);
  EXPECT_EQ(json->Find("top_k")->as_int(), 4);
  EXPECT_EQ(json->Find("messages")->as_array()[0].Find("content")->as_string(), "Hello");
  for (int i = 1; i < kNumFaults; ++i) {
    Request bad = good;
    bad.fault = static_cast<Fault>(i);
    for (const Route route : {Route::kChat, Route::kCompletions})
      EXPECT_NE(RequestBody(bad, {.route = route}), RequestBody(good, {.route = route}));
  }
}

}  // namespace
}  // namespace thermocline::loadtest
