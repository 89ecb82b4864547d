// The modes of the feed-forward network: exact modes keep the bits, and the others skip the rows
// that they should.
#include "engine/ffn/sparse_ffn.h"

#include <climits>
#include <cmath>

#include "tests/engine/exec/ffn_models.h"

namespace thermocline::ffn {
namespace {

using kernels::DType;
using model::DownLayout;
using Step = exec::Transformer::Step;

class SparseFfnTest : public exec::FfnModels {
 protected:
  // Expects every way of running `path` in mode exact to give the bits of dense networks, one token
  // at a time.
  static void ExpectExactIsDense(const std::string& path, const std::string& isa, int count) {
    const auto dense = exec::Load({.path = path, .isa = isa});
    ASSERT_NE(dense, nullptr);
    const std::vector<float> expected = exec::LogitsOf(*dense, count, 1);
    // The scalar kernels are slow, and do not depend on threads and batches.
    const bool scalar = isa == "reference";
    for (const int threads : scalar ? std::vector{2} : std::vector{1, 2, 3}) {
      const auto exact =
          exec::Load({.path = path, .modes = "exact", .isa = isa, .threads = threads});
      ASSERT_NE(exact, nullptr);
      ASSERT_TRUE(exec::LogitsOf(*exact, count, 1) == expected)
          << path << " " << isa << " " << threads;
      if (threads != 2) continue;
      for (const int batch : scalar ? std::vector{5} : std::vector{2, 5, 16})
        EXPECT_TRUE(exec::LogitsOf(*exact, count, batch) == expected)
            << path << " " << isa << " " << batch;
      for (const int batch : scalar ? std::vector{17} : std::vector{3, 17, 64})
        EXPECT_TRUE(exec::LogitsOf(*exact, count, batch, Step::kPrefill) == expected)
            << path << " " << isa << " prefill " << batch;
    }
  }

  static void ExpectExactIsDense(const std::string& path, int count) {
    for (int i = 0; i < kernels::CpuTables().count; ++i) {
      const std::string isa = kernels::CpuTables().tables[i]->name;
      ExpectExactIsDense(path, isa, isa == "reference" ? std::min(count, 6) : count);
    }
  }
};

TEST_F(SparseFfnTest, ExactIsDenseWithDownRowsOfEveryType) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
        DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ2_K,
        DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kTQ2_0}) {
    ExpectExactIsDense(Convert(exec::kTidepoolFolder, {.type = type}), 64);
  }
}

TEST_F(SparseFfnTest, ExactIsDenseWithDownColumns) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K})
    ExpectExactIsDense(Convert(exec::kTidepoolFolder, {.type = type, .down = DownLayout::kColumns}),
                       64);
}

// Sizes that fit no vector, networks without a gate, biases, squared and double ReLU.
TEST_F(SparseFfnTest, ExactIsDenseInEveryFamilyWithTrueZeros) {
  for (const char* family : {"opt", "nemotron", "bamboo", "llama_relu", "persimmon", "bitnet"}) {
    ExpectExactIsDense(exec::Family(family), 20);
    for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
      for (const DownLayout down : {DownLayout::kRows, DownLayout::kColumns})
        ExpectExactIsDense(Convert(exec::Family(family), {.type = type, .down = down}), 20);
    }
  }
}

TEST_F(SparseFfnTest, ExactIsDenseWithFatReluAndItsThreshold) {
  for (const DownLayout down : {DownLayout::kRows, DownLayout::kColumns}) {
    const std::string path =
        Convert(exec::kTidepoolFolder, {.type = DType::kQ4_0,
                                        .down = down,
                                        .activation = model::Activation::kFatRelu,
                                        .fatrelu_threshold = 0.125});
    const auto model = exec::Load({.path = path});
    EXPECT_EQ(model->config.fatrelu_threshold, 0.125);
    EXPECT_FALSE(
        exec::LogitsOf(*model, 8, 1) ==
        exec::LogitsOf(*exec::Load({.path = path, .activation = Activation::kRelu}), 8, 1));
    ExpectExactIsDense(path, 20);
  }
}

TEST_F(SparseFfnTest, ExactReadsOnlyLiveRows) {
  const auto model = exec::Load(
      {.path = Convert(exec::kTidepoolFolder, {.type = DType::kQ4_0}), .modes = "exact"});
  const auto transformer = model->MakeTransformer(1, 32);
  exec::LogitsOf(*model, *transformer, 16, 1, Step::kDecode);
  for (int l = 0; l < model->config.num_hidden_layers; ++l) {
    const FfnCounters& c = transformer->ffn().counters(l);
    const std::int64_t all = 16 * model->config.intermediate_size;
    EXPECT_EQ(c.steps, 16);
    EXPECT_EQ(c.gate_rows, all);
    EXPECT_GT(c.up_rows, 0);
    EXPECT_LT(c.up_rows, all * 3 / 4) << "layer " << l;  // these tokens are not text
    EXPECT_LE(c.down_rows, c.up_rows);
    EXPECT_GT(c.down_rows, 0);
    // Q4_0 rows of 256 columns.
    EXPECT_EQ(c.bytes, (c.gate_rows + c.up_rows + c.down_rows) * 256 / 32 * 18);
    EXPECT_EQ(transformer->ffn().dense_bytes(l), 3 * 1024 * 256 / 32 * 18);
  }
}

TEST_F(SparseFfnTest, PredictedModesGiveATokenItsBitsInAnyBatch) {
  struct Case {
    std::string source;
    DType type;
    DownLayout down;
    bool before_norm;
  };
  const std::vector<Case> cases = {
      {exec::kTidepoolFolder, DType::kQ4_0, DownLayout::kRows, false},
      {exec::kTidepoolFolder, DType::kQ8_0, DownLayout::kColumns, true},
      {exec::kTidepoolFolder, DType::kF16, DownLayout::kRows, true},
      {exec::Family("opt"), DType::kF32, DownLayout::kRows, false},
      {exec::Family("bamboo"), DType::kF16, DownLayout::kRows, true},
      {exec::Family("nemotron"), DType::kF32, DownLayout::kColumns, false}};
  for (const Case& c : cases) {
    const std::string path = Convert(c.source, {.type = c.type, .down = c.down});
    WriteRandomSideCar(path, c.before_norm, 32, 0.01F);
    const auto dense = exec::LogitsOf(*exec::Load({.path = path}), 33, 1);
    for (const char* mode : {"sign", "lowrank", "threshold"}) {
      const auto alone = exec::LogitsOf(*exec::Load({.path = path, .modes = mode}), 33, 1);
      EXPECT_FALSE(alone == dense) << path << " " << mode << " skips nothing";
      for (const int threads : {2, 3}) {
        const auto model = exec::Load({.path = path, .modes = mode, .threads = threads});
        for (const int batch : {1, 2, 5, 16})
          EXPECT_TRUE(exec::LogitsOf(*model, 33, batch) == alone)
              << c.source << " " << mode << ", " << threads << " threads, batches of " << batch;
        // Prefill is lossless, and so are steps of more tokens than may share rows.
        for (const int batch : {1, 5, 33})
          EXPECT_TRUE(exec::LogitsOf(*model, 33, batch, Step::kPrefill) == dense)
              << c.source << mode;
        EXPECT_TRUE(exec::LogitsOf(*model, 33, 33) == dense) << c.source << mode;
      }
    }
  }
}

// Makes the predictors of all layers select all neurons, or none.
void SetThresholds(load::LoadedModel& model, std::int32_t sign, float low_rank) {
  for (predictor::LayerPredictors& layer : model.predictors->layers) {
    if (layer.sign.has_value())
      std::fill(layer.sign->thresholds.begin(), layer.sign->thresholds.end(), sign);
    if (layer.low_rank.has_value()) layer.low_rank->threshold = low_rank;
  }
}

TEST_F(SparseFfnTest, PredictingAllIsDenseAndPredictingNoneIsNothing) {
  for (const std::string& source :
       {exec::kTidepoolFolder, exec::Family("opt"), exec::Family("llama_relu")}) {
    for (const DownLayout down : {DownLayout::kRows, DownLayout::kColumns}) {
      const std::string path = Convert(source, {.type = DType::kF16, .down = down});
      WriteRandomSideCar(path, false, 32, 0);
      const auto dense = exec::LogitsOf(*exec::Load({.path = path}), 20, 1);
      for (const char* mode : {"sign", "lowrank"}) {
        const auto model = exec::Load({.path = path, .modes = mode, .threads = 2});
        const auto transformer = model->MakeTransformer(5, 20, 5);
        SetThresholds(*model, INT_MIN, -1e9F);
        for (const int batch : {1, 5})
          EXPECT_TRUE(exec::LogitsOf(*model, *transformer, 20, batch, Step::kDecode) == dense)
              << source << mode;
        SetThresholds(*model, INT_MAX, 1e9F);
        const auto rows = transformer->ffn().counters(0).gate_rows;
        const exec::FfnInput input(*model, 3, 1), one(*model, 1, 1);
        const float* bias = model->weights->layers[0].down.bias;
        const auto out = exec::RunFfn(*model, *transformer, 0, input);
        const auto d = static_cast<std::size_t>(model->config.hidden_size);
        for (std::size_t i = 0; i < out.size(); ++i)
          ASSERT_EQ(out[i], bias != nullptr ? bias[i % d] : 0.0F) << source << mode << i;
        exec::RunFfn(*model, *transformer, 0, one);
        EXPECT_EQ(transformer->ffn().counters(0).gate_rows, rows) << source << mode;
        EXPECT_TRUE(transformer->ffn().predicted().empty());
      }
    }
  }
}

// A shift of thresholds at the ends of their range does not overflow.
TEST_F(SparseFfnTest, ShiftsDoNotOverflowThresholds) {
  const auto model = exec::Load({.path = exec::kTidepool, .modes = "sign"});
  const auto transformer = model->MakeTransformer(1, 8);
  const exec::FfnInput input(*model, 1, 3);
  for (const float shift : {-100.0F, 100.0F}) {
    transformer->ffn().policy(2).shift = shift;
    SetThresholds(*model, INT_MIN, 0);
    exec::RunFfn(*model, *transformer, 2, input);
    EXPECT_EQ(transformer->ffn().predicted().size(), 1024U) << shift;
    SetThresholds(*model, INT_MAX, 0);
    exec::RunFfn(*model, *transformer, 2, input);
    EXPECT_EQ(transformer->ffn().predicted().size(), 0U) << shift;
  }
}

// The score by the definition in kernels/sign_predict.h, from weights as floats.
std::vector<double> SignScores(const model::NeuronMatrix& matrix, const float* x, int slices,
                               int planes, const std::vector<std::int32_t>& columns) {
  const int rows = matrix.linear.weight.rows, cols = static_cast<int>(columns.size());
  double square = 0;
  for (const int c : columns) square += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  const double step = std::sqrt(square / cols) * static_cast<double>(kernels::kSliceStep[slices]);
  std::vector<double> scores;
  std::vector<float> w(static_cast<std::size_t>(matrix.linear.weight.cols));
  for (int r = 0; r < rows; ++r) {
    predictor::DequantizeNeuron(matrix, r, w.data());
    double mean = 0, score = 0;
    for (const int c : columns)
      mean += std::fabs(static_cast<double>(w[static_cast<std::size_t>(c)])) / cols;
    for (const int c : columns) {
      const auto weight = static_cast<double>(w[static_cast<std::size_t>(c)]);
      double m = 1;
      if (slices > 1)
        m = std::min(std::floor(std::fabs(static_cast<double>(x[c])) / step + 0.5),
                     std::exp2(slices) - 1);
      if (planes == 2 && std::fabs(weight) > mean) m *= 3;
      score += (weight < 0) == (x[c] < 0) ? m : -m;
    }
    scores.push_back(score);
  }
  return scores;
}

// Checks that layer 1 predicts the neurons whose scores reach their thresholds, after writing the
// sign predictor `sign` to the side-car file `tcp`.
void ExpectSignPredicts(const std::string& path, const predictor::SignCalibration& sign,
                        predictor::SideCar side_car, const std::string& tcp) {
  for (predictor::LayerSideCar& layer : side_car.layers) layer.sign = sign;
  const Status written = predictor::WriteSideCar(tcp, side_car);
  ASSERT_TRUE(written.ok()) << written.message();
  const auto model = exec::Load({.path = path, .modes = "sign", .side_car = tcp, .threads = 2});
  ASSERT_NE(model, nullptr);
  std::vector<std::int32_t> columns = sign.columns;
  for (int c = 0; sign.columns.empty() && c < model->config.hidden_size; ++c) columns.push_back(c);
  const auto transformer = model->MakeTransformer(1, 8);
  for (const unsigned seed : {1U, 2U, 3U}) {
    const exec::FfnInput input(*model, 1, seed);
    transformer->ffn().policy(1).shift = 5;
    exec::RunFfn(*model, *transformer, 1, input);
    const auto scores = SignScores(predictor::DecidingMatrix(model->weights->layers[1]),
                                   input.hidden().data(), sign.slices, sign.planes, columns);
    std::vector<int> expected;
    for (std::size_t i = 0; i < scores.size(); ++i)
      if (scores[i] >= sign.thresholds[i] + 5) expected.push_back(static_cast<int>(i));
    const auto got = transformer->ffn().predicted();
    EXPECT_EQ(std::vector<int>(got.begin(), got.end()), expected)
        << path << " " << sign.slices << " slices, " << sign.planes << " planes";
    EXPECT_GT(expected.size(), 0U);
    EXPECT_LT(expected.size(), scores.size());
  }
}

TEST_F(SparseFfnTest, SignPredictsTheRowsWhoseScoreReachesTheThreshold) {
  std::mt19937 random(1);
  for (const std::string& source : {exec::kTidepool, exec::Family("opt"), exec::Family("bamboo")}) {
    const predictor::SideCar side_car = EmptySideCarOf(source);
    for (const auto& [slices, planes] : {std::pair{1, 1}, {1, 2}, {3, 1}, {4, 2}}) {
      for (const int stride : {1, 3}) {  // of the columns
        predictor::SignCalibration sign{
            .slices = slices, .planes = planes, .columns = {}, .thresholds = {}};
        for (int i = 0; i < side_car.intermediate_size; ++i)
          sign.thresholds.push_back(static_cast<std::int32_t>(random() % 65) - 32);
        for (int c = 0; stride > 1 && c < side_car.hidden_size; c += stride)
          sign.columns.push_back(c);
        ExpectSignPredicts(source, sign, side_car, folder_ + "/sign.tcp");
      }
    }
  }
}

std::vector<double> Times(const kernels::PackedMatrix& m, const std::vector<double>& x) {
  std::vector<double> out;
  std::vector<float> w(static_cast<std::size_t>(m.cols));
  for (int r = 0; r < m.rows; ++r) {
    kernels::DequantizePackedRow(m, r, w.data());
    double sum = 0;
    for (std::size_t c = 0; c < w.size(); ++c) sum += static_cast<double>(w[c]) * x[c];
    out.push_back(sum);
  }
  return out;
}

TEST_F(SparseFfnTest, LowRankPredictsTheRowsWhoseLogitReachesTheThreshold) {
  for (const bool before_norm : {false, true}) {
    for (const int rank : {16, 32}) {  // one is f16 and one Q8_0
      const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ8_0});
      WriteRandomSideCar(path, before_norm, rank, 0);
      const auto model = exec::Load({.path = path, .modes = "lowrank"});
      const auto transformer = model->MakeTransformer(1, 8);
      for (const int layer : {0, 1}) {  // ranks differ
        const exec::FfnInput input(*model, 1, 5);
        const predictor::LowRankRun& run =
            *model->predictors->layers[static_cast<std::size_t>(layer)].low_rank;
        EXPECT_EQ(run.fc1.rows, rank * (1 + layer));
        const std::vector<float>& x = before_norm ? input.residual() : input.hidden();
        std::vector<double> z = Times(run.fc1, {x.begin(), x.end()});
        for (double& each : z) each = std::max(0.0, each);
        const std::vector<double> logits = Times(run.fc2, z);
        double scale = 0;
        for (const double logit : logits) scale = std::max(scale, std::fabs(logit));
        exec::RunFfn(*model, *transformer, layer, input);
        const auto got = transformer->ffn().predicted();
        std::vector<bool> predicted(logits.size());
        for (const int i : got) predicted[static_cast<std::size_t>(i)] = true;
        int sure = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
          if (std::fabs(logits[i]) < 0.02 * scale) continue;  // within the rounding of activations
          ++sure;
          ASSERT_EQ(predicted[i], logits[i] > 0) << i << ": " << logits[i];
        }
        EXPECT_GT(sure, 800);
        EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
      }
    }
  }
}

TEST_F(SparseFfnTest, ThresholdSkipsExactlyWhatIsBelowIt) {
  for (const DType type : {DType::kF32, DType::kF16}) {
    for (const DownLayout down : {DownLayout::kRows, DownLayout::kColumns}) {
      const std::string path = Convert(exec::Family("llama2"), {.type = type, .down = down});
      const auto dense = exec::Load({.path = path});
      WriteRandomSideCar(path, false, 8, 0);
      const auto zero = exec::Load({.path = path, .modes = "threshold", .threads = 2});
      EXPECT_TRUE(exec::LogitsOf(*zero, 20, 1) == exec::LogitsOf(*dense, 20, 1));
      EXPECT_TRUE(exec::LogitsOf(*zero, 20, 5) == exec::LogitsOf(*dense, 20, 1));
      const auto transformer = zero->MakeTransformer(1, 8);
      const exec::FfnInput input(*zero, 1, 9);
      const std::vector<double> x(input.hidden().begin(), input.hidden().end());
      std::vector<double> act = Times(dense->weights->layers[1].gate.linear.weight, x);
      for (double& a : act) a = std::fabs(a / (1 + std::exp(-a)));
      std::vector<double> sorted = act;
      std::sort(sorted.begin(), sorted.end());
      for (const std::size_t skipped : {1U, 20U, 71U}) {
        transformer->ffn().policy(1).shift =
            static_cast<float>((sorted[skipped - 1] + sorted[skipped]) / 2);
        const std::int64_t before = transformer->ffn().counters(1).up_rows;
        exec::RunFfn(*zero, *transformer, 1, input);
        EXPECT_EQ(transformer->ffn().counters(1).up_rows - before,
                  static_cast<std::int64_t>(act.size() - skipped));
      }
    }
  }
}

TEST_F(SparseFfnTest, LayersHaveModesOfTheirOwn) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ4_0});
  const auto dense = exec::LogitsOf(*exec::Load({.path = path}), 20, 1);
  for (const char* modes : {"0-1:dense,2-:exact", "3:dense", "dense,5:exact"})
    EXPECT_TRUE(exec::LogitsOf(*exec::Load({.path = path, .modes = modes}), 20, 1) == dense)
        << modes;
  const auto model = exec::Load({.path = path, .modes = "sign,0-1:dense,4-:exact"});
  const auto transformer = model->MakeTransformer(1, 20);
  exec::LogitsOf(*model, *transformer, 20, 1, Step::kDecode);
  for (int l = 0; l < 6; ++l) {
    const FfnCounters& c = transformer->ffn().counters(l);
    EXPECT_EQ(c.up_rows == 20 * 1024, l < 2) << l;
    EXPECT_EQ(c.gate_rows == 20 * 1024, l < 2 || l >= 4) << l;
    EXPECT_EQ(c.predictor_bytes > 0, l == 2 || l == 3) << l;
  }
}

}  // namespace
}  // namespace thermocline::ffn
