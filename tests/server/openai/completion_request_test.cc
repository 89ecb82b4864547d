#include "server/openai/completion_request.h"

#include <gtest/gtest.h>

#include "server/protocol/error.h"

namespace thermocline::openai {
namespace {

auto ParseBody(const std::string& body) { return ParseCompletionRequest(body, {}); }

using Ids = std::vector<int>;
using TextOrIds = std::variant<std::string, Ids>;
std::vector<TextOrIds> Prompts(const std::string& json) {
  const auto parsed = ParseBody(R"({"prompt":)" + json + "}");
  std::vector<TextOrIds> prompts;
  for (const server::Prompt& prompt : parsed->generation.prompts) {
    const auto* ids = std::get_if<Ids>(&prompt);
    prompts.push_back(ids != nullptr ? TextOrIds(*ids) : std::get<std::string>(prompt));
  }
  return prompts;
}

TEST(CompletionRequest, PromptsAreTextsOrTokensOrListsOfEither) {
  EXPECT_EQ(Prompts(R"("a")"), std::vector<TextOrIds>{"a"});
  EXPECT_EQ(Prompts(R"("")"), std::vector<TextOrIds>{""});
  EXPECT_EQ(Prompts("[1,2.0]"), (std::vector<TextOrIds>{Ids{1, 2}}));
  EXPECT_EQ(Prompts(R"(["a","b"])"), (std::vector<TextOrIds>{"a", "b"}));
  EXPECT_EQ(Prompts(R"([[1],"b",[2,3]])"), (std::vector<TextOrIds>{Ids{1}, "b", Ids{2, 3}}));
}

TEST(CompletionRequest, EchoAndLogprobs) {
  const auto plain = *ParseBody(R"({"prompt":"a","logprobs":5,"n":2})");
  EXPECT_EQ(plain.generation.request.logprobs, 5);
  EXPECT_FALSE(plain.generation.request.prompt_logprobs);
  EXPECT_EQ(plain.generation.choices, 2);
  const auto scored = *ParseBody(
      R"({"prompt":"a","echo":true,"logprobs":0,"max_tokens":0,"suffix":null,"best_of":1})");
  EXPECT_TRUE(scored.echo && scored.generation.request.prompt_logprobs &&
              scored.generation.request.prompt_only);
  EXPECT_EQ(ParseBody(R"({"prompt":"a"})")->generation.request.logprobs, -1);
}

TEST(CompletionRequest, BadInputIsA400ThatNamesTheField) {
  std::string prompts = "[";
  for (int i = 0; i < 65; ++i) prompts += i == 0 ? "\"a\"" : ",\"a\"";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "prompt"},
      {R"({"prompt":null})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":[[]]})", "prompt"},
      {R"({"prompt":[-1]})", "prompt"},
      {R"({"prompt":[1.5]})", "prompt"},
      {R"({"prompt":[99999999999]})", "prompt"},
      {R"({"prompt":[1,"a"]})", "prompt"},
      {R"({"prompt":{"a":1}})", "prompt"},
      {R"({"prompt":)" + prompts + "]}", "prompt"},
      {R"({"prompt":["a","a","a","a","a","a","a","a","a"],"n":8})", "n"},
      {R"({"prompt":[1],"suffix":"b"})", "suffix"},
      {R"({"prompt":"a","suffix":"b","echo":true})", "suffix"},
      {R"({"prompt":"a","best_of":2})", "best_of"},
      {R"({"prompt":"a","logprobs":6})", "logprobs"},
      {R"({"prompt":"a","logprobs":true})", "logprobs"},
      {R"({"prompt":"a","echo":1})", "echo"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":-2})", "max_tokens"}};
  for (const auto& [body, param] : cases) {
    const auto parsed = ParseBody(body);
    ASSERT_FALSE(parsed.ok()) << body;
    EXPECT_EQ(protocol::FromStatus(parsed.status()).http_status, 400) << body;
    EXPECT_EQ(protocol::FromStatus(parsed.status()).param, param) << body;
  }
}

}  // namespace
}  // namespace thermocline::openai
