// FastestPrefetch measures quantized models and keeps the default for others.
#include "engine/load/prefetch_tuner.h"

#include <gtest/gtest.h>

#include "engine/load/loaded_model.h"

namespace thermocline::load {
namespace {

std::unique_ptr<LoadedModel> Tidepool() {
  LoadOptions options;
  options.model.path = "tidepool";
  auto model = LoadModel(options);
  EXPECT_TRUE(model.ok());
  return std::move(*model);
}

TEST(FastestPrefetch, IsTheDefaultWhereNothingIsMeasured) {
  const auto model = Tidepool();
  // Six layers of 256 x 256 may fit into a cache.
  EXPECT_EQ(FastestPrefetch(*model->weights, *model->ops, *model->pool), kernels::kPrefetchBytes);
  EXPECT_EQ(FastestPrefetch(*model->weights, kernels::ReferenceOps(), *model->pool, {.least = 1}),
            kernels::kPrefetchBytes);
}

TEST(FastestPrefetch, IsOneOfTheTwoMeasured) {
  const auto model = Tidepool();
  const int bytes = FastestPrefetch(*model->weights, *model->ops, *model->pool, {.least = 1});
  EXPECT_TRUE(bytes == 0 || bytes == kernels::kPrefetchBytes) << bytes;
}

}  // namespace
}  // namespace thermocline::load
