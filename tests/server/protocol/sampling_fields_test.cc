#include "server/protocol/sampling_fields.h"

#include <gtest/gtest.h>

#include "engine/api/sampling_table.h"

namespace thermocline::openai {
namespace {

SamplingParams ReadOne(protocol::SamplingNames names, const char* name, double value,
                       Status* status) {
  const Json body = Json::Object{{name, value}};
  protocol::Fields fields(body);
  SamplingParams params;
  protocol::ReadSampling(fields, names, params);
  *status = fields.status();
  return params;
}

TEST(SamplingFields, EveryRowIsReadByItsNamesInEveryApi) {
  for (const SamplingField& field : SamplingFields()) {
    for (const auto& [names, name] : {std::pair(protocol::SamplingNames::kOpenAi, field.name),
                                      {protocol::SamplingNames::kOpenAi, field.llama},
                                      {protocol::SamplingNames::kLlama, field.llama}}) {
      Status status;
      EXPECT_EQ(field.Get(ReadOne(names, name, field.range.max, &status)), field.range.max) << name;
      EXPECT_TRUE(status.ok()) << name;
      (void)ReadOne(names, name, field.range.max + 1, &status);
      EXPECT_EQ(status.field(), name);
    }
  }
}

TEST(SamplingFields, MinusOneTopKIsAllTokens) {
  for (const protocol::SamplingNames names :
       {protocol::SamplingNames::kOpenAi, protocol::SamplingNames::kLlama}) {
    Status status;
    EXPECT_EQ(ReadOne(names, "top_k", -1, &status).top_k, 0);
    EXPECT_TRUE(status.ok());
    (void)ReadOne(names, "top_k", -2, &status);
    EXPECT_EQ(status.field(), "top_k");
  }
}

TEST(SamplingFields, MinusOneIsASeedOfOpenAiAndDrawnByLlama) {
  Status status;
  EXPECT_EQ(ReadOne(protocol::SamplingNames::kOpenAi, "seed", -1, &status).seed, UINT64_MAX);
  EXPECT_NE(ReadOne(protocol::SamplingNames::kLlama, "seed", -1, &status).seed, UINT64_MAX);
  EXPECT_EQ(ReadOne(protocol::SamplingNames::kLlama, "seed", 7, &status).seed, 7u);
}

}  // namespace
}  // namespace thermocline::openai
