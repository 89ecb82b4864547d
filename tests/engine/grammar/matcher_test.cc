// Compares masks with an exhaustive recognizer, and tests rollback.
#include "engine/grammar/matcher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "tests/engine/grammar/small_vocabulary.h"

namespace thermocline::grammar {
namespace {

// A grammar as trees, which can be written as GBNF and recognized exhaustively.
struct Node {
  enum Kind { kText, kClass, kSequence, kChoice, kStar, kRule } kind;
  std::string text;         // kText: the text; kClass: the members
  std::vector<Node> parts;  // of the other kinds
  int rule = 0;
};

std::string ToGbnf(const Node& node) {
  const auto join = [&](const char* between) {
    std::string out = "(";
    for (const Node& part : node.parts) out += (out == "(" ? "" : between) + ToGbnf(part);
    return out + ")";
  };
  switch (node.kind) {
    case Node::kText:
      return "\"" + node.text + "\"";
    case Node::kClass:
      return "[" + node.text + "]";
    case Node::kSequence:
      return join(" ");
    case Node::kChoice:
      return join(" | ");
    case Node::kStar:
      return join(" ") + "*";
    case Node::kRule:
      break;
  }
  return "r" + std::to_string(node.rule);
}

// The end positions of all readings of `text` from `at`; kBeyond means that a reading continues
// after the text's end.
constexpr std::size_t kBeyond = 1'000'000;
using Ends = std::set<std::size_t>;

class Recogniser {
 public:
  Recogniser(const std::vector<Node>& rules, const std::string& text)
      : rules_(rules), text_(text) {}

  Ends Read(const Node& node, std::size_t at) {
    switch (node.kind) {
      case Node::kText:
        for (std::size_t i = 0; i < node.text.size(); ++i) {
          if (at + i >= text_.size()) return {kBeyond};
          if (text_[at + i] != node.text[i]) return {};
        }
        return {at + node.text.size()};
      case Node::kClass:
        if (at >= text_.size()) return {kBeyond};
        return node.text.find(text_[at]) == std::string::npos ? Ends{} : Ends{at + 1};
      case Node::kSequence:
        return ReadAll(node.parts, at);
      case Node::kChoice: {
        Ends out;
        for (const Node& part : node.parts) out.merge(Read(part, at));
        return out;
      }
      case Node::kStar: {
        Ends out{at}, edge{at};
        while (!edge.empty()) {
          Ends next;
          for (const std::size_t from : edge)
            if (from != kBeyond) next.merge(ReadAll(node.parts, from));
          edge.clear();
          for (const std::size_t end : next)
            if (out.insert(end).second) edge.insert(end);
        }
        return out;
      }
      case Node::kRule:
        break;
    }
    return known_[{node.rule, at}];
  }

  // The results of each rule at each position grow to a fixed point, so that any recursion is
  // handled.
  Ends Run() {
    for (bool grew = true; grew;) {
      grew = false;
      for (int rule = 0; rule < static_cast<int>(rules_.size()); ++rule) {
        for (std::size_t at = 0; at <= text_.size(); ++at) {
          Ends ends = Read(rules_[static_cast<std::size_t>(rule)], at);
          Ends& known = known_[{rule, at}];
          const std::size_t before = known.size();
          known.merge(ends);
          grew = grew || known.size() != before;
        }
      }
    }
    return known_[{0, 0}];
  }

 private:
  Ends ReadAll(const std::vector<Node>& parts, std::size_t at) {
    Ends from{at};
    bool beyond = false;
    for (const Node& part : parts) {
      Ends next;
      for (const std::size_t place : from) next.merge(Read(part, place));
      beyond = beyond || next.erase(kBeyond) > 0;
      from = next;
    }
    if (beyond) from.insert(kBeyond);
    return from;
  }

  const std::vector<Node>& rules_;
  const std::string& text_;
  std::map<std::pair<int, std::size_t>, Ends> known_;
};

struct Readings {
  bool goes_on, ends;  // `text` is a prefix of the language; is in it
};

Readings ReadingsOf(const std::vector<Node>& rules, const std::string& text) {
  const Ends ends = Recogniser(rules, text).Run();
  return {ends.contains(kBeyond) || ends.contains(text.size()), ends.contains(text.size())};
}

// The rules that derive any text.
std::vector<bool> Productive(const std::vector<Node>& rules) {
  std::vector<bool> out(rules.size());
  const std::function<bool(const Node&)> derives = [&](const Node& node) -> bool {
    if (node.kind == Node::kText || node.kind == Node::kClass || node.kind == Node::kStar)
      return true;
    if (node.kind == Node::kRule) return out[static_cast<std::size_t>(node.rule)];
    const bool all = node.kind == Node::kSequence;
    for (const Node& part : node.parts)
      if (derives(part) != all) return !all;
    return all;
  };
  for (std::size_t pass = 0; pass < rules.size(); ++pass)
    for (std::size_t i = 0; i < rules.size(); ++i) out[i] = derives(rules[i]);
  return out;
}

Node RandomNode(std::mt19937& random, int depth, int rules) {
  const auto pick = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  const int kind = depth == 0 ? pick(2) : pick(7);
  static const char* kTexts[] = {"a", "ab", "ba", "c", "abc", "aa"};
  static const char* kClasses[] = {"ab", "c", "abc"};
  if (kind == 0) return {Node::kText, kTexts[pick(6)], {}, 0};
  if (kind == 1) return {Node::kClass, kClasses[pick(3)], {}, 0};
  if (kind == 2) return {Node::kRule, "", {}, pick(rules)};
  if (kind == 3) return {Node::kStar, "", {RandomNode(random, depth - 1, rules)}, 0};
  Node out{kind == 4 ? Node::kSequence : Node::kChoice, "", {}, 0};
  for (int i = 0; i < 2 + pick(2); ++i) out.parts.push_back(RandomNode(random, depth - 1, rules));
  return out;
}

std::string GbnfOf(const std::vector<Node>& rules) {
  std::string out = "root ::= r0\n";
  for (std::size_t i = 0; i < rules.size(); ++i)
    out += "r" + std::to_string(i) + " ::= " + ToGbnf(rules[i]) + "\n";
  return out;
}

const std::vector<std::string> kWords = {"ab", "abc", "ca", "aab", "bc", "aa", "ba", "ab", "cab"};

// Every token of the vocabulary, at every place of random walks.
TEST(Matcher, MasksAreThoseOfTryingEverything) {
  const SmallVocabulary vocabulary(kWords);
  std::mt19937 random(7);
  int grammars = 0, places = 0, allowed = 0, whole = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<Node> rules;
    for (int i = 0; i < 3; ++i) rules.push_back(RandomNode(random, 2, 3));
    // With and without tables, the masks are the same.
    const auto grammar = vocabulary.Gbnf(GbnfOf(rules), round % 2 == 0 ? 1 << 20 : 0);
    const std::vector<bool> productive = Productive(rules);
    ASSERT_EQ(grammar.ok(), productive[0]) << GbnfOf(rules) << grammar.status().message();
    // The recognizer would continue into a rule that never ends.
    if (std::find(productive.begin(), productive.end(), false) != productive.end()) continue;
    ++grammars;
    Matcher matcher(16);
    matcher.Begin(*grammar);
    std::string text;
    for (int step = 0; step < 5; ++step, ++places) {
      const auto mask = matcher.Mask();
      std::vector<int> next;
      for (int token = 0; token < vocabulary.size(); ++token) {
        const std::string& bytes = vocabulary.index().bytes(token);
        const bool expected = token == kEnd ? ReadingsOf(rules, text).ends
                              : bytes.empty()
                                  ? false
                                  : (bytes.size() > 1 || std::strchr("abc", bytes[0]) != nullptr) &&
                                        ReadingsOf(rules, text + bytes).goes_on;
        ASSERT_EQ(HasBit(mask, token), expected)
            << GbnfOf(rules) << "behind '" << text << "', token " << token << " '" << bytes << "'";
        allowed += expected ? 1 : 0;
        if (expected && token != kEnd) next.push_back(token);
      }
      whole += matcher.complete() ? 1 : 0;
      if (next.empty()) break;
      const int token = next[random() % next.size()];
      text += vocabulary.index().bytes(token);
      matcher.Accept(token);
    }
  }
  EXPECT_GT(grammars, 300);
  EXPECT_GT(allowed, places);
  EXPECT_GT(whole, 100);
}

TEST(Matcher, RetractedTokensLeaveNoTrace) {
  const SmallVocabulary vocabulary(kWords);
  const auto grammar =
      vocabulary.Gbnf("root ::= \"a\" root \"b\" | [abc]* \"c\" | x\nx ::= x \"a\" | \"b\"");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  std::mt19937 random(3);
  Matcher walked(64), fresh(64);
  walked.Begin(*grammar);
  std::vector<int> tokens;
  for (int step = 0; step < 600; ++step) {
    const auto mask = walked.Mask();
    std::vector<int> next;
    for (int token = 1; token < vocabulary.size(); ++token)
      if (HasBit(mask, token)) next.push_back(token);
    if (tokens.size() > 12 || (!tokens.empty() && random() % 3 == 0)) {
      walked.Retract();
      tokens.pop_back();
    } else if (random() % 8 == 0) {
      tokens.push_back(1);  // a byte that is never allowed
      walked.Accept(1);
      EXPECT_TRUE(walked.IsLost(tokens.size()));
      walked.Retract();
      tokens.pop_back();
    } else if (!next.empty()) {
      tokens.push_back(next[random() % next.size()]);
      walked.Accept(tokens.back());
    }
    fresh.Begin(*grammar);
    for (const int token : tokens) fresh.Accept(token);
    const auto expected = fresh.Mask(), got = walked.Mask();
    ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end())) << step;
    ASSERT_EQ(walked.complete(), fresh.complete());
  }
}

TEST(Matcher, OnlyTheEndComesBehindAWholeText) {
  const SmallVocabulary vocabulary(kWords);
  const auto grammar = vocabulary.Gbnf("root ::= \"ab\" \"c\"?");
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(8);
  matcher.Begin(*grammar);
  EXPECT_FALSE(HasBit(matcher.Mask(), kEnd));
  matcher.Accept(257);  // ab
  EXPECT_TRUE(HasBit(matcher.Mask(), kEnd));
  EXPECT_TRUE(HasBit(matcher.Mask(), 1 + 'c'));
  EXPECT_FALSE(matcher.IsOver(1));
  matcher.Accept(1 + 'c');
  EXPECT_TRUE(matcher.IsOver(2));
  for (int token = 0; token < vocabulary.size(); ++token)
    EXPECT_EQ(HasBit(matcher.Mask(), token), token == kEnd) << token;
  matcher.Retract();
  matcher.Accept(kEnd);
  EXPECT_TRUE(matcher.IsOver(2));
  EXPECT_TRUE(HasBit(matcher.Mask(), kEnd));
}

TEST(Matcher, TokensThatSpellTheSameComeTogether) {
  const SmallVocabulary vocabulary({"xy", "xy"});
  const auto grammar = vocabulary.Gbnf("root ::= \"xy\"");
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(4);
  matcher.Begin(*grammar);
  EXPECT_TRUE(HasBit(matcher.Mask(), 257));
  EXPECT_TRUE(HasBit(matcher.Mask(), 258));
}

TEST(Matcher, ReadsCharactersThatTokensShare) {
  const SmallVocabulary vocabulary({"\xE2\x82", "\xAC!"});
  const auto grammar = vocabulary.Gbnf("root ::= [\\u20AC] \"!\"");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Matcher matcher(4);
  matcher.Begin(*grammar);
  EXPECT_TRUE(HasBit(matcher.Mask(), 257));
  EXPECT_TRUE(HasBit(matcher.Mask(), 1 + 0xE2));
  EXPECT_FALSE(HasBit(matcher.Mask(), 1 + 0xE3));
  matcher.Accept(257);
  EXPECT_TRUE(HasBit(matcher.Mask(), 258));
  matcher.Accept(258);
  EXPECT_TRUE(matcher.IsOver(2));
}

TEST(Matcher, TokensByNameAreNotTheirText) {
  const SmallVocabulary vocabulary({"<call>x"});
  const auto grammar = vocabulary.Gbnf("root ::= <call> \"a\" | !<call> \"b\"");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const int call = vocabulary.index().Find("<call>");
  ASSERT_EQ(call, 258);
  Matcher matcher(4);
  matcher.Begin(*grammar);
  EXPECT_TRUE(HasBit(matcher.Mask(), call));
  EXPECT_TRUE(HasBit(matcher.Mask(), 1 + '<'));  // any token but that
  EXPECT_FALSE(HasBit(matcher.Mask(), kEnd));
  EXPECT_FALSE(HasBit(matcher.Mask(), vocabulary.size() - 1));  // not a token of the vocabulary
  matcher.Accept(call);
  EXPECT_TRUE(HasBit(matcher.Mask(), 1 + 'a'));
  EXPECT_FALSE(HasBit(matcher.Mask(), 1 + 'b'));
  EXPECT_FALSE(vocabulary.Gbnf("root ::= <nothing>").ok());
}

TEST(Matcher, ForcedTokensAreTheLongestThatTheTextLeaves) {
  const SmallVocabulary vocabulary({"name", "\":", "na", "ab", "a", "abc"});
  const auto grammar = vocabulary.Gbnf("root ::= \"{\" \"name\\\":\" (\"ab\" [0-9] | \"b\")");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Matcher matcher(16);
  matcher.Begin(*grammar);
  int out[8];
  ASSERT_EQ(matcher.Forced(out), 3);
  EXPECT_EQ(out[0], 1 + '{');
  EXPECT_EQ(vocabulary.index().bytes(out[1]), "name");
  EXPECT_EQ(vocabulary.index().bytes(out[2]), "\":");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(HasBit(matcher.Mask(), out[i]));
    matcher.Accept(out[i]);
  }
  EXPECT_EQ(matcher.Forced(out), 0);
  matcher.Accept(1 + 'a');
  // No longer token begins with "b".
  ASSERT_EQ(matcher.Forced(out), 1);
  EXPECT_EQ(out[0], 1 + 'b');
  const auto open = vocabulary.Gbnf("root ::= \"na\" [a-z]");
  ASSERT_TRUE(open.ok());
  matcher.Begin(*open);
  EXPECT_EQ(matcher.Forced(out), 0);  // "name" begins so, and may come, too
}

TEST(Matcher, RightRecursionStaysFlat) {
  const SmallVocabulary vocabulary({});
  const auto grammar = vocabulary.Gbnf(
      "root ::= item root?\nitem ::= \"a\" item2\nitem2 ::= \"b\" | \"(\" root \")\"");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "ab";
  EXPECT_TRUE(Takes(*grammar, text));
  EXPECT_TRUE(Takes(*grammar, "a(abab)ab"));
  EXPECT_FALSE(Takes(*grammar, "a(abab"));
}

}  // namespace
}  // namespace thermocline::grammar
