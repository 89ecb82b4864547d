// A model's own sampling defaults, from both formats and through a conversion.
#include "engine/model/sampling_metadata.h"

#include <gtest/gtest.h>

namespace thermocline::model {
namespace {

Json Parse(const std::string& text) { return *base::ParseJson(text); }

TEST(Sampling, IsReadFromGenerationConfig) {
  // Qwen2.5's file, unchanged.
  const auto sampling = SamplingFromGenerationConfig(
      Parse(R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
                "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20})"));
  ASSERT_TRUE(sampling.ok());
  EXPECT_EQ(ToString(*sampling), "temperature 0.7, top_k 20, top_p 0.8, repetition_penalty 1.05");
}

TEST(Sampling, OfAFileThatSaysNothingIsEmpty) {
  EXPECT_TRUE(SamplingFromGenerationConfig(Parse(R"({"temperature": null})"))->empty());
  EXPECT_TRUE(SamplingFromMetadata(Parse("{}"))->empty());
}

TEST(Sampling, MinusOneTopKIsAllTokens) {
  EXPECT_EQ(SamplingFromGenerationConfig(Parse(R"({"top_k": -1})"))->top_k, 0);
}

TEST(Sampling, GgufKeysSayTheSame) {
  const SamplingDefaults sampling = {.temperature = 0.6, .top_p = 0.95, .min_p = 0.05, .top_k = 40};
  Json::Object metadata;
  for (const auto& [key, value] : SamplingMetadata(sampling))  // a file holds 32 bits
    metadata.emplace_back(
        key, value.is_int() ? value : Json(double{static_cast<float>(value.as_double())}));
  const auto again = SamplingFromMetadata(Json(std::move(metadata)));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, sampling);
}

TEST(Sampling, ValuesOutOfRangeAreRefusedByName) {
  for (const char* text : {R"({"temperature": "hot"})", R"({"top_p": 1.5})", R"({"top_k": -2})"}) {
    const auto refused = SamplingFromGenerationConfig(Parse(text));
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(refused.status().message().find(std::string(text).substr(2, 5)), std::string::npos)
        << refused.status().message();
  }
}

TEST(Sampling, WhatIsAskedForGoesBeforeTheModels) {
  const SamplingDefaults asked = {.temperature = 1.0}, models = {.temperature = 0.7, .top_p = 0.9};
  const SamplingParams params = WithDefaults({}, Merge(asked, models));
  EXPECT_EQ(params.temperature, 1.0);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.top_k, 0);
}

}  // namespace
}  // namespace thermocline::model
