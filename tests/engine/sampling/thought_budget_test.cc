#include "engine/sampling/thought_budget.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/sampling/sampler.h"
#include "tests/engine/grammar/small_vocabulary.h"

namespace thermocline::sampling {
namespace {

// Tokens 1 to 256 are bytes; these follow.
enum Word { kOpen = 257, kClose, kThink, kAnswer, kStop };

class Thoughts : public testing::Test {
 protected:
  std::shared_ptr<const ThoughtLimit> Limit(int tokens, bool inside = true) const {
    return std::make_shared<const ThoughtLimit>(ThoughtLimit{.tokenizer = *tokenizer_,
                                                             .tokens_max = tokens,
                                                             .open = StreamSearch("<think>"),
                                                             .close = StreamSearch("</think>"),
                                                             .begins_inside = inside,
                                                             .ending = {kStop, kClose},
                                                             .ending_again = {kClose}});
  }
  // The tokens of an answer by a model that wants to think forever and, outside, to answer.
  std::vector<int> Answer(int limit, int count, bool inside = true) const {
    ThoughtBudget budget;
    budget.Begin(Limit(limit, inside));
    std::vector<int> out;
    bool closed = !inside;
    while (base::IntSize(out) < count) {
      const int forced = budget.ForcedToken();
      out.push_back(forced >= 0 ? forced : closed ? kAnswer : kThink);
      closed = closed || out.back() == kClose;
      budget.Accept(out.back());
    }
    return out;
  }

  const std::unique_ptr<text::Tokenizer> tokenizer_ =
      grammar::SmallTokenizer({"<think>", "</think>", "hmm", "yes", "Enough."});
};

TEST_F(Thoughts, EndAfterExactlySoManyTokens) {
  EXPECT_EQ(Answer(0, 3), (std::vector<int>{kStop, kClose, kAnswer}));
  EXPECT_EQ(Answer(1, 4), (std::vector<int>{kThink, kStop, kClose, kAnswer}));
  for (const int limit : {7, 64}) {
    const auto tokens = Answer(limit, limit + 3);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), kThink), limit);
    EXPECT_EQ(tokens[limit], kStop);
    EXPECT_EQ(tokens[limit + 1], kClose);
    EXPECT_EQ(tokens[limit + 2], kAnswer);
  }
}

TEST_F(Thoughts, DoNotCountOutsideTheMarks) {
  EXPECT_EQ(Answer(0, 3, false), (std::vector<int>{kAnswer, kAnswer, kAnswer}));
  ThoughtBudget budget;
  budget.Begin(Limit(2, false));
  for (const int token :
       {1 + '\n', static_cast<int>(kOpen), static_cast<int>(kThink), static_cast<int>(kThink)}) {
    EXPECT_EQ(budget.ForcedToken(), -1);
    budget.Accept(token);
  }
  EXPECT_EQ(budget.ForcedToken(), kStop);
}

TEST_F(Thoughts, AreFoundInPiecesOfTheirMarks) {
  ThoughtBudget budget;
  budget.Begin(Limit(1, false));
  for (const char c : std::string(" \n<think>")) {
    EXPECT_EQ(budget.ForcedToken(), -1);
    budget.Accept(1 + static_cast<unsigned char>(c));
  }
  budget.Accept(kThink);
  EXPECT_EQ(budget.ForcedToken(), kStop);
}

TEST_F(Thoughts, ThatBeginAnewEndAtOnce) {
  ThoughtBudget budget;
  budget.Begin(Limit(1));
  for (const int token : {kThink, kStop, kClose, kOpen}) budget.Accept(token);
  EXPECT_EQ(budget.ForcedToken(), kClose);
  budget.Accept(kClose);
  EXPECT_EQ(budget.ForcedToken(), -1);
}

TEST_F(Thoughts, TheirMarkInATextIsText) {
  ThoughtBudget budget;
  budget.Begin(Limit(0, false));
  for (const int token : {kAnswer, kOpen, kAnswer}) {
    budget.Accept(token);
    EXPECT_EQ(budget.ForcedToken(), -1);
  }
  ThoughtLimit anywhere = *Limit(0, false);
  anywhere.opens_anywhere = true;
  budget.Begin(std::make_shared<const ThoughtLimit>(anywhere));
  for (const int token : {kAnswer, kOpen}) budget.Accept(token);
  EXPECT_EQ(budget.ForcedToken(), kStop);
}

TEST_F(Thoughts, EndBehindAWholeCharacter) {
  ThoughtBudget budget;
  budget.Begin(Limit(1));
  budget.Accept(1 + 0xC3);
  EXPECT_EQ(budget.ForcedToken(), -1);
  budget.Accept(1 + 0xA9);
  EXPECT_EQ(budget.ForcedToken(), kStop);
}

TEST_F(Thoughts, AreTheSameAfterDraftsWereRefused) {
  ThoughtBudget budget;
  budget.Begin(Limit(2));
  budget.Accept(kThink);
  for (const int token : {kClose, kOpen, kThink, kThink}) budget.Accept(token);
  for (int i = 0; i < 4; ++i) budget.Retract();
  EXPECT_EQ(budget.ForcedToken(), -1);
  budget.Accept(kThink);
  int forced[4];
  EXPECT_EQ(budget.Forced(forced), 2);
  EXPECT_EQ(forced[0], kStop);
  EXPECT_EQ(forced[1], kClose);
  budget.Accept(kThink);  // a draft that will be refused
  budget.Retract();
  EXPECT_EQ(budget.ForcedToken(), kStop);
}

TEST_F(Thoughts, TheSamplerDrawsNothingElse) {
  const int vocab = tokenizer_->vocabulary().size();
  std::vector<float> logits(vocab);
  logits[kThink] = 9;
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler(vocab, 32);
    sampler.Begin({.temperature = temperature, .thought = Limit(1), .logit_bias = {}}, {});
    std::vector<int> drawn;
    for (int i = 0; i < 3; ++i) {
      drawn.push_back(sampler.Sample(logits, i));
      sampler.Accept(drawn.back());
    }
    EXPECT_EQ(drawn[1], kStop) << temperature;
    EXPECT_EQ(drawn[2], kClose) << temperature;
  }
}

// Quadratic, this takes hours.
TEST(StreamSearch, FindsALongPeriodicTextInALinearTime) {
  std::string text, part;
  for (int i = 0; i < 1'000'000; ++i) text += "a ";
  for (int i = 0; i < 500'000; ++i) part += "a ";
  EXPECT_TRUE(StreamSearch(part).IsIn(text));
  EXPECT_FALSE(StreamSearch(part + "x").IsIn(text));
  EXPECT_TRUE(StreamSearch(part + "x").IsIn(text + "x"));
  EXPECT_TRUE(StreamSearch("").IsIn(""));
}

}  // namespace
}  // namespace thermocline::sampling
