// Each part of the forward pass on an emulated device, alone. Its memory is the host's, so tests
// read it directly.
#include <cmath>
#include <thread>

#include "engine/gpu/device_home_layers.h"
#include "engine/gpu/device_partition.h"
#include "kernels/quantize.h"
#include "tests/engine/exec/device_models.h"

namespace thermocline::gpu {
namespace {

class DeviceParts : public exec::FfnModels {
 protected:
  void TearDown() override {
    on_device_.reset();
    device_.reset();
    static_cast<void>(kernels::EmulatedOps().runtime.reset());
    exec::FfnModels::TearDown();
  }

  // Puts all of `model` except neurons on the device.
  void Open(const std::string& path) {
    model_ = exec::Load({.path = path});
    device_ = exec::OpenEmulated();
    on_device_ = *DeviceModel::Create({.device = *device_,
                                       .config = model_->config,
                                       .weights = *model_->weights,
                                       .predictors = nullptr,
                                       .placement = exec::PlacementOf(*model_, {.every = 0})});
    const model::Weights& weights = *model_->weights;
    for (int l = 0; l < model_->config.num_hidden_layers; ++l)
      ASSERT_TRUE(on_device_->UploadDense(l, weights.layers[static_cast<std::size_t>(l)]).ok());
    ASSERT_TRUE(on_device_->UploadHead(weights.output_norm, weights.output).ok());
  }
  void Allocate(DeviceArena& arena) const {
    ASSERT_TRUE(arena.Allocate(*device_).ok());
    DeviceUploader uploader = *DeviceUploader::Create(stream());
    ASSERT_TRUE(arena.Upload(uploader, stream()).ok());
  }
  device::DeviceStream& stream() const { return on_device_->stream(); }
  int d() const { return model_->config.hidden_size; }

  // A row of random activations, rounded as in their Q8 form.
  std::vector<float> RandomRow(unsigned seed) const {
    std::vector<float> row(static_cast<std::size_t>(d()));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : row) x = normal(random);
    return row;
  }
  // y = matrix x, in doubles.
  static std::vector<float> Product(const kernels::PackedMatrix& matrix,
                                    const std::vector<float>& x) {
    std::vector<float> row(x.size()), y;
    for (int r = 0; r < matrix.rows; ++r) {
      kernels::DequantizePackedRow(matrix, r, row.data());
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(row[i]) * x[i];
      y.push_back(static_cast<float>(sum));
    }
    return y;
  }
  static void ExpectNear(std::span<const float> got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4F * (1 + std::fabs(want[i]))) << i;
  }

  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<DeviceModel> on_device_;
};

TEST_F(DeviceParts, TheKvCacheFollowsTheHostsBlocks) {
  Open(exec::kTidepool);
  const auto pool = *nn::KvPool::Create({model_->config, 4, model_->kv_type});
  DeviceKvCache kv({.config = model_->config, .layers = 2, .blocks = 4, .type = model_->kv_type});
  ASSERT_TRUE(kv.Allocate(stream()).ok());
  EXPECT_EQ(kv.bytes(), 4 * kv.block_bytes());
  nn::KvCache first(*pool, 64), second(*pool, 64);
  ASSERT_TRUE(first.Reserve(5));
  first.Advance(5);
  ASSERT_TRUE(kv.Follow(first, stream()).ok() && stream().Synchronize().ok());
  std::uint8_t *table[4] = {}, *copy[4] = {};
  kv.WriteTable(first, table);
  std::fill_n(table[0], kv.block_bytes(), 7);

  const nn::KvBlock shared = first.block(0);
  second.Adopt(std::span(&shared, 1), 4);
  ASSERT_TRUE(second.Reserve(1));  // takes a separate block
  ASSERT_TRUE(kv.Follow(second, stream()).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  kv.WriteTable(second, copy);
  EXPECT_NE(copy[0], table[0]);
  EXPECT_EQ(std::count(copy[0], copy[0] + kv.block_bytes(), 7),
            static_cast<std::ptrdiff_t>(kv.block_bytes()));
}

TEST_F(DeviceParts, TheKvCachesLayersFillABlock) {
  Open(exec::kTidepool);
  const model::ModelConfig& c = model_->config;
  for (const auto type : {kernels::KvType::kF32, kernels::KvType::kF16, kernels::KvType::kQ8_0}) {
    const DeviceKvCache kv({.config = c, .layers = 3, .blocks = 1, .type = type});
    const std::size_t layer = kv.block_bytes() / 3;
    for (int l = 0; l < 3; ++l) {
      const kernels::DeviceKv view = kv.View(l, nullptr);
      EXPECT_EQ(view.keys_offset, static_cast<std::size_t>(l) * layer);
      EXPECT_GT(view.values_offset, view.keys_offset);
      EXPECT_EQ(view.head_stride * static_cast<std::size_t>(c.num_key_value_heads), layer);
    }
  }
}

TEST_F(DeviceParts, AStepTakesPositionsTablesAndResidualThereAndBack) {
  Open(exec::kTidepool);
  DeviceKvCache kv({.config = model_->config, .layers = 1, .blocks = 4, .type = model_->kv_type});
  DeviceArena arena("step");
  DeviceStep step({.hidden_size = d(),
                   .tokens_max = 4,
                   .context_length = 64,
                   .parts_max = 2,
                   .returns_residual = true},
                  arena);
  Allocate(arena);
  ASSERT_TRUE(kv.Allocate(stream()).ok() && step.Allocate(*device_).ok());
  const auto pool = *nn::KvPool::Create({model_->config, 4, model_->kv_type});
  nn::KvCache first(*pool, 64), second(*pool, 64);
  ASSERT_TRUE(first.Reserve(20) && second.Reserve(1));
  first.Advance(17);
  std::vector<float> residual = RandomRow(1);
  residual.resize(static_cast<std::size_t>(3 * d()), 0.5F);
  const DevicePart parts[] = {{&first, 2, 0}, {&second, 1, 0}};
  ASSERT_TRUE(step.Send(parts, kv, residual.data(), stream()).ok());
  ASSERT_TRUE(step.Return(3, stream()).ok() && stream().Synchronize().ok());
  for (int t = 0; t < 3; ++t) {
    EXPECT_EQ(step.positions()[t], t < 2 ? 17 + t : 0);
    const nn::KvCache& cache = t < 2 ? first : second;
    std::vector<std::uint8_t*> table(cache.blocks().size());
    kv.WriteTable(cache, table.data());
    EXPECT_TRUE(std::equal(table.begin(), table.end(), step.tables()[t]));
  }
  EXPECT_TRUE(std::equal(residual.begin(), residual.end(), step.residual()));
  EXPECT_TRUE(std::equal(residual.begin(), residual.end(), step.result().begin()));
}

TEST_F(DeviceParts, AGraphIsRecordedOncePerKey) {
  Open(exec::kTidepool);
  DeviceArena arena("count");
  float *sum = nullptr, *one = nullptr;
  const std::vector<float> ones(static_cast<std::size_t>(d()), 1.0F);
  arena.Add(&sum, ones.size());
  arena.Add(&one, ones.size(), ones.data());
  Allocate(arena);
  const DeviceDense dense(*on_device_);
  RecordedGraph<int> graph;
  int recorded = 0;
  const auto put = [&] {
    ++recorded;
    return dense.Add(sum, one, 1);
  };
  for (const int key : {1, 1, 1, 2, 2}) ASSERT_TRUE(graph.Launch(stream(), key, put).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_EQ(recorded, 2);
  EXPECT_EQ(sum[0], 5);
  graph.Drop();
  ASSERT_TRUE(graph.Launch(stream(), 2, put).ok());
  EXPECT_EQ(recorded, 3);
  const auto fail = [] { return base::Unavailable("no"); };
  EXPECT_EQ(graph.Launch(stream(), 3, fail).message(), "no");
  EXPECT_TRUE(graph.Launch(stream(), 3, put).ok());  // the failed graph is not replayed
  EXPECT_EQ(recorded, 4);
}

TEST(DeviceHealth, OneFailureIsRebuiltASecondIsTheEnd) {
  int released = 0;
  DeviceHealth health([&] { ++released; }, [] { return false; });
  EXPECT_FALSE(health.failed());
  health.Fail(base::Unavailable("first"));
  health.Fail(base::Unavailable("follows from it"));
  EXPECT_TRUE(health.failed() && !health.dead());
  EXPECT_EQ(released, 1);
  const Status lost = health.MayRebuild(3);
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_EQ(lost.message(),
            "first (what it held of this sequence is lost: begin the sequence anew)");
  EXPECT_TRUE(health.MayRebuild(0).ok());
  EXPECT_TRUE(health.Rebuilt(OkStatus()).ok());
  EXPECT_FALSE(health.failed());
  health.Fail(base::Unavailable("second"));
  EXPECT_TRUE(health.failed() && health.dead());
  EXPECT_EQ(released, 2);
  EXPECT_NE(health.MayRebuild(0).message().find("restart the program"), std::string::npos);
}

TEST(DeviceHealth, AnErrorThatLosesTheProcessIsTheEndAtOnce) {
  DeviceHealth health([] {}, [] { return true; });
  health.Fail(base::Unavailable("an illegal access"));
  EXPECT_TRUE(health.dead());
  EXPECT_NE(health.MayRebuild(0).message().find("restart the program"), std::string::npos);
}

TEST(DeviceHealth, ARebuildThatFailsIsTheEnd) {
  DeviceHealth health([] {}, [] { return false; });
  health.Fail(base::Unavailable("first"));
  const Status failed = health.Rebuilt(base::ResourceExhausted("no room"));
  EXPECT_EQ(failed.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(failed.message().find("cannot be rebuilt"), std::string::npos);
  EXPECT_TRUE(health.failed() && health.dead());
}

TEST_F(DeviceParts, BothSidesSeeTheArraysOfAnExchange) {
  Open(exec::kTidepool);
  constexpr int kTokens = 3, kRuns = 2;
  DeviceExchange exchange(
      {.device = *device_, .tokens_max = kTokens, .hidden_size = 64, .runs = kRuns});
  exchange.Release();  // does nothing yet
  ASSERT_TRUE(exchange.Allocate().ok());
  const auto fill = [](const DeviceExchange::Arrays& a, int base, const auto& visit) {
    const std::size_t cells = ffn::kShareTokens * kRuns * 64;
    for (float* x : {a.x, a.residual, a.out}) visit(x, std::size_t{kTokens * 64}, base++);
    for (float* x : {a.home_maxima, a.maxima[0], a.maxima[1], a.minimums})
      visit(x, cells / 32, base++);
    for (std::int32_t* x : {a.high, a.low}) visit(x, cells, base++);
  };
  fill(exchange.host(), 1, []<typename T>(T* x, std::size_t n, int value) {
    std::fill_n(x, n, static_cast<T>(value));
  });
  fill(exchange.on_device(), 1, []<typename T>(const T* x, std::size_t n, int value) {
    EXPECT_EQ(std::count(x, x + n, static_cast<T>(value)), static_cast<std::ptrdiff_t>(n)) << value;
  });
}

// Attention of a sequence's first token to itself is its value vector.
TEST_F(DeviceParts, AttentionOfOneTokenIsItsValues) {
  Open(exec::kTidepoolFolder);
  DeviceKvCache kv({.config = model_->config, .layers = 2, .blocks = 1, .type = model_->kv_type});
  DeviceArena arena("attention");
  kernels::DeviceActivations hidden;
  float* out = nullptr;
  std::int32_t* position = nullptr;
  std::uint8_t **table = nullptr, ***tables = nullptr;
  AddActivations(arena, 1, d(), &hidden);
  arena.Add(&out, static_cast<std::size_t>(d()));
  arena.Add(&position, 1);
  arena.Add(&table, 1);
  arena.Add(&tables, 1);
  const DeviceAttention attention({.model = *on_device_,
                                   .kv = kv,
                                   .tokens_max = 1,
                                   .context_length = 16,
                                   .scratch_bytes = 1 << 20},
                                  arena);
  Allocate(arena);
  ASSERT_TRUE(kv.Allocate(stream()).ok());
  const auto pool = *nn::KvPool::Create({model_->config, 1, model_->kv_type});
  nn::KvCache cache(*pool, 16);
  ASSERT_TRUE(cache.Reserve(1) && stream().Synchronize().ok());
  kv.WriteTable(cache, table);
  *tables = table;
  const std::vector<float> x = RandomRow(2);
  std::copy(x.begin(), x.end(), hidden.x);
  for (const int layer : {0, 1}) {
    const model::LayerWeights& w = model_->weights->layers[static_cast<std::size_t>(layer)];
    const std::vector<float> values = Product(w.v.weight, x);
    std::vector<float> attended;  // each query head has its kv head's value
    const int heads = model_->config.num_attention_heads, dim = model_->config.head_dim,
              group = heads / model_->config.num_key_value_heads;
    for (int h = 0; h < heads; ++h)
      attended.insert(attended.end(), values.begin() + h / group * dim,
                      values.begin() + (h / group + 1) * dim);
    ASSERT_TRUE(attention.Put(layer, {hidden, position, tables, 1}, out, false).ok());
    ASSERT_TRUE(stream().Synchronize().ok());
    ExpectNear(std::span<const float>(out, static_cast<std::size_t>(d())),
               Product(w.attn_output.weight, attended));
  }
}

TEST_F(DeviceParts, TheHeadGivesLogits) {
  Open(exec::kTidepoolFolder);
  DeviceArena arena("head");
  DeviceHead head(*on_device_, 2, arena);
  float* residual = nullptr;  // [2, D]
  arena.Add(&residual, static_cast<std::size_t>(2 * d()));
  Allocate(arena);
  ASSERT_TRUE(head.Allocate().ok());
  const auto vocab = static_cast<std::size_t>(model_->config.vocab_size);
  std::vector<float> want;
  for (int t = 0; t < 2; ++t) {
    std::vector<float> x = RandomRow(3 + static_cast<unsigned>(t));
    std::copy(x.begin(), x.end(), residual + t * d());
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1 / std::sqrt(squares / d() + model_->config.norm_eps);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] *= static_cast<float>(scale) * model_->weights->output_norm.weight[i];
    const std::vector<float> logits = Product(model_->weights->output.weight, x);
    want.insert(want.end(), logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocab));
  }
  ASSERT_TRUE(head.Put(residual, 2).ok() && stream().Synchronize().ok());
  ExpectNear(head.logits(2), want);
  EXPECT_EQ(head.logits(1).size(), vocab);
}

// Both kinds of homes of a shared layer have the bits of the CPU alone.
TEST_F(DeviceParts, ASharedNetworkHasTheBitsOfOneSide) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = kernels::DType::kQ8_0});
  const auto alone = exec::Load({.path = path, .modes = "exact"});
  const auto whole = alone->MakeTransformer(16, 16);
  const auto placed = exec::LoadPlaced({.path = path, .modes = "exact"}, {.every = 3});
  const auto transformer = placed->MakeTransformer(16, 16);
  DeviceModel& model = *placed->device;
  DeviceFfn ffn({.model = model, .tokens_max = 16});
  DeviceExchange exchange({.device = model.device(),
                           .tokens_max = 16,
                           .hidden_size = model.config().hidden_size,
                           .runs = ffn.runs()});
  DeviceArena arena("shared");
  DeviceSharedFfn there({.model = model, .ffn = ffn, .exchange = exchange, .tokens_max = 16},
                        arena);
  HostSharedFfn here({.model = model, .ops = *placed->ops, .exchange = exchange, .tokens_max = 16});
  kernels::DeviceActivations hidden;
  float *residual = nullptr, *out = nullptr;
  const std::size_t size = Area(16, model.config().hidden_size);
  AddActivations(arena, 16, model.config().hidden_size, &hidden);
  arena.Add(&residual, size);
  arena.Add(&out, size);
  ASSERT_TRUE(arena.Allocate(model.device()).ok() && ffn.Allocate().ok());
  ASSERT_TRUE(exchange.Allocate().ok());
  for (const int tokens : {1, 5, 12}) {
    const exec::FfnInput input(*alone, tokens, static_cast<unsigned>(tokens));
    const std::vector<float> want = exec::RunFfn(*alone, *whole, 1, input);
    ASSERT_TRUE(model.stream().Synchronize().ok());
    std::copy(input.hidden().begin(), input.hidden().end(), hidden.x);
    ASSERT_EQ(model.ops().dense.quantize({.x = hidden, .tokens = tokens}, model.stream().handle()),
              0);
    there.BeginStep();
    here.BeginStep();
    ASSERT_TRUE(there.Put(1, FfnMode::kExact, {hidden, residual, tokens}, {out, false}, {}).ok());
    ASSERT_TRUE(here.Serve({1, tokens, false, tokens == 1, transformer->ffn()}).ok());
    ASSERT_TRUE(here.EndStep().ok());
    ASSERT_TRUE(model.stream().Synchronize().ok());
    EXPECT_EQ(std::vector<float>(out, out + want.size()), want) << tokens;
  }
  EXPECT_EQ(here.counters().cold.steps, 1);
}

}  // namespace
}  // namespace thermocline::gpu
