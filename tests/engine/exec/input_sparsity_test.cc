// Mode inputs: the kept inputs are multiplied, in the file's layout or with copies; a token's
// result does not depend on other tokens; prefill is not sparse; unavailable settings are rejected
// by name.
#include <cmath>

#include "engine/model/open/open_model.h"
#include "tests/engine/exec/ffn_models.h"

namespace thermocline::exec {
namespace {

class InputSparsityTest : public FfnModels {
 protected:
  void SetUp() override {
    FfnModels::SetUp();
    model_ = Convert(kTidepoolFolder,
                     {.type = kernels::DType::kQ8_0, .down = model::DownLayout::kColumns});
  }
  // A side-car with one point that skips inputs below `threshold`.
  std::string SideCarOf(const std::string& path, float threshold, double kl = 0.01) {
    const auto file = *model::OpenModelFile(path);
    predictor::SideCar side_car = predictor::EmptySideCar(*predictor::IdentityOf(*file));
    side_car.input_points = {{.share = 0.4, .kl = kl, .perplexity_ratio = 1.01}};
    for (auto& layer : side_car.layers)
      layer.inputs = predictor::InputCalibration{.weights = {},
                                                 .thresholds = std::vector<float>(4, threshold)};
    const std::string out = folder_ + "/inputs.tcp";
    EXPECT_TRUE(predictor::WriteSideCar(out, side_car).ok());
    return out;
  }
  std::unique_ptr<load::LoadedModel> LoadInputs(const std::string& side_car, InputLayout layout,
                                                int threads = 1) const {
    load::LoadOptions options;
    options.model.path = model_;
    options.model.threads = threads;
    options.model.kv_type = kernels::KvType::kF32;
    options.model.ffn.modes = "inputs";
    options.model.ffn.side_car = side_car;
    options.model.ffn.input_layout = layout;
    auto model = load::LoadModel(options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return *std::move(model);
  }
  // The same with a wrong number of weights for one matrix.
  std::string WrongSideCar() {
    const std::string path = SideCarOf(model_, 0.3F);
    const auto file = *model::OpenModelFile(model_);
    auto side_car = *predictor::ReadSideCar(path, *predictor::IdentityOf(*file));
    side_car.layers[1].inputs->weights[1] = std::vector<float>(3, 1.0F);
    EXPECT_TRUE(predictor::WriteSideCar(path, side_car).ok());
    return path;
  }
  static double MeanDifference(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::fabs(static_cast<double>(a[i]) - b[i]);
    return sum / static_cast<double>(a.size());
  }

  std::string model_;
};

TEST_F(InputSparsityTest, WithoutThresholdsItIsTheWholeModel) {
  const auto whole = Load({.path = model_});
  const auto want = LogitsOf(*whole, 24, 1);
  const std::string none = SideCarOf(model_, 0);
  EXPECT_EQ(LogitsOf(*LoadInputs(none, InputLayout::kFile), 24, 1), want);
  // Copies are quantized along the other dimension.
  EXPECT_LT(MeanDifference(LogitsOf(*LoadInputs(none, InputLayout::kRows), 24, 1), want), 0.2);
}

TEST_F(InputSparsityTest, BothLayoutsLeaveTheSameOut) {
  const auto want = LogitsOf(*Load({.path = model_}), 24, 1);
  const std::string some = SideCarOf(model_, 0.3F);
  const auto file = LogitsOf(*LoadInputs(some, InputLayout::kFile), 24, 1);
  const auto rows = LogitsOf(*LoadInputs(some, InputLayout::kRows), 24, 1);
  const double lost = MeanDifference(file, want);
  EXPECT_GT(lost, 0.05);
  EXPECT_LT(MeanDifference(file, rows), lost);
  const auto model = LoadInputs(some, InputLayout::kRows);
  const auto transformer = model->MakeTransformer(1, 24);
  LogitsOf(*model, *transformer, 24, 1, Transformer::Step::kDecode);
  for (int kind = 0; kind < model::kInputKinds; ++kind) {
    const nn::InputCounts& counts =
        transformer->inputs()->counts(0, static_cast<model::InputKind>(kind));
    EXPECT_EQ(counts.tokens, 24);
    EXPECT_LT(counts.kept, counts.all);
    EXPECT_GT(counts.bytes, 0);
  }
}

TEST_F(InputSparsityTest, ATokensBitsDoNotDependOnOthersOrThreads) {
  const std::string some = SideCarOf(model_, 0.3F);
  for (const InputLayout layout : {InputLayout::kFile, InputLayout::kRows}) {
    const auto one = LoadInputs(some, layout), three = LoadInputs(some, layout, 3);
    const auto want = LogitsOf(*one, 30, 1);
    EXPECT_EQ(LogitsOf(*one, 30, 5), want);
    EXPECT_EQ(LogitsOf(*three, 30, 1), want);
    EXPECT_EQ(LogitsOf(*three, 30, 16), want);
  }
}

TEST_F(InputSparsityTest, CopiesArePlannedWhateverTypesGrow) {
  using kernels::DType;
  for (const DType type : {DType::kQ8_0, DType::kQ5_0, DType::kQ4_0, DType::kF16}) {
    const std::string path =
        Convert(kTidepoolFolder, {.type = type, .down = model::DownLayout::kColumns});
    const auto model = Load({.path = path});
    const std::size_t planned = model::InputMajorBytes(**model::OpenModelFile(path)),
                      taken = model::InputMajorBytes(*model->weights);
    EXPECT_GE(planned, taken);
    EXPECT_LT(planned, taken + taken / 100);
  }
}

TEST_F(InputSparsityTest, PromptsAreWhole) {
  const auto want = LogitsOf(*Load({.path = model_}), 24, 8, Transformer::Step::kPrefill);
  const auto inputs = LoadInputs(SideCarOf(model_, 0.3F), InputLayout::kRows);
  EXPECT_EQ(LogitsOf(*inputs, 24, 8, Transformer::Step::kPrefill), want);
}

TEST_F(InputSparsityTest, WhatCannotBeIsRefusedByName) {
  const auto says = [](const How& how, const std::string& words) {
    const auto model = TryLoad(how);
    ASSERT_FALSE(model.ok()) << words;
    EXPECT_NE(model.status().message().find(words), std::string::npos) << model.status().message();
  };
  says({.path = model_, .modes = "inputs", .side_car = folder_ + "/none.tcp"}, "none.tcp");
  says({.path = model_, .modes = "inputs", .side_car = SideCarOf(model_, 0.3F, 0.5)},
       "engine.kl_max");
  says({.path = model_, .modes = "inputs", .side_car = WrongSideCar()},
       "layer 1: inputs.weights of 'attention output' has 3 elements");
  says({.path = kTidepool, .modes = "inputs", .side_car = SideCarOf(kTidepool, 0.3F)},
       "neuron-major");
  says({.path = SOURCE_DIR "/config/models/tidepool-experts.gguf", .modes = "inputs"}, "inputs");
}

}  // namespace
}  // namespace thermocline::exec
