// Highly ambiguous grammars: their cost, and their errors.
#include <gtest/gtest.h>

#include "tests/engine/grammar/small_vocabulary.h"

namespace thermocline::grammar {
namespace {

const std::vector<std::string> kRuns = {"aa", "aaa", "aaaaaaaa", "ab", " a", "the "};

TEST(Ambiguity, RulesThatBeginOrEndWithThemselvesCostWhatALoopDoes) {
  const SmallVocabulary vocabulary(kRuns);
  struct Case {
    const char *grammar, *right, *wrong;
  };
  const std::string many(600, 'a');
  for (const Case& each : {
           Case{"root ::= s\ns ::= [a-z ,.A-Z] | s s | s s s", "aaaa", "aa1"},
           Case{"root ::= e\ne ::= [a-z] | e \"+\" e | e \"*\" e | \"(\" e \")\"", "a+(b*c+d)*e",
                "a+"},
           Case{"root ::= t\nt ::= \"x\" | \"if \" t | \"if \" t \" else \" t", "if if x else x",
                "if "},
           Case{"root ::= l\nl ::= [a-z]+ | l \", \" l", "aa, b, cc", "aa, "},
           Case{"root ::= r\nr ::= \"a\" | r*", "aaaaa", "ab"},
       }) {
    const auto grammar = vocabulary.Gbnf(each.grammar);
    ASSERT_TRUE(grammar.ok()) << each.grammar << grammar.status().message();
    EXPECT_TRUE(Takes(*grammar, each.right)) << each.grammar;
    EXPECT_FALSE(Takes(*grammar, each.wrong)) << each.grammar;
  }
  EXPECT_TRUE(Takes(*vocabulary.Gbnf("root ::= s\ns ::= [a-z] | s s | s s s"), many));
}

TEST(Ambiguity, WhatGrowsFasterThanItsTextIsRefused) {
  const SmallVocabulary vocabulary(kRuns);
  for (const char* grammar :
       {"root ::= s\ns ::= [a-z ] | [a-z ] s s", "root ::= s\ns ::= [a-z] t\nt ::= \"\" | s t",
        "root ::= s\ns ::= s [a-z] s s | [a-z]",
        "root ::= \"{\" s \"}\"\ns ::= \"\" | \"(\" s s s | [a-z] s s"}) {
    const auto compiled = vocabulary.Gbnf(grammar);
    ASSERT_EQ(compiled.status().code(), StatusCode::kInvalidArgument) << grammar;
    EXPECT_NE(compiled.status().message().find("too ambiguous"), std::string::npos);
  }
}

// A probe cannot find ambiguity behind a long text; there the work limit ends the request with the
// reason.
TEST(Ambiguity, WhatHidesFromTheProbeEndsWithItsReason) {
  const SmallVocabulary vocabulary(kRuns);
  const auto grammar = vocabulary.Gbnf("root ::= [0-9]{300} s\ns ::= [a-z ] | [a-z ] s s", 0);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Matcher matcher(1 << 12);
  matcher.Begin(*grammar);
  for (int i = 0; i < 300; ++i) matcher.Accept(1 + '7');
  int slices = 0, most = 0, tokens = 0;
  for (; tokens < 3000; ++tokens) {
    for (slices = 1; !matcher.MakeMask(Matcher::kSlice); ++slices) continue;
    most = std::max(most, slices);
    if (matcher.overrun()) break;
    // All parses are kept: the text may end after an odd number of letters.
    ASSERT_EQ(HasBit(matcher.Mask(), kEnd), tokens % 2 == 1) << tokens;
    ASSERT_TRUE(HasBit(matcher.Mask(), 1 + 'a')) << tokens;
    matcher.Accept(1 + 'a');
  }
  EXPECT_TRUE(matcher.overrun());
  EXPECT_GT(tokens, 256);
  EXPECT_LE(most, Parser::kWorkMax / Matcher::kSlice + 1);
  for (const std::uint64_t word : matcher.Mask()) EXPECT_EQ(word, 0);
}

TEST(Ambiguity, AMaskMadeInSlicesIsTheSame) {
  const SmallVocabulary vocabulary(kRuns);
  const auto grammar =
      vocabulary.Gbnf("root ::= (\"a\" | \"ab\" | \"b\" | \" \" | \"the \")* \"c\"");
  ASSERT_TRUE(grammar.ok());
  Matcher whole(64), sliced(64);
  whole.Begin(*grammar);
  sliced.Begin(*grammar);
  for (const char c : std::string("ab the a")) {
    int slices = 1;
    while (!sliced.MakeMask(1)) ++slices;
    EXPECT_GT(slices, 2);
    const auto expected = whole.Mask(), got = sliced.Mask();
    ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
    whole.Accept(1 + c);
    // A query in between restarts the mask.
    sliced.Accept(1 + c);
    sliced.MakeMask(1);
    int forced = 0;
    sliced.Forced({&forced, 1});
  }
}

// A step of all sequences waits for Accept, so a token in an ambiguous place is parsed later, by
// the slices of the next mask.
TEST(Ambiguity, ATokenParsedInSlicesLeadsToTheSameMask) {
  const SmallVocabulary vocabulary({"aaaaaaaaaaaaaaaa", "the "});
  const auto grammar = vocabulary.Gbnf("root ::= [0-9]{300} s\ns ::= [a-z ] | [a-z ] s s", 0);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Matcher whole(1 << 12), sliced(1 << 12);
  constexpr int kRun = 1 + 256;  // the first word
  int parsed_later = 0;
  for (Matcher* matcher : {&whole, &sliced}) {
    matcher->Begin(*grammar);
    for (int i = 0; i < 300; ++i) matcher->Accept(1 + '7');
  }
  for (int tokens = 0; tokens < 12 && !whole.overrun(); ++tokens) {
    whole.Accept(kRun);
    sliced.Accept(kRun);
    for (std::int64_t slices = 0; !sliced.MakeMask(1); ++slices)
      parsed_later += slices == 0 ? 1 : 0;
    const auto expected = whole.Mask(), got = sliced.Mask();
    ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end())) << tokens;
    ASSERT_EQ(sliced.overrun(), whole.overrun());
    ASSERT_EQ(sliced.IsLost(301), whole.IsLost(301));
  }
  EXPECT_GT(parsed_later, 0);
}

// "!<[0]>* !<[1]>* ..."
std::string StarsOfNegatedTokens(int count) {
  std::string text = "root ::=";
  for (int i = 0; i < count; ++i) text += " !<[" + std::to_string(1 + i % 256) + "]>*";
  return text;
}

TEST(Ambiguity, ManyNegatedTokensAllowWhatOneOfThemAllows) {
  std::vector<std::string> words;
  for (int i = 0; i < 20'000; ++i) words.push_back("word" + std::to_string(i));
  const SmallVocabulary vocabulary(words);
  for (const int count : {1, 2, 100}) {
    const auto grammar = vocabulary.Gbnf(StarsOfNegatedTokens(count));
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    Matcher matcher(4);
    matcher.Begin(*grammar);
    const auto mask = matcher.Mask();
    EXPECT_EQ(HasBit(mask, 1), count > 1);
    EXPECT_TRUE(HasBit(mask, 2));
    EXPECT_TRUE(HasBit(mask, 257 + 19'999));
    EXPECT_TRUE(HasBit(mask, kEnd));  // the text may be empty
    EXPECT_FALSE(HasBit(mask, vocabulary.size() - 1));
  }
}

TEST(Ambiguity, AGrammarFindsNothingThatAnEarlierOneLeft) {
  const SmallVocabulary vocabulary({});
  Matcher used(64);
  for (const int count : {100, 100, 200, 200, 300, 40, 300}) {
    const auto grammar = vocabulary.Gbnf(StarsOfNegatedTokens(count));
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    Matcher fresh(64);
    for (Matcher* matcher : {&used, &fresh}) {
      matcher->Begin(*grammar);
      for (int token = 1; token < 20; ++token) matcher->Accept(token);
    }
    const auto expected = fresh.Mask(), got = used.Mask();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end())) << count;
  }
}

}  // namespace
}  // namespace thermocline::grammar
