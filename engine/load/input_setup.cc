#include "engine/load/input_setup.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/base/log.h"
#include "engine/base/stopwatch.h"
#include "engine/load/ffn_setup.h"

namespace thermocline::load {
namespace {

// Checks that the rules fit the layers.
Status CheckRules(const LoadedModel& model) {
  for (std::size_t l = 0; l < model.weights->layers.size(); ++l) {
    const model::LayerWeights& layer = model.weights->layers[l];
    RETURN_IF_ERROR(CanRun(FfnMode::kInputs, model.config, layer, &model.predictors->layers[l]));
    for (int kind = 0; kind < model::kInputKinds; ++kind) {
      const std::size_t found = model.predictors->layers[l].inputs->of[kind].weights.size();
      const std::size_t inputs = model::InputsOf(layer, static_cast<model::InputKind>(kind));
      if (found != 0 && found != inputs)
        return base::InvalidArgument("the side-car: layer ", l, ": inputs.weights of '",
                                     model::kInputKindNames[kind], "' has ", found,
                                     " elements, expected ", inputs,
                                     "; make it anew with `thermocline calibrate --kind inputs`");
    }
  }
  return OkStatus();
}

Status MakeCopies(LoadedModel& model) {
  ASSIGN_OR_RETURN(auto copies,
                   model::MakeInputMajor(*model.weights, model.file.get(), *model.pool));
  model.input_major = std::make_unique<model::InputMajor>(std::move(copies));
  return OkStatus();
}

// Makes the copies if the layers support the rules and the copies fit into memory.
Status MakeRoomedCopies(LoadedModel& model) {
  RETURN_IF_ERROR(CheckRules(model));
  const std::size_t bytes = model::InputMajorBytes(*model.weights);
  if (!model.memory.Reserve("copies for mode inputs", bytes))
    return base::ResourceExhausted("its copies take ", base::HumanBytes(bytes),
                                   ", which the memory budget does not leave");
  return MakeCopies(model);
}

void LogPoint(const predictor::Predictors& predictors) {
  const predictor::InputPoint& point = predictors.input_points[predictors.input_point];
  base::LogInfo("inputs: ", std::round(1000 * point.share) / 10,
                "% of the layers' weights are not read for a decoded token; KL ",
                std::round(1e4 * point.kl) / 1e4, " nats on the calibration's text");
}

// The least seconds of a decoded token, with the model's current modes and with mode inputs;
// measured alternately, because a machine's bandwidth changes within seconds.
struct TokenSeconds {
  double now = INFINITY, inputs = INFINITY;
};
Result<TokenSeconds> TimeTokens(const LoadedModel& model) {
  constexpr int kRounds = 6;
  ASSIGN_OR_RETURN(const auto cache, model.MakeCache(2 * kRounds + 2));
  const auto transformer = model.MakeTransformer(1, 2 * kRounds + 2);
  const RequestModes now{.layers = model.ffn_modes},
      inputs{.layers = std::vector(model.ffn_modes.size(), FfnMode::kInputs)};
  TokenSeconds least;
  for (int round = 0; round < kRounds; ++round) {
    for (const RequestModes* modes : {&now, &inputs}) {
      model.SetModes(*transformer, *modes);
      const int token = (round * 7919 + 13) % model.config.vocab_size;
      const base::Stopwatch watch;
      RETURN_IF_ERROR(
          transformer->Forward(std::span(&token, 1), *cache, exec::Transformer::Logits::kLast)
              .status());
      double& seconds = modes == &now ? least.now : least.inputs;
      if (round > 0) seconds = std::min(seconds, watch.Seconds());
    }
  }
  return least;
}

}  // namespace

Status CanCutInputs(const model::ModelConfig& config) { return exec::InputSparsity::Can(config); }

Status SetUpInputs(const FfnOptions& options, bool on_flash, LoadedModel& model) {
  if (on_flash || model.memory.tier != MemoryPlan::Tier::kMemory)
    return base::FailedPrecondition(
        "mode 'inputs' needs the whole model in memory, and a part of it would come from flash: "
        "give more memory, or another mode");
  RETURN_IF_ERROR(CheckRules(model));
  LogPoint(*model.predictors);
  return options.input_layout == InputLayout::kFile ? OkStatus() : MakeCopies(model);
}

Status TryInputs(bool asked, LoadedModel& model) {
  constexpr double kTimeMax = 0.95;  // of the time without loss, because two runs differ by noise
  if (const Status ready = asked ? OkStatus() : MakeRoomedCopies(model); !ready.ok()) {
    base::LogInfo("mode inputs is allowed (engine.kl_max), and left: ", ready.message());
    DropInputs(model);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const TokenSeconds seconds, TimeTokens(model));
  const bool pays = seconds.inputs <= kTimeMax * seconds.now;
  const auto ms = [](double s) { return std::round(s * 1e5) / 100; };
  base::LogInfo("mode inputs: ", ms(seconds.inputs), " ms a token, the whole model ",
                ms(seconds.now), " ms (measured); it is ", pays ? "taken" : "left");
  if (pays) {
    if (!asked) LogPoint(*model.predictors);
    model.ffn_modes.assign(model.ffn_modes.size(), FfnMode::kInputs);
  } else if (!asked) {
    DropInputs(model);
  }
  return OkStatus();
}

void DropInputs(LoadedModel& model) {
  model.input_major.reset();
  model.predictors->input_points.clear();
  for (predictor::LayerPredictors& layer : model.predictors->layers) layer.inputs.reset();
}

}  // namespace thermocline::load
