#include "engine/api/sampling_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace thermocline {
namespace {

TEST(SamplingTable, RowsAgreeWithThemselves) {
  std::set<std::string> names, llama, grpc;
  const SamplingParams silent;
  for (const SamplingField& field : SamplingFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(llama.insert(field.llama).second) << field.llama;
    EXPECT_TRUE(grpc.insert(field.grpc).second) << field.grpc;
    EXPECT_NE(field.number == nullptr, field.whole == nullptr) << field.name;
    EXPECT_EQ(field.has_preference(), field.gguf != nullptr) << field.name;
    EXPECT_EQ(field.preferred_whole != nullptr, field.whole != nullptr && field.gguf != nullptr);
    EXPECT_EQ(field.step > 0, *field.title != 0) << field.name;
    EXPECT_GE(field.Get(silent), field.range.min) << field.name;
    EXPECT_LE(field.Get(silent), field.range.max) << field.name;
  }
}

TEST(SamplingTable, BothEndsOfEveryRangeAreTakenAndNothingBeyond) {
  for (const SamplingField& field : SamplingFields()) {
    for (const double end : {field.range.min, field.range.max}) {
      SamplingParams params;
      field.Set(params, end);
      EXPECT_EQ(field.Get(params), end) << field.name;
      EXPECT_TRUE(ValidateSampling(params).ok()) << field.name;
      field.Set(params, end == field.range.min ? end - 1 : end + 1);
      EXPECT_EQ(ValidateSampling(params).field(), field.name);
    }
  }
}

// The operator's preference wins over the model makers', and both over the default.
TEST(SamplingTable, PreferencesHoldWhereTheOthersAreSilent) {
  const SamplingDefaults first = {.temperature = 0.5}, second = {.temperature = 0.7, .top_k = 9};
  const SamplingDefaults merged = Merge(first, second);
  EXPECT_EQ(merged, (SamplingDefaults{.temperature = 0.5, .top_k = 9}));
  const SamplingParams params = WithDefaults({}, merged);
  EXPECT_EQ(params.temperature, 0.5);
  EXPECT_EQ(params.top_k, 9);
  EXPECT_EQ(params.top_p, SamplingParams().top_p);
  EXPECT_EQ(ToString(merged), "temperature 0.5, top_k 9");
}

}  // namespace
}  // namespace thermocline
