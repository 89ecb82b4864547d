// GBNF and regular expressions: accepted texts and rejected grammars.
#include "engine/grammar/gbnf.h"

#include <gtest/gtest.h>

#include "engine/grammar/expression.h"
#include "engine/grammar/regex.h"
#include "tests/engine/grammar/small_vocabulary.h"

namespace thermocline::grammar {
namespace {

const SmallVocabulary& Vocabulary() {
  static const SmallVocabulary vocabulary({"ab", "12"});
  return vocabulary;
}

void ExpectGbnf(const std::string& grammar, const std::vector<std::string>& takes,
                const std::vector<std::string>& leaves) {
  const auto compiled = Vocabulary().Gbnf(grammar);
  ASSERT_TRUE(compiled.ok()) << grammar << ": " << compiled.status().message();
  for (const std::string& text : takes)
    EXPECT_TRUE(Takes(*compiled, text)) << grammar << ": " << text;
  for (const std::string& text : leaves)
    EXPECT_FALSE(Takes(*compiled, text)) << grammar << ": " << text;
}

TEST(Gbnf, UnderstandsTheNotation) {
  ExpectGbnf("root ::= \"a\" | \"b\" c # words\nc ::= [x-z]+", {"a", "bx", "bxyz"},
             {"b", "c", "ax", ""});
  ExpectGbnf("root ::= (\"a\"\n  \"b\")? |\n  \"c\"", {"", "ab", "c"}, {"a"});
  ExpectGbnf("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2}", {"aab", "aabbb", "aabcc"},
             {"ab", "aa", "aabccc"});
  ExpectGbnf("root ::= \"a\"{,2}", {"", "aa"}, {"aaa"});
  ExpectGbnf(R"(root ::= "\n\t\"\\" "\x41\u00e9\U0001F600")", {"\n\t\"\\A\u00e9\U0001F600"}, {"A"});
  ExpectGbnf("root ::= [^a-c\\]]", {"d", "\u20AC", "\n"}, {"a", "]", "", "dd"});
  ExpectGbnf("root ::= [a\\-z]", {"a", "-", "z"}, {"b"});
  ExpectGbnf("root ::= .", {"a", "\n", "\U0001F600"}, {"", "ab", "\xFF"});
  ExpectGbnf("root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\"",
             {"1", "1+2+3", "(1+2)+3", "((4))"}, {"+", "1+", "(1"});
}

TEST(Gbnf, RefusesWithThePlace) {
  const auto refused = [](const std::string& grammar, const std::string& words) {
    const auto compiled = Vocabulary().Gbnf(grammar);
    ASSERT_FALSE(compiled.ok()) << grammar;
    EXPECT_EQ(compiled.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(compiled.status().message().find(words), std::string::npos)
        << compiled.status().message();
  };
  refused("", "no rule 'root'");
  refused("root ::= x", "no rule 'x'");
  refused("root ::= \"a\nb\"", "line 1");
  refused("root = \"a\"", "'::='");
  refused("root ::= \"a\"\nroot ::= \"b\"", "there already");
  refused("root ::= (\"a\"", "')'");
  refused("root ::= \"a\"{3,2}", "{m,n}");
  refused("root ::= \"a\"{2001,99999}", "{m,n}");
  refused("root ::= [z-a]", "range");
  refused("root ::= \"\\q\"", "escape");
  refused("root ::= root", "no text");
  refused("root ::= \"a\" root", "no text");
  refused("root ::= <[99999]>", "outside the vocabulary");
  refused("root ::= (\"a\"{9000} \"b\"{9000}){9}", "too large");
}

TEST(Gbnf, DeepGroupsAreRefusedNotFollowed) {
  const std::string deep = "root ::= " + std::string(100'000, '(');
  EXPECT_FALSE(Vocabulary().Gbnf(deep).ok());
  EXPECT_FALSE(ParseRegex(std::string(100'000, '(')).ok());
}

void ExpectRegex(const std::string& pattern, const std::vector<std::string>& takes,
                 const std::vector<std::string>& leaves) {
  Budget budget(20'000, 60, kBytesMax);
  const auto expression = ParseRegex(pattern);
  ASSERT_TRUE(expression.ok()) << pattern << ": " << expression.status().message();
  Nfa nfa;
  ASSERT_TRUE(Emit(*expression, Nfa::kStart, nfa, Nfa::kFinal, budget).ok());
  const auto dfa = MakeDeterministic(nfa, budget, true);
  ASSERT_TRUE(dfa.ok());
  for (const std::string& text : takes) EXPECT_TRUE(Accepts(*dfa, text)) << pattern << ": " << text;
  for (const std::string& text : leaves)
    EXPECT_FALSE(Accepts(*dfa, text)) << pattern << ": " << text;
}

TEST(Regex, TakesWhatRe2Takes) {
  ExpectRegex("^a(b|c)*d$", {"ad", "abcd"}, {"abc", "xad"});
  ExpectRegex("\\d{3}-\\w+\\s?", {"123-a_", "999-Z9 "}, {"12-a", "123-"});
  ExpectRegex("[^\\d\\s]x", {"ax", "\u20ACx"}, {"1x", " x"});
  ExpectRegex("(?:a|(?P<n>b)|(?<m>c))+?", {"abc", "c"}, {"", "d"});
  ExpectRegex("\\u20ac\\x41\\x{1F600}\\ud83d\\ude00", {"\u20ACA\U0001F600\U0001F600"}, {"A"});
  ExpectRegex("a{x", {"a{x"}, {"a"});
  ExpectRegex("[]a-]+", {"]a-"}, {"b"});
  ExpectRegex(".", {"a", "\u20AC"}, {"\n", ""});
  ExpectRegex("(^a|b)c|d$", {"ac", "bc", "d"}, {"c"});
}

TEST(Regex, RefusesByName) {
  for (const auto& [pattern, words] : {std::pair("(?=a)b", "(?="),
                                       {"(a)\\1", "\\1"},
                                       {"\\bword", "\\b"},
                                       {"(?i)a", "flags"},
                                       {"\\p{L}", "\\p"},
                                       {"a**", "repetition"},
                                       {"[", "missing"},
                                       {"[[:alpha:]]", "[:alpha:]"}}) {
    const auto expression = ParseRegex(pattern);
    ASSERT_FALSE(expression.ok()) << pattern;
    EXPECT_NE(expression.status().message().find(words), std::string::npos)
        << expression.status().message();
  }
}

}  // namespace
}  // namespace thermocline::grammar
