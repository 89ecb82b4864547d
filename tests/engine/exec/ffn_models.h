// Loads, converts and runs models for tests of the feed-forward network.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/load/loaded_model.h"
#include "engine/model/gguf/writer.h"
#include "engine/model/open/open_model.h"
#include "engine/predictor/identity.h"

namespace thermocline::exec {

inline const std::string kTidepoolFolder = SOURCE_DIR "/tests/golden/models/tidepool/target";
inline const std::string kTidepool = SOURCE_DIR "/config/models/tidepool.gguf";

inline std::string Family(const std::string& name) {
  return SOURCE_DIR "/tests/golden/architectures/" + name;
}

struct How {
  std::string path, modes = "dense", also = "", side_car = "", isa = "";
  std::optional<Activation> activation = {};
  int threads = 1;
  int audit_interval = 0;
  AuditShadow audit_shadow = AuditShadow::kOff;
  DownInMemory down = DownInMemory::kFile;
};

inline Result<std::unique_ptr<load::LoadedModel>> TryLoad(const How& how) {
  load::LoadOptions options;
  options.model.path = how.path;
  options.model.threads = how.threads;
  options.model.cpu_isa = how.isa;
  options.model.activation = how.activation;
  options.model.kv_type = kernels::KvType::kF32;
  options.model.ffn = {.modes = how.modes,
                       .also = how.also,
                       .side_car = how.side_car,
                       .down = how.down,
                       .audit_interval = how.audit_interval,
                       .audit_shadow = how.audit_shadow};
  return load::LoadModel(options);
}

inline std::unique_ptr<load::LoadedModel> Load(const How& how) {
  auto model = TryLoad(how);
  EXPECT_TRUE(model.ok()) << how.path << ": " << model.status().message();
  return model.ok() ? *std::move(model) : nullptr;
}

inline std::vector<int> SomeTokens(int count, int vocab_size) {
  std::vector<int> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 7919 + 13) % vocab_size);
  return tokens;
}

// Logits [T, V] of `count` tokens, `batch` at a time.
inline std::vector<float> LogitsOf(const load::LoadedModel& model, Transformer& transformer,
                                   int count, int batch, Transformer::Step step) {
  const auto cache = *model.MakeCache(count);
  const std::vector<int> tokens = SomeTokens(count, model.config.vocab_size);
  std::vector<float> out;
  for (int at = 0; at < count; at += batch) {
    const auto part = std::span(tokens).subspan(
        static_cast<std::size_t>(at), static_cast<std::size_t>(std::min(batch, count - at)));
    const auto logits = *transformer.Forward(part, *cache, Transformer::Logits::kAll, step);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

inline std::vector<float> LogitsOf(const load::LoadedModel& model, int count, int batch,
                                   Transformer::Step step = Transformer::Step::kDecode) {
  const auto transformer = model.MakeTransformer(batch, count, batch);
  return LogitsOf(model, *transformer, count, batch, step);
}

// Inputs of a feed-forward network, in the form that a transformer passes.
class FfnInput {
 public:
  FfnInput(const load::LoadedModel& model, int tokens, unsigned seed)
      : tokens_(tokens), residual_(static_cast<std::size_t>(tokens * model.config.hidden_size)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    hidden_.Resize(tokens, model.config.hidden_size);
    for (float& x : residual_) x = normal(random);
    for (float& x : hidden_.x) x = normal(random);
    for (int t = 0; t < tokens; ++t) nn::QuantizeToken(*model.ops, hidden_, t);
  }
  ffn::SparseFfn::Input get() const { return {hidden_, residual_.data(), tokens_, true}; }
  const std::vector<float>& hidden() const { return hidden_.x; }
  const std::vector<float>& residual() const { return residual_; }

 private:
  int tokens_;
  nn::ActivationBuffer hidden_;
  std::vector<float> residual_;
};

// Runs one layer's network.
inline std::vector<float> RunFfn(const load::LoadedModel& model, Transformer& transformer,
                                 int layer, const FfnInput& input) {
  const int tokens = input.get().tokens;
  std::vector<float> out(static_cast<std::size_t>(tokens * model.config.hidden_size));
  EXPECT_TRUE(transformer.ffn().Run(layer, input.get(), false, out.data()).ok());
  return out;
}

class FfnModels : public testing::Test {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kError, false);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Conversion {
    std::optional<kernels::DType> type = {};
    model::DownLayout down = model::DownLayout::kRows;
    std::optional<model::Activation> activation = {};
    double fatrelu_threshold = 0;
  };
  // Converts `source` to a GGUF file of this test.
  std::string Convert(const std::string& source, const Conversion& how,
                      const std::string& name = "model") const {
    const auto file = model::OpenModelFile(source);
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (how.activation.has_value()) (*file)->config.hidden_act = *how.activation;
    (*file)->config.fatrelu_threshold = how.fatrelu_threshold;
    const std::string path = folder_ + "/" + name + ".gguf";
    const Status written = model::WriteGguf(
        **file, path,
        {.type = how.type, .down = how.down, .name = "x", .threads = 2, .on_progress = {}});
    EXPECT_TRUE(written.ok()) << written.message();
    return path;
  }

  predictor::SideCar EmptySideCarOf(const std::string& path) const {
    const auto file = model::OpenModelFile(path);
    return predictor::EmptySideCar(*predictor::IdentityOf(**file));
  }

  // Writes a side-car with random low-rank predictors of different ranks and thresholds of mode
  // `threshold` to the path of MODEL.tcp.
  void WriteRandomSideCar(const std::string& path, bool before_norm, int rank, float threshold) {
    predictor::SideCar s = EmptySideCarOf(path);
    std::mt19937 random(7);
    const auto halves = [&](int n) {  // +-1/16
      std::vector<std::uint16_t> out(static_cast<std::size_t>(n));
      for (std::uint16_t& h : out) h = static_cast<std::uint16_t>(0x2C00U | (random() & 0x83FFU));
      return out;
    };
    for (std::size_t l = 0; l < s.layers.size(); ++l) {
      const int r = rank * (1 + static_cast<int>(l % 2));
      s.layers[l].low_rank = predictor::LowRankPredictor{.rank = r,
                                                         .before_norm = before_norm,
                                                         .threshold = 0,
                                                         .fc1 = halves(r * s.hidden_size),
                                                         .fc2 = halves(s.intermediate_size * r),
                                                         .settings = ""};
      s.layers[l].threshold = threshold;
    }
    const Status written = predictor::WriteSideCar(predictor::SideCarPath(path), s);
    EXPECT_TRUE(written.ok()) << written.message();
  }

  const std::string folder_ = testing::TempDir() + "thermocline ffn " + std::to_string(::getpid());
};

}  // namespace thermocline::exec
