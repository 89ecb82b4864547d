// The modes and predictors that options select: rejections and their reasons, and the counts of
// audits.
#include "engine/load/ffn_setup.h"

#include <cmath>
#include <fstream>

#include "engine/adapt/ffn_governor.h"
#include "engine/base/file.h"
#include "engine/load/mode_tuner.h"
#include "engine/load/this_machine.h"
#include "engine/model/fingerprint.h"
#include "engine/model/open/open_model.h"
#include "engine/placement/placement_file.h"
#include "tests/engine/exec/audited.h"

namespace thermocline::load {
namespace {

using kernels::DType;

class FfnSetupTest : public exec::FfnModels {
 protected:
  static void ExpectRefused(const exec::How& how, StatusCode code,
                            const std::vector<std::string>& words) {
    const auto model = exec::TryLoad(how);
    ASSERT_FALSE(model.ok()) << how.modes;
    EXPECT_EQ(model.status().code(), code) << model.status().message();
    for (const std::string& word : words)
      EXPECT_NE(model.status().message().find(word), std::string::npos)
          << "no '" << word << "' in: " << model.status().message();
  }
};

TEST_F(FfnSetupTest, ModesThatNeedZerosAreRefusedWithoutThem) {
  for (const char* modes : {"sign", "exact", "lowrank", "1:sign"})
    ExpectRefused({.path = exec::Family("llama2"), .modes = modes}, StatusCode::kFailedPrecondition,
                  {"exactly zero", "silu", "dense"});
  ExpectRefused({.path = exec::Family("falcon7"), .modes = "exact"},
                StatusCode::kFailedPrecondition, {"gelu"});
  ExpectRefused({.path = exec::Family("llama2"), .modes = "dense", .also = "sign"},
                StatusCode::kFailedPrecondition, {"silu"});
  EXPECT_NE(exec::Load(
                {.path = exec::Family("llama2"), .modes = "sign", .activation = Activation::kRelu}),
            nullptr);
  EXPECT_NE(exec::Load({.path = exec::Family("llama2"), .modes = "auto"}), nullptr);
  EXPECT_NE(exec::Load({.path = exec::Family("llama2"), .modes = "0:dense"}), nullptr);
}

TEST_F(FfnSetupTest, ModesWithoutTheirPredictorSayWhatMakesIt) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ8_0});
  ExpectRefused({.path = path, .modes = "lowrank"}, StatusCode::kFailedPrecondition,
                {"train-predictor"});
  ExpectRefused({.path = path, .modes = "threshold"}, StatusCode::kFailedPrecondition,
                {"calibrate"});
  ExpectRefused({.path = path, .modes = "sign", .side_car = folder_ + "/none.tcp"},
                StatusCode::kNotFound, {"none.tcp"});
}

TEST_F(FfnSetupTest, ALayerWithoutPredictorIsNamed) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ8_0});
  WriteRandomSideCar(path, false, 16, 0.1F);
  const auto identity = *predictor::IdentityOf(**model::OpenModelFile(path));
  const std::string tcp = predictor::SideCarPath(path);
  for (const std::size_t missing : {0U, 3U}) {
    auto s = *predictor::ReadSideCar(tcp, identity);
    s.layers[missing].low_rank.reset();
    s.layers[missing].threshold.reset();
    ASSERT_TRUE(predictor::WriteSideCar(folder_ + "/part.tcp", s).ok());
    for (const char* mode : {"lowrank", "threshold"})
      ExpectRefused({.path = path, .modes = mode, .side_car = folder_ + "/part.tcp"},
                    StatusCode::kFailedPrecondition, {StrCat("layer ", missing)});
  }
}

TEST_F(FfnSetupTest, ASideCarOfAnotherModelIsRefusedWithBothHashes) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ8_0}, "one");
  const std::string other = Convert(exec::kTidepoolFolder, {.type = DType::kQ4_0}, "other");
  WriteRandomSideCar(path, false, 16, 0);
  const std::string mine = (*predictor::IdentityOf(**model::OpenModelFile(path))).model_hash;
  const std::string theirs = (*predictor::IdentityOf(**model::OpenModelFile(other))).model_hash;
  ASSERT_NE(mine, theirs);
  const std::string tcp = predictor::SideCarPath(path);
  ExpectRefused({.path = other, .modes = "lowrank", .side_car = tcp},
                StatusCode::kFailedPrecondition, {mine, theirs, tcp});
  // A side-car at the default path is used if the mode needs it; otherwise it is ignored.
  std::filesystem::copy(tcp, predictor::SideCarPath(other));
  ExpectRefused({.path = other, .modes = "sign"}, StatusCode::kFailedPrecondition, {mine, theirs});
  EXPECT_NE(exec::Load({.path = other, .modes = "exact"}), nullptr);
}

TEST_F(FfnSetupTest, ADamagedSideCarIsRefused) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ8_0});
  WriteRandomSideCar(path, false, 16, 0);
  const std::string tcp = predictor::SideCarPath(path);
  const std::string bytes = *base::ReadFileToString(tcp);
  std::ofstream(tcp, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  ExpectRefused({.path = path, .modes = "lowrank"}, StatusCode::kDataLoss, {tcp, "cut off"});
  std::string flipped = bytes;
  flipped[flipped.size() / 2] ^= 1;
  std::ofstream(tcp, std::ios::binary) << flipped;
  ExpectRefused({.path = path, .modes = "sign"}, StatusCode::kDataLoss, {"checksum"});
  // A side-car with this model's identity and other sizes.
  predictor::SideCar s = EmptySideCarOf(path);
  s.intermediate_size = 512;
  ASSERT_TRUE(predictor::WriteSideCar(tcp, s).ok());
  ExpectRefused({.path = path, .modes = "sign"}, StatusCode::kFailedPrecondition,
                {"intermediate_size", "512", "1024"});
}

TEST_F(FfnSetupTest, ARequestCannotHaveAModeThatWasNotLoaded) {
  const auto model = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  for (const char* mode : {"sign", "lowrank", "threshold"})
    EXPECT_EQ(model->ModesFor(mode).status().code(), StatusCode::kFailedPrecondition) << mode;
  EXPECT_EQ(model->ModesFor("")->layers, model->ffn_modes);
  EXPECT_EQ(model->ModesFor("dense")->layers, std::vector<FfnMode>(6, FfnMode::kDense));
  EXPECT_EQ(model->ModesFor("6:dense").status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(exec::Load({.path = exec::kTidepool, .modes = "exact", .also = "sign"})
                  ->ModesFor("sign")
                  .ok());
  EXPECT_FALSE(exec::Load({.path = exec::kTidepool, .modes = "dense"})->ModesFor("exact").ok());
}

// Unless a lower recall is requested, `auto` is lossless, whatever else is loaded.
TEST_F(FfnSetupTest, AutoNeverLosesAndLeavesOtherModesPossible) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ4_0});
  const auto dense = exec::LogitsOf(*exec::Load({.path = path}), 8, 1);
  for (const char* also : {"", "sign"}) {
    const auto model = exec::Load({.path = path, .modes = "auto", .also = also, .threads = 2});
    ASSERT_NE(model, nullptr);
    EXPECT_TRUE(model->ffn_automatic);
    for (const FfnMode mode : model->ffn_modes) EXPECT_TRUE(IsLossless(mode));
    EXPECT_TRUE(exec::LogitsOf(*model, 8, 1) == dense) << also;
  }
  WriteRandomSideCar(path, false, 16, 0.1F);
  const auto model =
      exec::Load({.path = path, .modes = "auto", .also = "sign,lowrank,threshold,exact"});
  ASSERT_NE(model, nullptr);
  for (const FfnMode mode : model->ffn_modes) EXPECT_TRUE(IsLossless(mode));
  for (const char* mode : {"sign", "lowrank", "threshold", "exact"}) {
    const auto modes = model->ModesFor(mode);
    ASSERT_TRUE(modes.ok()) << mode << ": " << modes.status().message();
    const auto transformer = model->MakeTransformer(5, 8, 5);
    model->SetModes(*transformer, *modes);
    EXPECT_TRUE(exec::LogitsOf(*model, *transformer, 8, 1, exec::Transformer::Step::kDecode) ==
                exec::LogitsOf(*exec::Load({.path = path, .modes = mode}), 8, 1))
        << mode;
  }
}

class AuditorTest : public exec::FfnModels {
 protected:
  // Runs random inputs through all layers, audited.
  static void Feed(const LoadedModel& model, exec::Transformer& transformer, ffn::Auditor& auditor,
                   const std::vector<exec::FfnInput>& inputs) {
    for (const exec::FfnInput& input : inputs) {
      auditor.Begin();
      for (int l = 0; l < model.config.num_hidden_layers; ++l) {
        exec::RunFfn(model, transformer, l, input);
        auditor.KeepInput(l, {.hidden = input.hidden().data(), .residual = input.residual().data()},
                          transformer.ffn().policy(l));
      }
      auditor.EndStep();
      while (auditor.pending()) auditor.AuditOne(transformer.audited_sides());
    }
  }
};

TEST_F(AuditorTest, CountsAreThoseOfEveryNeuronOneByOne) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kF32});
  WriteRandomSideCar(path, false, 32, 0);
  for (const char* mode : {"sign", "lowrank"}) {
    const auto model = exec::Load({.path = path, .modes = mode, .threads = 2, .audit_interval = 1});
    const auto transformer = model->MakeTransformer(1, 8);
    ffn::Auditor auditor({.config = model->config,
                          .predictors = *model->predictors,
                          .ops = *model->ops,
                          .interval = 1,
                          .sweep = {-1, 0}});
    std::vector<exec::FfnInput> inputs;
    for (unsigned seed = 0; seed < 4; ++seed) inputs.emplace_back(*model, 1, seed);
    Feed(*model, *transformer, auditor, inputs);
    const model::LayerWeights& w = model->weights->layers[2];
    std::vector<float> row(256);
    predictor::AuditCounts expected;
    for (const exec::FfnInput& input : inputs) {
      exec::RunFfn(*model, *transformer, 2, input);
      const auto ids = transformer->ffn().predicted();
      for (int i = 0; i < 1024; ++i) {
        const auto dot = [&](const model::NeuronMatrix& m) {
          double sum = 0;
          predictor::DequantizeNeuron(m, i, row.data());
          for (std::size_t c = 0; c < row.size(); ++c)
            sum += static_cast<double>(row[c]) * static_cast<double>(input.hidden()[c]);
          return sum;
        };
        double norm = 0;
        kernels::DequantizeMatrixRow(w.down_rows, i, row.data());
        for (const float v : row) norm += static_cast<double>(v) * static_cast<double>(v);
        const double h = std::max(0.0, dot(w.gate)) * dot(w.up);
        const double mass = std::fabs(h) * std::sqrt(norm);
        const bool predicted = std::binary_search(ids.begin(), ids.end(), i);
        ++(predicted ? (h != 0 ? expected.tp : expected.fp) : (h != 0 ? expected.fn : expected.tn));
        expected.total_mass += mass;
        expected.missed_mass += predicted ? 0 : mass;
      }
    }
    const predictor::AuditCounts& got = auditor.total(2);
    EXPECT_EQ(got.tokens, 4) << "every token is audited";
    EXPECT_EQ(got.neurons(), 4 * 1024);
    EXPECT_EQ(got.tp, expected.tp) << mode;
    EXPECT_EQ(got.fp, expected.fp);
    EXPECT_EQ(got.fn, expected.fn);
    EXPECT_EQ(got.tn, expected.tn);
    EXPECT_GT(got.fn, 0);
    EXPECT_NEAR(got.missed_mass, expected.missed_mass, 1e-4 * expected.total_mass);
    EXPECT_NEAR(got.total_mass, expected.total_mass, 1e-4 * expected.total_mass);
    EXPECT_EQ(auditor.swept(2, 1).tp, got.tp);
    EXPECT_GT(auditor.swept(2, 0).tp + auditor.swept(2, 0).fp, got.tp + got.fp);
  }
}

// An audited token is audited in one layer at a time; the interval is kept if there is time.
TEST_F(AuditorTest, OneOfSoManyTokensIsAudited) {
  const std::string path = exec::kTidepool;
  const auto model = exec::Load({.path = path, .modes = "sign", .threads = 1, .audit_interval = 1});
  for (const auto& [interval, expected] : {std::pair{20, 10}, {7, 28}, {6, 33}, {2, 33}, {1, 33}}) {
    const auto transformer = model->MakeTransformer(1, 256);
    adapt::FfnGovernor governor(*model, *transformer,
                                {.audit_interval = interval, .controller_recall = 0});
    const auto cache = *model->MakeCache(256);
    for (const int token : exec::SomeTokens(200, model->config.vocab_size)) {
      ASSERT_TRUE(
          transformer->Forward(std::span(&token, 1), *cache, exec::Transformer::Logits::kNone)
              .ok());
      governor.AfterStep(1);
    }
    governor.Idle();
    for (const FfnLayerStats& s : governor.Stats()) {
      EXPECT_NEAR(static_cast<double>(s.audited_tokens), expected, 1) << interval;
      EXPECT_EQ(s.tokens, 200);
    }
  }
}

// Loads Tidepool with these tests' audits.
std::unique_ptr<LoadedModel> LoadAudited(const std::string& modes, const HotOptions& hot = {},
                                         AuditShadow shadow = AuditShadow::kOff) {
  base::ConfigureLog(base::LogLevel::kError, false);
  LoadOptions options;
  options.model.path = exec::kTidepool;
  options.model.threads = 2;
  options.model.hot = hot;
  options.model.ffn = {.modes = modes, .audit_interval = 1, .audit_shadow = shadow};
  auto model = LoadModel(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// A placement file of Tidepool with every other neuron on the hot side. A real plan may put none
// there.
std::string HalfHot(HotOptions hot) {
  const auto file = model::OpenModelFile(exec::kTidepool);
  const auto hash = model::Fingerprint(**file);
  const auto ops = ChooseOps("");
  const auto machine = ThisMachine(**file, *hash, {.ops = *ops, .threads = 2, .hot = hot});
  EXPECT_TRUE(machine.ok()) << machine.status().message();
  placement::PlacementFile out;
  out.model_hash = *hash;
  out.machine_key = machine->key;
  out.profile = "none";
  const model::ModelConfig& config = (*file)->config;
  out.layers.resize(config.num_hidden_layers);
  for (auto& layer : out.layers)
    for (int i = 0; i < config.intermediate_size; ++i)
      layer.tiers.push_back(i % 2 == 0 ? placement::Tier::kHot : placement::Tier::kMemory);
  const std::string path = ::testing::TempDir() + "/half_hot.json";
  EXPECT_TRUE(placement::WritePlacement(path, out).ok());
  return path;
}

TEST_F(AuditorTest, TwoSidesCountAsOne) {
  HotOptions hot{.bytes = 8 << 20};
  hot.placement = HalfHot(hot);
  const auto one = LoadAudited("sign"), two = LoadAudited("sign", hot);
  ASSERT_NE(two->split, nullptr);
  const auto tokens = exec::SomeTokens(20, one->config.vocab_size);
  exec::ExpectSame(exec::AuditedBy(*two, tokens), exec::AuditedBy(*one, tokens));
}

TEST_F(AuditorTest, VerifiedStepsCountTheirFirstToken) {
  const auto model = LoadAudited("sign");
  const auto tokens = exec::SomeTokens(24, model->config.vocab_size);
  const auto alone = exec::AuditedBy(*model, std::span(tokens).first(20));
  exec::ExpectSame(exec::AuditedBy(*model, tokens, 5), alone);
}

// Counts the predictions of sign, without the effects of its misses in earlier layers.
TEST_F(AuditorTest, AShadowIsAuditedAndChangesNothing) {
  const auto plain = LoadAudited("exact"), shadowed = LoadAudited("exact", {}, AuditShadow::kSign),
             sign = LoadAudited("sign");
  EXPECT_EQ(plain->audit_shadow, FfnMode::kDense);
  EXPECT_EQ(shadowed->audit_shadow, FfnMode::kSign);
  const auto tokens = exec::SomeTokens(12, plain->config.vocab_size);
  const auto counts = exec::AuditedBy(*shadowed, tokens), lossy = exec::AuditedBy(*sign, tokens);
  EXPECT_EQ(counts[0].tp, lossy[0].tp);  // the first layer's input is the same
  EXPECT_EQ(counts[0].fn, lossy[0].fn);
  EXPECT_GT(counts[3].fn, 0);
  EXPECT_EQ(exec::AuditedBy(*plain, tokens)[0].tokens, 0);
  const auto logits = [&](const LoadedModel& model) { return exec::LogitsOf(model, 8, 1); };
  EXPECT_TRUE(logits(*plain) == logits(*shadowed));
}

// Whatever the tuner chooses, an audit computes exactly.
TEST_F(AuditorTest, AShadowOfALayerThatIsComputedDensely) {
  const auto model = LoadAudited("auto", {}, AuditShadow::kSign);
  for (std::size_t l = 0; l < model->weights->layers.size(); ++l) {
    UseLayoutsOf(FfnMode::kDense, l, *model, {});
    model->ffn_modes[l] = FfnMode::kDense;
  }
  const auto tokens = exec::SomeTokens(8, model->config.vocab_size);
  for (const predictor::AuditCounts& layer : exec::AuditedBy(*model, tokens)) {
    EXPECT_EQ(layer.tokens, 8);
    EXPECT_GT(layer.tp, 0);
  }
  EXPECT_FALSE(model->ModesFor("sign").ok());
}

TEST_F(AuditorTest, AShadowThatCannotBeIsRefused) {
  LoadOptions options;
  options.model.path = exec::Family("llama3");
  options.model.ffn = {.audit_interval = 1, .audit_shadow = AuditShadow::kSign};
  const auto model = LoadModel(options);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("audit_shadow"), std::string::npos)
      << model.status().message();
  options.model.ffn.audit_shadow = AuditShadow::kAuto;
  EXPECT_TRUE(LoadModel(options).ok());
}

TEST(AuditWindow, ForgetsWhatIsOld) {
  predictor::AuditWindow window;
  window.Add({.tokens = 1, .tp = 1});
  EXPECT_EQ(window.sum().recall(), 1);
  for (int i = 0; i < predictor::AuditWindow::kTokens; ++i) window.Add({.tokens = 1, .fn = 1});
  EXPECT_EQ(window.sum().tokens, predictor::AuditWindow::kTokens);
  EXPECT_EQ(window.sum().recall(), 0);
}

TEST_F(AuditorTest, AuditsChangeNothing) {
  const auto model =
      exec::Load({.path = exec::kTidepool, .modes = "sign", .threads = 2, .audit_interval = 1});
  const auto run = [&](int interval) {
    const auto transformer = model->MakeTransformer(1, 64);
    adapt::FfnGovernor governor(*model, *transformer,
                                {.audit_interval = interval, .controller_recall = 0});
    const auto cache = *model->MakeCache(64);
    std::vector<float> out;
    for (const int token : exec::SomeTokens(40, model->config.vocab_size)) {
      const auto logits =
          *transformer->Forward(std::span(&token, 1), *cache, exec::Transformer::Logits::kLast);
      out.insert(out.end(), logits.begin(), logits.end());
      governor.AfterStep(1);
    }
    return std::pair(out, transformer->ffn().counters(3).bytes);
  };
  EXPECT_TRUE(run(0) == run(3));
}

}  // namespace
}  // namespace thermocline::load
