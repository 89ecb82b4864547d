#include "engine/base/status.h"

#include <gtest/gtest.h>

namespace thermocline::base {
namespace {

TEST(Status, OkIsOnePointerAndSaysNothing) {
  static_assert(sizeof(Status) == sizeof(void*));
  const Status ok = OkStatus().WithReason(Reason::kInternal).WithField("n").WithNumber("n", 1);
  EXPECT_TRUE(ok.ok() && ok.Annotate("here").ok());
  EXPECT_EQ(ok.reason(), Reason::kNone);
  EXPECT_EQ(ok.message(), "");
  EXPECT_EQ(ok.field(), "");
  EXPECT_TRUE(ok.numbers().empty());
  EXPECT_TRUE(Status(StatusCode::kOk, "words").ok());
}

TEST(Status, EveryCodeHasAReasonOfItsOwn) {
  EXPECT_EQ(InvalidArgument("x").reason(), Reason::kInvalidField);
  EXPECT_EQ(Unavailable("x").reason(), Reason::kUnavailable);
  EXPECT_EQ(DataLoss("x").reason(), Reason::kDataLoss);
  EXPECT_EQ(Unauthenticated("x").reason(), Reason::kUnknownKey);
}

TEST(Status, CopiesAndAnnotationsKeepReasonFieldAndNumbers) {
  const Status first = OutOfRange("too long")
                           .WithReason(Reason::kContextLength)
                           .WithField("prompt")
                           .WithNumber("n_ctx", 512);
  Status copy;
  copy = first;
  const Status second = copy.Annotate("chat").WithField("messages");
  EXPECT_EQ(second.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(second.reason(), Reason::kContextLength);
  EXPECT_EQ(second.field(), "messages");
  EXPECT_EQ(second.message(), "chat: too long");
  EXPECT_EQ(second.numbers(), (std::vector<Status::Number>{{"n_ctx", 512}}));
  EXPECT_EQ(copy.field(), "prompt");
  EXPECT_EQ(first.message(), "too long");
}

}  // namespace
}  // namespace thermocline::base
