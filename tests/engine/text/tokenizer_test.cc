#include "engine/text/tokenizer.h"

#include <gtest/gtest.h>
#include <unicode/normalizer2.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <random>

#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "engine/text/contains_any.h"
#include "engine/text/detokenizer.h"
#include "engine/text/dry_breakers.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/unicode_text.h"

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
  v.tokens[0] = std::string(1025, 'a');  // each could be asked for with its logprob
  EXPECT_FALSE(model::ValidateVocabulary(v).ok());
  v.tokens[0] = "<unk>";
  EXPECT_TRUE(model::ValidateVocabulary(v).ok());
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

TEST(Tokenizer, TheLongestSpecialTokenIsTakenAndTheFirstOfEqualOnes) {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kByteLevelBpe;
  v.pre_tokenizer = "gpt-2";
  v.tokens = {"a", "<", "<u", "<unused1>", "<unused12>", "<u", "<unused", "<c>"};
  v.types.assign(v.tokens.size(), model::TokenType::kUserDefined);
  v.types[0] = v.types[1] = model::TokenType::kNormal;
  v.types[7] = model::TokenType::kControl;
  const auto tokenizer = Tokenizer::Create(v);
  ASSERT_TRUE(tokenizer.ok());
  const auto encode = [&](const char* text) { return (*tokenizer)->Encode(text, {}); };
  EXPECT_EQ(encode("<unused12><unused1><unused1<u<"), (std::vector<int>{4, 3, 6, 2, 1}));
  EXPECT_EQ(encode("<u<unuse"), (std::vector<int>{2, 2}));  // other letters have no token
  EXPECT_EQ((*tokenizer)->Encode("<c><c", {.control_tokens = true}), (std::vector<int>{7, 1}));
}

TEST(PreTokenizer, DigitsAreCutFromTheEndOfANumber) {
  const auto words = PreTokenizer::Create("cohere2moe");
  ASSERT_TRUE(words.ok());
  using Words = std::vector<std::string_view>;
  EXPECT_EQ((*words)->Split("1234567"), (Words{"1", "234", "567"}));
  EXPECT_EQ((*words)->Split("12 345-6789"), (Words{"12", " ", "345", "-", "6", "789"}));
  // Without a boundary behind it the pattern does not match, and the next one cuts from the front.
  EXPECT_EQ((*words)->Split("1234x"), (Words{"123", "4", "x"}));
  EXPECT_EQ((*words)->Split("\U0001D7CE\U0001D7CF\U0001D7D0\U0001D7D1"),
            (Words{"\U0001D7CE", "\U0001D7CF\U0001D7D0\U0001D7D1"}));
  EXPECT_EQ((*words)->Split(std::string(1 << 20, '1') + "x").size(),
            ((1U << 20) + 2) / 3 + 1);  // quadratic matching would take hours
}

std::string ByTheLibrary(const std::string& text, model::Normalization form) {
  using model::Normalization;
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* by =
      form == Normalization::kNfc    ? icu::Normalizer2::getNFCInstance(error)
      : form == Normalization::kNfd  ? icu::Normalizer2::getNFDInstance(error)
      : form == Normalization::kNfkc ? icu::Normalizer2::getNFKCInstance(error)
                                     : icu::Normalizer2::getNFKDInstance(error);
  std::string out;
  return by->normalize(icu::UnicodeString::fromUTF8(text), error).toUTF8String(out);
}

TEST(Normalized, LongRunsOfMarksAreThoseOfTheUnicodeLibrary) {
  using model::Normalization;
  std::mt19937 random(5);
  constexpr char32_t kMarks[] = {0x300, 0x301, 0x315, 0x316, 0x327,   0x344,
                                 0x5B0, 0x345, 0xF73, 0xF71, 0x1D165, 0x3099};
  for (int round = 0; round < 200; ++round) {
    std::string text = "x";
    const int marks = round % 2 == 0 ? 60 : 300;
    for (int i = 0; i < marks; ++i) {
      base::AppendUtf8(text, kMarks[random() % std::size(kMarks)]);
      if (random() % 150 == 0) text += "\u1ea5\uac01\ufb01";
    }
    for (const auto form :
         {Normalization::kNfc, Normalization::kNfd, Normalization::kNfkc, Normalization::kNfkd})
      ASSERT_EQ(Normalized(text, {form}), ByTheLibrary(text, form)) << round;
  }
}

TEST(Normalized, ALongRunOfMarksTakesNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) text += "\u0315";
  for (int i = 0; i < 500'000; ++i) text += "\u0316";
  const std::string sorted = Normalized(text, {model::Normalization::kNfc});
  EXPECT_EQ(sorted.substr(0, 3), "a\u0316");  // the lower class comes first
  EXPECT_EQ(sorted.size(), text.size());
}

TEST(Normalized, PiecesOfALongTextGiveItsForm) {
  const std::string part =
      "\u03A3\u0399\u03A3\u03A5\u03A6\u039F\u03A3 E\u0301 \u00C9x  \u1E0B\u0323 ";
  std::string text, lower;
  while (text.size() < 300'000) {
    text += part;
    lower += Normalized(part, {model::Normalization::kLowercase});
  }
  EXPECT_EQ(Normalized(text, {model::Normalization::kLowercase}), lower);
  EXPECT_EQ(Normalized(text, {model::Normalization::kNfc}),
            ByTheLibrary(text, model::Normalization::kNfc));
}

// The template was searched for each token.
TEST(Vocabulary, MarkersOfALongTemplateAreFoundOnce) {
  model::Vocabulary v;
  for (int i = 0; i < 60'000; ++i) v.tokens.push_back("<|x" + std::to_string(i) + "|>");
  v.tokens.push_back("<|mark|>");
  v.types.assign(v.tokens.size(), model::TokenType::kNormal);
  for (int i = 0; i < 80'000; ++i) v.chat_template += "<|x";
  v.chat_template += " {{ '<|mark|>' }} <|x7|>";
  model::MarkTurnTokens(v);
  EXPECT_EQ(v.types.back(), model::TokenType::kControl);
  EXPECT_EQ(v.types[7], model::TokenType::kControl);
  EXPECT_EQ(v.types[8], model::TokenType::kNormal);
}

TEST(Vocabulary, NormalizersAreBounded) {
  model::Vocabulary v;
  for (int i = 0; i < 16; ++i)
    EXPECT_TRUE(model::AddNormalizer(model::Normalization::kLowercase, v).ok());
  EXPECT_FALSE(model::AddNormalizer(model::Normalization::kLowercase, v).ok());
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
