// The limits of shared steps, from given times.
#include "engine/sched/step_budget.h"

#include <gtest/gtest.h>

namespace thermocline::sched {
namespace {

// A step takes 4 ms, plus 0.5 per answer and 0.25 per prefill token; alone, a token takes 2.
double StepTime(int answers, int read) { return 0.004 + 0.0005 * answers + 0.00025 * read; }

void Teach(StepBudget& budget) {
  budget.AddAlone(10, 0.02);
  for (int answers = 2; answers <= 16; ++answers) budget.Add(answers, 0, StepTime(answers, 0));
  for (int i = 0; i < 50; ++i) budget.Add(8, 20, StepTime(8, 20));
}

TEST(StepBudget, PromptsFillWhatTheTargetLeaves) {
  StepBudget budget(0.010);
  EXPECT_EQ(budget.PrefillTokens(8, 500, 64), 64);  // no measurements yet
  Teach(budget);
  EXPECT_NEAR(budget.PrefillTokens(8, 500, 64), 8, 1);  // 8 ms without prefill leave 2
  EXPECT_NEAR(budget.PrefillTokens(2, 500, 64), 20, 1);
  EXPECT_EQ(budget.PrefillTokens(0, 500, 64), 64);  // no answer waits for the step
  EXPECT_NEAR(budget.PrefillTokens(10, 500, 64), 4, 1);
  EXPECT_EQ(budget.PrefillTokens(16, 500, 64), 8);  // a minimum, though the target is exceeded
  EXPECT_EQ(budget.PrefillTokens(16, 500, 4), 4);
}

TEST(StepBudget, WithoutATargetItGrowsWithWhatWaits) {
  StepBudget budget(0);
  Teach(budget);
  EXPECT_NEAR(budget.PrefillTokens(8, 10, 64), 16, 1);     // half as long again
  EXPECT_NEAR(budget.PrefillTokens(8, 400, 64), 50, 1);    // an eighth of it
  EXPECT_NEAR(budget.PrefillTokens(8, 9000, 400), 96, 1);  // four times as long
}

TEST(StepBudget, ATenantGetsWhatTurnsWouldGiveIt) {
  StepBudget budget(0);
  EXPECT_EQ(budget.AnswersMax(2, 16), 2);  // no measurements yet
  Teach(budget);
  EXPECT_EQ(budget.AnswersMax(1, 16), 16);
  EXPECT_EQ(budget.AnswersMax(3, 16), 4);  // a step of 6 ms
  EXPECT_EQ(budget.AnswersMax(2, 16), 2);  // at least one of each
  EXPECT_EQ(budget.AnswersMax(6, 16), 16);
}

// Drafts of one client filled a step of two, which took five times as long as its budget.
TEST(StepBudget, AStepGrowsByOneBeyondWhatWasMeasured) {
  StepBudget budget(0);
  budget.AddAlone(10, 0.04);
  EXPECT_EQ(budget.AnswersMax(2, 16), 2);
  budget.Add(2, 0, StepTime(2, 0));
  EXPECT_EQ(budget.AnswersMax(2, 16), 3);
  budget.Add(3, 0, StepTime(3, 0));
  EXPECT_EQ(budget.AnswersMax(2, 16), 4);
  budget.Add(4, 0, 0.009);
  EXPECT_EQ(budget.AnswersMax(2, 16), 3);
}

// Until somebody had been alone, one key's sixteen answers shared every step with another's, whose
// tokens took five times as long; the same once many had been alone behind long contexts.
TEST(StepBudget, AStepIsBoundedWithoutMeasurementsAlone) {
  StepBudget unknown(0), poisoned(0);
  for (int answers = 2; answers <= 16; ++answers) {
    unknown.Add(answers, 0, StepTime(answers, 0));
    poisoned.Add(answers, 0, StepTime(answers, 0));
  }
  poisoned.AddAlone(10, 1);
  EXPECT_EQ(unknown.AnswersMax(2, 16), 12);  // a step of 10 ms, where one of two answers takes 5
  EXPECT_EQ(poisoned.AnswersMax(2, 16), 12);
}

// Three answers behind long contexts kept the steps of everybody after them at two answers.
TEST(StepBudget, ALongStepIsForgotten) {
  StepBudget budget(0);
  budget.Add(2, 0, StepTime(2, 0));
  budget.Add(3, 0, 1);
  EXPECT_EQ(budget.AnswersMax(2, 16), 2);
  int steps = 0;
  for (; budget.AnswersMax(2, 16) == 2 && steps < 2000; ++steps) budget.Add(2, 0, StepTime(2, 0));
  EXPECT_GT(steps, 100);
  EXPECT_LT(steps, 2000);
  budget.Add(3, 0, StepTime(3, 0));
  EXPECT_EQ(budget.AnswersMax(2, 16), 4);
}

TEST(StepBudget, SharingThatDoesNotPayIsTriedAgain) {
  StepBudget budget(0);
  EXPECT_TRUE(budget.Pays(2));
  budget.AddAlone(10, 0.02);
  for (int i = 0; i < 30; ++i) budget.Add(2, 0, 0.005), budget.Add(4, 0, 0.006);
  EXPECT_TRUE(budget.Pays(4));
  int turns = 0;
  while (!budget.Pays(2)) ++turns;
  EXPECT_GT(turns, 100);
  EXPECT_LT(turns, 2000);
}

}  // namespace
}  // namespace thermocline::sched
