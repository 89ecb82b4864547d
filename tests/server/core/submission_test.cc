#include "server/core/submission.h"

#include <gtest/gtest.h>

namespace thermocline::server {
namespace {

using std::chrono::seconds;
const std::chrono::steady_clock::time_point kArrived{seconds(1000)};

TEST(DeadlineOf, CountsFromTheArrivalHoweverLateItIsAsked) {
  EXPECT_EQ(DeadlineOf(kArrived, 30, 0), kArrived + seconds(30));
  EXPECT_EQ(DeadlineOf(kArrived, 0, 5), kArrived + seconds(5));
}

TEST(DeadlineOf, AClientMayAskForLessTimeThanTheServerAllowsNotForMore) {
  EXPECT_EQ(DeadlineOf(kArrived, 30, 5), kArrived + seconds(5));
  EXPECT_EQ(DeadlineOf(kArrived, 30, 500), kArrived + seconds(30));
}

TEST(DeadlineOf, ZeroIsAnyTime) { EXPECT_EQ(DeadlineOf(kArrived, 0, 0), std::nullopt); }

TEST(Earliest, OfThoseThatThereAre) {
  EXPECT_EQ(Earliest({}), std::nullopt);
  EXPECT_EQ(Earliest({std::nullopt, kArrived, kArrived - seconds(1)}), kArrived - seconds(1));
}

// A server without a model, for rejections before the engine is used.
class SubmissionTest : public testing::Test {
 protected:
  static std::shared_ptr<const ReloadableConfig> MakeReloadableConfig() {
    auto reloadable = std::make_shared<ReloadableConfig>();
    reloadable->config.model_name = "tidepool";
    return reloadable;
  }
  Status Admit(const std::string& model) {
    return Submission::Admit(service_, {.id = "a", .tenant = "t", .arrived = kArrived},
                             {.model = model, .prompts = {std::string("x")}})
        .status();
  }

  Service service_{MakeReloadableConfig()};
};

TEST_F(SubmissionTest, AnotherModelIsNamedBeforeTheLoadingIs) {
  const Status other = Admit(std::string(500, 'x'));
  EXPECT_EQ(other.code(), StatusCode::kNotFound);
  EXPECT_EQ(other.reason(), Reason::kModelNotFound);
  EXPECT_LT(other.message().size(), 250u);
  EXPECT_EQ(Admit("tidepool").reason(), Reason::kLoading);
  EXPECT_EQ(Admit("").reason(), Reason::kLoading);
}

TEST_F(SubmissionTest, ADrainHasAReasonOfItsOwn) {
  service_.BeginDrain();
  EXPECT_EQ(Admit("").reason(), Reason::kDraining);
}

}  // namespace
}  // namespace thermocline::server
