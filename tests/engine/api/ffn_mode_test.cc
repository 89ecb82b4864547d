// The texts of modes in options.
#include "engine/api/ffn_mode.h"

#include <gtest/gtest.h>

namespace thermocline {
namespace {

constexpr FfnMode kD = FfnMode::kDense, kE = FfnMode::kExact, kS = FfnMode::kSign,
                  kL = FfnMode::kLowRank, kT = FfnMode::kThreshold;

std::vector<FfnMode> Layers(const char* text) {
  const auto modes = ParseFfnModes(text, 5, kE);
  EXPECT_TRUE(modes.ok()) << text << ": " << modes.status().message();
  if (!modes.ok()) return {};
  EXPECT_FALSE(modes->automatic) << text;
  return modes->layers;
}

TEST(FfnMode, NamesGoBothWays) {
  for (const FfnMode mode : {kD, kE, kS, kL, kT}) EXPECT_EQ(*ParseFfnMode(FfnModeName(mode)), mode);
  EXPECT_TRUE(IsLossless(kD) && IsLossless(kE));
  EXPECT_FALSE(IsLossless(kS) || IsLossless(kL) || IsLossless(kT));
}

TEST(FfnMode, OneModeIsForAllLayers) {
  EXPECT_EQ(Layers("sign"), (std::vector{kS, kS, kS, kS, kS}));
  EXPECT_EQ(Layers("threshold"), (std::vector{kT, kT, kT, kT, kT}));
}

TEST(FfnMode, AutoAndNothingAreMeasured) {
  for (const char* text : {"auto", ""}) {
    const auto modes = ParseFfnModes(text, 5, kE);
    ASSERT_TRUE(modes.ok());
    EXPECT_TRUE(modes->automatic);
    EXPECT_TRUE(modes->layers.empty());
  }
}

TEST(FfnMode, RangesNameLayersAndTheLaterEntryWins) {
  EXPECT_EQ(Layers("0-1:dense,2-:lowrank"), (std::vector{kD, kD, kL, kL, kL}));
  EXPECT_EQ(Layers("3:sign"), (std::vector{kE, kE, kE, kS, kE}));
  EXPECT_EQ(Layers("4-4:sign"), (std::vector{kE, kE, kE, kE, kS}));
  EXPECT_EQ(Layers("4-:sign"), (std::vector{kE, kE, kE, kE, kS}));
  EXPECT_EQ(Layers("0-3:sign,2-4:dense"), (std::vector{kS, kS, kD, kD, kD}));
  EXPECT_EQ(Layers("sign,1:dense"), (std::vector{kS, kD, kS, kS, kS}));
  EXPECT_EQ(Layers("1:dense,sign"), (std::vector{kS, kS, kS, kS, kS}));
}

TEST(FfnMode, MistakesAreNamed) {
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"sparse", "'sparse' is unknown"},
           {"Sign", "'Sign' is unknown"},
           {"dense,,sign", "'' is unknown"},
           {"0-1:", "'' is unknown"},
           {":sign", "'' names no layers"},
           {"5:sign", "'5' names no layers; there are 0 to 4"},
           {"0-5:sign", "'0-5' names no layers"},
           {"3-2:sign", "'3-2' names no layers"},
           {"-2:sign", "'-2' names no layers"},
           {"-:sign", "'-' names no layers"},
           {"a-b:sign", "'a-b' names no layers"},
           {"1-2-3:sign", "'1-2-3' names no layers"},
           {"1.5:sign", "'1.5' names no layers"},
           {"99999999999:sign", "names no layers"},
           {"0-1:auto", "'auto' stands alone"},
           {"auto,1:sign", "'auto' stands alone"}}) {
    const auto modes = ParseFfnModes(text, 5, kE);
    ASSERT_EQ(modes.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(modes.status().message().find(words), std::string::npos) << modes.status().message();
  }
}

TEST(FfnMode, Lists) {
  EXPECT_EQ(*ParseFfnModeList("sign,dense"), (std::vector{kS, kD}));
  EXPECT_TRUE(ParseFfnModeList("")->empty());
  EXPECT_FALSE(ParseFfnModeList("sign,,dense").ok());
  EXPECT_NE(ParseFfnModeList("auto").status().message().find("stands alone"), std::string::npos);
}

}  // namespace
}  // namespace thermocline
