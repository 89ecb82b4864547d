// Tests the judgement of answers against lm-evaluation-harness (tests/golden/make_task.py).
#include "tools/eval/task.h"

#include <gtest/gtest.h>

#include "engine/base/file.h"
#include "engine/base/json.h"

namespace thermocline::tools {
namespace {

TEST(Task, AnswersAreJudgedAsByTheHarness) {
  const Json golden =
      *base::ParseJson(*base::ReadFileToString(SOURCE_DIR "/tests/golden/task.json"));
  const Json::Array& cases = golden.Find("judged")->as_array();
  ASSERT_GT(cases.size(), 10U);
  for (const Json& each : cases) {
    const auto text = [&](const char* key) { return each.Find(key)->as_string(); };
    SCOPED_TRACE(text("text"));
    EXPECT_EQ(StrictAnswer(text("text")), text("strict"));
    EXPECT_EQ(FlexibleAnswer(text("text")), text("flexible"));
    EXPECT_EQ(SameAnswer(text("strict"), text("answer")), each.Find("right_strict")->as_bool());
    EXPECT_EQ(SameAnswer(text("flexible"), text("answer")), each.Find("right_flexible")->as_bool());
  }
}

}  // namespace
}  // namespace thermocline::tools
