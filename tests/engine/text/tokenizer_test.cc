#include "engine/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "engine/text/contains_any.h"
#include "engine/text/detokenizer.h"
#include "engine/text/dry_breakers.h"

namespace thermocline::text {
namespace {

class TidepoolTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    auto file = model::OpenModelFile(SOURCE_DIR "/config/models/tidepool.gguf");
    ASSERT_TRUE(file.ok()) << file.status().message();
    auto tokenizer = Tokenizer::Create((*file)->vocabulary);
    ASSERT_TRUE(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TidepoolTokenizer, TextComesBackWhateverItIs) {
  for (const std::string text : {"Hello, world!", "  two  spaces ", "tabs\tand\nlines\r\n",
                                 "é € 😀 👩‍👩‍👧 مرحبا สวัสดี",
                                 "<0x41> <s> <|end|>", "x"}) {
    EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode(text, {})), text);
  }
}

TEST_F(TidepoolTokenizer, ControlTokensAreParsedOnlyWhenAsked) {
  const std::string text = "<|user|>Hi<|end|>";
  const auto raw = tokenizer_->Encode(text, {.control_tokens = true});
  EXPECT_EQ(raw.front(), 4);
  EXPECT_EQ(raw.back(), 6);
  for (const int token : tokenizer_->Encode(text, {})) EXPECT_GT(token, 6);
}

TEST_F(TidepoolTokenizer, DataNeverBecomesAControlToken) {
  for (const std::string text : {"<|end|>", "a<|end|><|end|>b", "<<|end|>|end|>", "</s>"}) {
    TemplateText prompt = TemplateText::Own("<|user|>");
    prompt.AppendData(text);
    prompt.AppendOwn("<|end|>");
    const auto tokens = tokenizer_->Encode(prompt);
    for (std::size_t i = 1; i + 1 < tokens.size(); ++i) EXPECT_GT(tokens[i], 6) << text;
    EXPECT_EQ(tokenizer_->Decode(std::vector<int>(tokens.begin() + 1, tokens.end() - 1)), text);
  }
}

TEST_F(TidepoolTokenizer, DryBreakersAreTheTokensThatContainTheStrings) {
  const auto breakers = DryBreakerTokens(*tokenizer_, kDryBreakersDefault);
  ASSERT_TRUE(std::is_sorted(breakers.begin(), breakers.end()));
  for (int token = 0; token < tokenizer_->vocabulary().size(); ++token) {
    const bool breaks =
        tokenizer_->TokenBytes(token, true).find_first_of("\n:\"*") != std::string::npos;
    EXPECT_EQ(std::binary_search(breakers.begin(), breakers.end(), token), breaks) << token;
  }
  EXPECT_GE(breakers.size(), 4u);  // every byte is a token
  EXPECT_EQ(DryBreakerTokens(*tokenizer_, {"<|end|>"}), std::vector<int>{6});
  EXPECT_TRUE(DryBreakerTokens(*tokenizer_, {"", "no token has this"}).empty());
}

TEST_F(TidepoolTokenizer, DryBreakersAreLookedForOncePerRequestNotPerChoice) {
  DryBreakers breakers(*tokenizer_);
  const auto list = [](std::size_t i) { return std::vector<std::string>{"a", StrCat("b", i)}; };
  const auto first = breakers.Find(list(0));
  EXPECT_EQ(*first, DryBreakerTokens(*tokenizer_, list(0)));
  for (std::size_t i = 1; i < DryBreakers::kRemembered; ++i) {  // other clients meanwhile
    EXPECT_EQ(*breakers.Find(list(i)), DryBreakerTokens(*tokenizer_, list(i)));
    EXPECT_EQ(breakers.Find(list(0)), first);
  }
  for (std::size_t i = 1; i <= DryBreakers::kRemembered; ++i) breakers.Find(list(100 + i));
  EXPECT_EQ(first.use_count(), 1) << "lists that are not asked for any more are forgotten";
  EXPECT_EQ(*breakers.Find(list(0)), *first);
}

TEST(ContainsAny, IsWhatFindSays) {
  std::mt19937 random(7);
  const auto text = [&](std::size_t bytes_max) {
    std::string out(random() % (bytes_max + 1), ' ');
    for (char& c : out) c = "ab\xC3"[random() % 3];  // so few that strings overlap
    return out;
  };
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> strings(random() % 5);
    for (std::string& string : strings) string = text(6);
    const ContainsAny contains(strings);
    for (int i = 0; i < 10; ++i) {
      const std::string whole = text(12);
      const bool expected = std::any_of(strings.begin(), strings.end(), [&](const auto& s) {
        return !s.empty() && whole.find(s) != std::string::npos;
      });
      ASSERT_EQ(contains(whole), expected);
      found += expected;
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_LT(found, 19000);
}

TEST_F(TidepoolTokenizer, StreamingNeverEmitsPartOfACharacter) {
  const std::string text = "é😀 and 漢字 👩‍👩‍👧!";
  Detokenizer detokenizer(*tokenizer_);
  std::string out;
  for (const int token : tokenizer_->Encode(text, {})) {
    std::string piece;
    detokenizer.Push(token, piece);
    EXPECT_EQ(base::ReplaceInvalidUtf8(piece), piece);
    EXPECT_EQ(piece.find("\uFFFD"), std::string::npos);
    out += piece;
  }
  detokenizer.Finish(out);
  EXPECT_EQ(out, text);
}

TEST_F(TidepoolTokenizer, ACharacterThatNeverEndsBecomesAReplacement) {
  const auto tokens = tokenizer_->Encode("😀", {});
  ASSERT_EQ(tokens.size(), 4u);  // bytes
  Detokenizer detokenizer(*tokenizer_);
  std::string out;
  for (int i = 0; i < 3; ++i) detokenizer.Push(tokens[static_cast<std::size_t>(i)], out);
  EXPECT_EQ(out, "");
  detokenizer.Finish(out);
  EXPECT_EQ(out, "\uFFFD");
}

TEST_F(TidepoolTokenizer, IllFormedInputIsReadAsReplacements) {
  EXPECT_EQ(tokenizer_->Encode("a\xC3(\xFF", {}), tokenizer_->Encode("a\uFFFD(\uFFFD", {}));
}

TEST(Tokenizer, HostileVocabulariesAreRefused) {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kSentencePiece;
  v.tokens = {"<unk>", "<0x-1>"};
  v.scores = {0, 0};
  v.types = {model::TokenType::kUnknown, model::TokenType::kByte};
  EXPECT_FALSE(model::ValidateVocabulary(v).ok());
  v.tokens[1] = "<0x41>";
  EXPECT_TRUE(model::ValidateVocabulary(v).ok());
  v.eos = 7;
  EXPECT_FALSE(model::ValidateVocabulary(v).ok());
  v.eos = -1;
  v.types.pop_back();
  EXPECT_FALSE(model::ValidateVocabulary(v).ok());
}

TEST(Tokenizer, UnknownPreTokenizersAreNamed) {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kByteLevelBpe;
  v.pre_tokenizer = "klingon";
  v.tokens = {"a"};
  v.types = {model::TokenType::kNormal};
  const auto tokenizer = Tokenizer::Create(v);
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(tokenizer.status().message().find("klingon"), std::string::npos);
}

TEST(Tokenizer, LongRunsWithoutSpacesStayFast) {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kByteLevelBpe;
  v.pre_tokenizer = "gpt-2";
  v.tokens = {"a", "aa", "aaaa"};
  v.types.assign(3, model::TokenType::kNormal);
  v.merges = {"a a", "aa aa"};
  const auto tokenizer = Tokenizer::Create(v);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->Encode(std::string(1 << 20, 'a'), {}).size(),
            std::size_t{1} << 18);  // quadratic merging would take hours
}

}  // namespace
}  // namespace thermocline::text
