#include "server/openai/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace thermocline::openai {
namespace {

// Ids: 0 "<s>" (control), 1 "Hi", 2 " x", 3 and 4 the halves of "\u00e9", 5 "z".
std::unique_ptr<text::Tokenizer> MakeTokenizer() {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kSentencePiece;
  v.tokens = {"<s>", "Hi", "\u2581x", "<0xC3>", "<0xA9>", "z"};
  v.scores.assign(v.tokens.size(), 0);
  v.types = {model::TokenType::kControl, model::TokenType::kNormal, model::TokenType::kNormal,
             model::TokenType::kByte,    model::TokenType::kByte,   model::TokenType::kNormal};
  v.bos = 0;
  auto tokenizer = text::Tokenizer::Create(v);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *std::move(tokenizer);
}

// Parses the JSON as a client would.
Json Read(const Json& written) {
  auto read = base::ParseJson(written.Dump());
  EXPECT_TRUE(read.ok()) << read.status().message();
  return *std::move(read);
}

TEST(Logprobs, OfAChatHaveBytesAndOthers) {
  const auto tokenizer = MakeTokenizer();
  const std::vector<TokenChannel::Score> scores = {{3, -0.5F},     {3, -0.5F},  {1, -1.5F},
                                                   {5, -INFINITY}, {1, -0.25F}, {2, -2.0F}};
  const Json json = Read(ChatLogprobs(*tokenizer, 2, scores));
  const Json::Array& content = json.Find("content")->as_array();
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0].Find("token")->as_string(), "\uFFFD");
  EXPECT_EQ(content[0].Find("bytes")->Dump(), "[195]");
  EXPECT_EQ(content[0].Find("logprob")->as_double(), -0.5);
  ASSERT_EQ(content[0].Find("top_logprobs")->as_array().size(), 2U);
  EXPECT_EQ(content[0].Find("top_logprobs")->as_array()[1].Find("token")->as_string(), "Hi");
  EXPECT_EQ(content[1].Find("logprob")->as_double(), -9999);
  EXPECT_TRUE(json.FindRaw("refusal")->is_null());
  const Json alone =
      Read(ChatLogprobs(*tokenizer, 0, std::vector<TokenChannel::Score>{{1, -1}, {2, -2}}));
  ASSERT_EQ(alone.Find("content")->as_array().size(), 2U);
  EXPECT_TRUE(alone.Find("content")->as_array()[1].Find("top_logprobs")->as_array().empty());
}

TEST(Logprobs, OfACompletionCountCharactersOnFromPartToPart) {
  const auto tokenizer = MakeTokenizer();
  LegacyLogprobs logprobs(*tokenizer, 1, false);
  logprobs.AddFirst(0, false);
  logprobs.Add(std::vector<TokenChannel::Score>{{1, -1}, {5, -0.5F}, {3, -2}, {3, -2}});
  const Json first = Read(logprobs.Take());
  EXPECT_EQ(first.Find("tokens")->Dump(), R"(["<s>","Hi","bytes:\\xc3"])");
  EXPECT_EQ(first.Find("text_offset")->Dump(), "[0,0,2]");
  EXPECT_EQ(first.Find("token_logprobs")->Dump(), "[null,-1.0,-2.0]");
  EXPECT_EQ(first.Find("top_logprobs")->as_array()[1].Find("z")->as_double(), -0.5);
  EXPECT_EQ(first.Find("top_logprobs")->as_array()[1].Find("Hi")->as_double(), -1);
  EXPECT_EQ(first.Find("top_logprobs")->as_array()[2].as_object().size(), 1U);
  logprobs.Add(std::vector<TokenChannel::Score>{{4, -1}, {4, -1}, {5, -1}, {5, -1}});
  EXPECT_EQ(logprobs.Take().Find("text_offset")->Dump(), "[3,3]");  // the character has begun
  EXPECT_EQ(logprobs.Take().Find("tokens")->Dump(), "[]");
}

}  // namespace
}  // namespace thermocline::openai
