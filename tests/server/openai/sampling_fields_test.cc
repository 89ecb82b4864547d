#include "server/openai/sampling_fields.h"

#include <gtest/gtest.h>

#include "engine/api/sampling_table.h"

namespace thermocline::openai {
namespace {

SamplingParams ReadOne(SamplingNames names, const char* name, double value, Status* status) {
  const Json body = Json::Object{{name, value}};
  Fields fields(body);
  SamplingParams params;
  ReadSampling(fields, names, params);
  *status = fields.status();
  return params;
}

TEST(SamplingFields, EveryRowIsReadByItsNamesInEveryApi) {
  for (const SamplingField& field : SamplingFields()) {
    for (const auto& [names, name] : {std::pair(SamplingNames::kOpenAi, field.name),
                                      {SamplingNames::kOpenAi, field.llama},
                                      {SamplingNames::kLlama, field.llama}}) {
      Status status;
      EXPECT_EQ(field.Get(ReadOne(names, name, field.range.max, &status)), field.range.max) << name;
      EXPECT_TRUE(status.ok()) << name;
      (void)ReadOne(names, name, field.range.max + 1, &status);
      EXPECT_EQ(status.field(), name);
    }
  }
}

TEST(SamplingFields, MinusOneTopKIsAllTokens) {
  for (const SamplingNames names : {SamplingNames::kOpenAi, SamplingNames::kLlama}) {
    Status status;
    EXPECT_EQ(ReadOne(names, "top_k", -1, &status).top_k, 0);
    EXPECT_TRUE(status.ok());
    (void)ReadOne(names, "top_k", -2, &status);
    EXPECT_EQ(status.field(), "top_k");
  }
}

TEST(SamplingFields, MinusOneIsASeedOfOpenAiAndDrawnByLlama) {
  Status status;
  EXPECT_EQ(ReadOne(SamplingNames::kOpenAi, "seed", -1, &status).seed, UINT64_MAX);
  EXPECT_NE(ReadOne(SamplingNames::kLlama, "seed", -1, &status).seed, UINT64_MAX);
  EXPECT_EQ(ReadOne(SamplingNames::kLlama, "seed", 7, &status).seed, 7u);
}

}  // namespace
}  // namespace thermocline::openai
