#include "engine/load/ffn_setup.h"

#include <algorithm>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/exec/input_sparsity.h"
#include "engine/ffn/auditor.h"
#include "engine/ffn/sparse_ffn.h"
#include "engine/model/expert_rows.h"
#include "engine/model/fingerprint.h"

namespace thermocline::load {
namespace {

predictor::SignOptions SignOptionsOf(const FfnOptions& options) {
  return {.slices = options.sign_slices,
          .planes = options.sign_planes,
          .alpha = {options.sign_alpha, options.sign_alpha_layers},
          .use_side_car = !options.ignore_calibration};
}

Status RefuseWithoutZeros(FfnMode mode, const model::ModelConfig& config) {
  return base::FailedPrecondition(
      "mode '", FfnModeName(mode), "' skips neurons whose activation is exactly zero, and ",
      model::ActivationName(config.hidden_act),
      " has no such zeros (relu, fatrelu, drelu and relu2 have). Use dense, or threshold with "
      "loss; "
      "if the model was trained with ReLU and its file does not say so, give the activation");
}

// Modes with predictors choose neurons before their gates are known, but a cut needs all gates.
Status RefuseWithCut(FfnMode mode) {
  return base::FailedPrecondition(
      "mode '", FfnModeName(mode),
      "' predicts which neurons are zero, and this model's are found by the mean and the deviation "
      "of all gates of a layer; use exact, which skips as many without loss");
}

Status RefuseUnloaded(FfnMode mode) {
  return base::FailedPrecondition("mode '", FfnModeName(mode),
                                  "' needs weights or predictors that were not loaded; start "
                                  "with this mode, or name it among "
                                  "the further ones (--also-modes; the daemon: engine.ffn_also)");
}

Status RefuseInExperts(FfnMode mode) {
  return base::FailedPrecondition("mode '", FfnModeName(mode),
                                  "' has no predictor inside experts; use dense, or, of ReLU "
                                  "experts whose down projections lie "
                                  "along rows, exact or sign");
}

Status RefuseWithoutRows(FfnMode mode) {
  return base::FailedPrecondition(
      "mode '", FfnModeName(mode),
      "' skips neurons inside the experts, whose down projections lie along columns; `thermocline "
      "convert --down rows` of the unquantised model makes a file where they can be skipped, and "
      "--down-layout rows (the daemon: engine.down_layout) turns them while loading, quantised "
      "ones "
      "rounded once more");
}

// If the side-car was not named and is not needed, an error of it is only a warning.
Status ReadSideCarOf(const model::ModelFile& file, const FfnOptions& options, bool needed,
                     FfnPlan& plan) {
  const bool asked = !options.side_car.empty();
  const std::string path = asked ? options.side_car : predictor::SideCarPath(file.path);
  ASSIGN_OR_RETURN(const std::string hash, model::Fingerprint(file));
  auto read = predictor::ReadSideCar(path, {.model_hash = hash,
                                            .hidden_size = file.config.hidden_size,
                                            .intermediate_size = file.config.intermediate_size,
                                            .num_hidden_layers = file.config.num_hidden_layers});
  if (read.ok()) {
    plan.side_car = *std::move(read);
    plan.side_car_path = path;
    return OkStatus();
  }
  if (asked || (needed && read.status().code() != StatusCode::kNotFound)) return read.status();
  if (read.status().code() != StatusCode::kNotFound)
    base::LogWarning(read.status().message(), "; going on without it");
  return OkStatus();
}

// True if every layer's held-out figure is at least `least`.
template <typename Recall>
bool AllReach(const predictor::SideCar& side_car, double least, const Recall& recall) {
  return std::all_of(side_car.layers.begin(), side_car.layers.end(),
                     [&](const auto& layer) { return recall(layer) >= least; });
}

// Mode auto: the predicted modes that keep the recall are candidates.
void AddCandidates(const FfnOptions& options, FfnPlan& plan) {
  if (options.recall >= 1 || !plan.side_car.has_value()) return;
  if (!options.ignore_calibration &&
      AllReach(*plan.side_car, options.recall, [](const predictor::LayerSideCar& layer) {
        return layer.sign.has_value() ? layer.sign->recall : 0.0;
      }))
    plan.candidates.push_back(FfnMode::kSign);
  if (AllReach(*plan.side_car, options.recall, [](const predictor::LayerSideCar& layer) {
        return layer.low_rank.has_value() ? layer.low_rank->recall : 0.0;
      }))
    plan.candidates.push_back(FfnMode::kLowRank);
  for (const FfnMode mode : plan.candidates)
    (mode == FfnMode::kSign ? plan.sign : plan.low_rank) = true;
}

// Mode auto: true if the options allow a loss and the model has no zeros to skip without loss.
bool MayUseInputs(const model::ModelConfig& config, const FfnOptions& options,
                  const FfnPlan& plan) {
  return plan.modes.automatic && options.kl_max > 0 && !config.HasZeros() && !config.HasCuts() &&
         options.input_layout == InputLayout::kRows && exec::InputSparsity::Can(config).ok();
}

bool HasPointWithin(const FfnOptions& options, const FfnPlan& plan) {
  if (!plan.side_car.has_value() || plan.side_car->input_points.empty()) return false;
  const auto point = predictor::PointWithin(plan.side_car->input_points, options.kl_max);
  if (!point.ok())
    base::LogInfo("mode inputs is allowed (engine.kl_max), and left: ", point.status().message());
  return point.ok();
}

// Chooses one of the loaded predictors, or an additional one, for audits of layers without loss.
Status ChooseShadow(const FfnOptions& options, const model::ModelConfig& config, bool all_dense,
                    FfnPlan& plan) {
  const AuditShadow asked = options.audit_shadow;
  if (options.audit_interval == 0 || asked == AuditShadow::kOff) return OkStatus();
  if (asked == AuditShadow::kSign || asked == AuditShadow::kLowRank) {
    plan.shadow = asked == AuditShadow::kSign ? FfnMode::kSign : FfnMode::kLowRank;
    if (!config.HasZeros())
      return RefuseWithoutZeros(plan.shadow, config).Annotate("engine.audit_shadow");
    if (config.HasCuts()) return RefuseWithCut(plan.shadow).Annotate("engine.audit_shadow");
  } else if (config.HasZeros() && !config.HasCuts() && !all_dense) {
    const auto learnt = [&](const auto& has) {
      return plan.side_car.has_value() &&
             std::all_of(plan.side_car->layers.begin(), plan.side_car->layers.end(), has);
    };
    const bool sign = plan.sign || learnt([](const auto& layer) { return layer.sign.has_value(); });
    const bool low_rank =
        plan.low_rank || learnt([](const auto& layer) { return layer.low_rank.has_value(); });
    // Sign is the default, because it needs no training; low rank is used if it is trained and
    // signs are not.
    plan.shadow = low_rank && !sign ? FfnMode::kLowRank : FfnMode::kSign;
  }
  bool& loaded = plan.shadow == FfnMode::kLowRank ? plan.low_rank : plan.sign;
  plan.shadow_alone = plan.shadow != FfnMode::kDense && !loaded;
  loaded |= plan.shadow_alone;
  if (plan.shadow != FfnMode::kDense) plan.up = model::Layout::kRows;  // an audit computes exactly
  return OkStatus();
}

// Only the experts that a router chooses are read: all their neurons or, if their down rows are
// neuron-major, those that are not zero.
Result<FfnPlan> PlanExperts(const model::ModelFile& file, const FfnOptions& options) {
  const model::ModelConfig& config = file.config;
  const bool rows = model::HasExpertRows(file), zeros = model::HasTrueZeros(config.hidden_act);
  const FfnMode otherwise = rows && zeros ? FfnMode::kExact : FfnMode::kDense;
  FfnPlan plan;
  ASSIGN_OR_RETURN(plan.modes, ParseFfnModes(options.modes, config.num_hidden_layers, otherwise));
  ASSIGN_OR_RETURN(plan.also, ParseFfnModeList(options.also));
  std::vector<FfnMode> wanted = plan.also;
  if (!plan.modes.automatic)
    wanted.insert(wanted.end(), plan.modes.layers.begin(), plan.modes.layers.end());
  for (const FfnMode mode : wanted) {
    if (mode == FfnMode::kDense) continue;
    if (mode != FfnMode::kExact && mode != FfnMode::kSign) return RefuseInExperts(mode);
    if (!zeros) return RefuseWithoutZeros(mode, config);
    if (!rows) return RefuseWithoutRows(mode);
    plan.expert_sign |= mode == FfnMode::kSign;
  }
  if (!options.side_car.empty())
    return base::FailedPrecondition(
        "a side-car predicts neurons, and a mixture of experts is computed expert by expert");
  if (plan.modes.automatic) plan.modes.layers.assign(config.num_hidden_layers, otherwise);
  plan.modes.automatic = false;
  // A mixture's dense layers are computed densely.
  for (int l = 0; l < config.num_hidden_layers; ++l)
    if (!config.experts.InLayer(l)) plan.modes.layers[l] = FfnMode::kDense;
  if (rows && config.experts.router.on_input)
    return base::FailedPrecondition(
        "the file has neuron-major down matrices, and this family's experts are weighed at their "
        "input; convert it without --down rows");
  plan.expert_rows = rows;
  if (rows && zeros) plan.up = model::Layout::kRows;
  if (plan.expert_sign) plan.gate = model::Layout::kRows;
  return plan;
}

// Sets exact even if it was not requested: a layer with a cut skips most of its neurons, and a
// layer without one has no zeros.
void SetExactWhereCut(const model::ModelConfig& config, FfnModes& modes) {
  modes.layers.resize(config.num_hidden_layers);
  for (int l = 0; l < config.num_hidden_layers; ++l) {
    FfnMode& mode = modes.layers[l];
    if (modes.automatic) mode = config.HasZeros(l) ? FfnMode::kExact : FfnMode::kDense;
    if (mode == FfnMode::kExact && !config.HasZeros(l)) mode = FfnMode::kDense;
  }
  modes.automatic = false;
}

// Layers with different numbers of neurons are computed whole: predictors, audits and the tuner
// have one size.
Result<FfnPlan> PlanUnequal(const model::ModelConfig& config, const FfnOptions& options) {
  FfnPlan plan;
  ASSIGN_OR_RETURN(plan.modes,
                   ParseFfnModes(options.modes, config.num_hidden_layers, FfnMode::kDense));
  if (plan.modes.automatic) plan.modes.layers.assign(config.num_hidden_layers, FfnMode::kDense);
  plan.modes.automatic = false;
  ASSIGN_OR_RETURN(plan.also, ParseFfnModeList(options.also));
  std::vector<FfnMode> wanted = plan.also;
  wanted.insert(wanted.end(), plan.modes.layers.begin(), plan.modes.layers.end());
  for (const FfnMode mode : wanted) {
    if (mode == FfnMode::kDense) continue;
    RETURN_IF_ERROR(model::RequireNetworks(config, StrCat("mode '", FfnModeName(mode), "'")));
  }
  return plan;
}

}  // namespace

Result<FfnPlan> PlanFfn(const model::ModelFile& file, const FfnOptions& options) {
  const model::ModelConfig& config = file.config;
  if (config.experts.any()) return PlanExperts(file, options);
  if (!config.network_sizes.empty()) return PlanUnequal(config, options);
  const bool zeros = config.HasZeros(), cuts = config.HasCuts();
  FfnPlan plan;
  ASSIGN_OR_RETURN(plan.modes, ParseFfnModes(options.modes, config.num_hidden_layers,
                                             zeros ? FfnMode::kExact : FfnMode::kDense));
  plan.by_cuts = cuts && plan.modes.automatic;
  if (cuts) SetExactWhereCut(config, plan.modes);
  ASSIGN_OR_RETURN(plan.also, ParseFfnModeList(options.also));
  std::vector<FfnMode> wanted = plan.also;
  wanted.insert(wanted.end(), plan.modes.layers.begin(), plan.modes.layers.end());
  const auto wants = [&](FfnMode mode) {
    return std::find(wanted.begin(), wanted.end(), mode) != wanted.end();
  };
  for (const FfnMode mode : {FfnMode::kExact, FfnMode::kSign, FfnMode::kLowRank}) {
    if (!zeros && wants(mode)) return RefuseWithoutZeros(mode, config);
    if (cuts && mode != FfnMode::kExact && wants(mode)) return RefuseWithCut(mode);
  }
  plan.sign = wants(FfnMode::kSign);
  plan.low_rank = wants(FfnMode::kLowRank);
  plan.threshold = wants(FfnMode::kThreshold);
  plan.inputs = wants(FfnMode::kInputs);
  if (plan.inputs) RETURN_IF_ERROR(exec::InputSparsity::Can(config));
  const bool may_use = plan.inputs || plan.sign || plan.low_rank || plan.threshold ||
                       !options.side_car.empty() || MayUseInputs(config, options, plan) ||
                       (plan.modes.automatic && options.recall < 1 && zeros);
  const bool needed = plan.inputs || plan.threshold || plan.low_rank || plan.sign;
  const bool shadows =
      zeros && options.audit_interval > 0 && options.audit_shadow != AuditShadow::kOff;
  const bool explicitly = shadows && options.audit_shadow != AuditShadow::kAuto;
  if (may_use || shadows) RETURN_IF_ERROR(ReadSideCarOf(file, options, needed || explicitly, plan));
  if (plan.modes.automatic && zeros) AddCandidates(options, plan);
  plan.may_use_inputs = MayUseInputs(config, options, plan) && HasPointWithin(options, plan);
  const bool all_dense = !plan.modes.automatic && !wants(FfnMode::kExact) && !plan.sign &&
                         !plan.low_rank && !plan.threshold;
  if (plan.sign || plan.low_rank) plan.gate = model::Layout::kRows;
  if (!all_dense && (zeros || plan.threshold)) plan.up = model::Layout::kRows;
  RETURN_IF_ERROR(ChooseShadow(options, config, all_dense, plan));
  // Without a gate, up decides, and has the layout of the deciding matrix.
  if (!config.architecture->gated) plan.up = plan.gate;
  return plan;
}

void DropShadow(FfnPlan& plan) {
  (plan.shadow == FfnMode::kLowRank ? plan.low_rank : plan.sign) = false;
  plan.shadow = FfnMode::kDense;
  plan.shadow_alone = false;
}

bool Audits(const FfnPlan& plan, const FfnOptions& options) {
  return options.audit_interval > 0 && (plan.sign || plan.low_rank);
}

std::size_t PredictorBytes(const model::ModelConfig& config, const FfnPlan& plan,
                           const FfnOptions& options) {
  const std::size_t layers = config.num_hidden_layers;
  std::size_t bytes = 0;
  for (std::size_t l = 0; l < layers; ++l) {
    const predictor::LayerSideCar* learnt =
        plan.side_car.has_value() ? &plan.side_car->layers[l] : nullptr;
    if (plan.sign) bytes += predictor::SignPredictorBytes(config, learnt, SignOptionsOf(options));
    if (plan.low_rank) bytes += predictor::LowRankBytes(config, learnt);
    if (Audits(plan, options)) bytes += base::Area(1, config.intermediate_size) * sizeof(float);
  }
  if (plan.expert_rows) {
    const model::ModelConfig networks = ffn::ExpertNetworks::ConfigOf(config);
    const std::size_t sign =
        plan.expert_sign ? predictor::SignPredictorBytes(networks, nullptr, SignOptionsOf(options))
                         : 0;
    bytes += networks.num_hidden_layers * (ffn::ExpertNetworks::kBytesEach + sign);
  }
  return bytes + (Audits(plan, options) ? ffn::Auditor::Bytes(config) : 0);
}

Result<std::unique_ptr<predictor::Predictors>> LoadPredictors(const model::ModelFile& file,
                                                              const model::Weights& weights,
                                                              const FfnPlan& plan,
                                                              const FfnOptions& options,
                                                              base::WorkerPool& pool) {
  auto out = std::make_unique<predictor::Predictors>();
  const predictor::SideCar* side_car = plan.side_car.has_value() ? &*plan.side_car : nullptr;
  const int layers = file.config.num_hidden_layers;
  out->layers.resize(layers);
  std::unique_ptr<model::Weights> one;
  // A part of a layer that is not in memory is loaded temporarily.
  const auto source = [&](bool rest) -> predictor::LayerSource {
    return [&, rest](int layer) -> Result<const model::LayerWeights*> {
      const model::LayerWeights& held = weights.layers[layer];
      const bool has_rest = held.down.weight.data != nullptr || held.down_rows.data != nullptr;
      if (rest ? has_rest : predictor::DecidingMatrix(held).linear.weight.data != nullptr)
        return &held;
      const auto parts = [=](int l) {
        model::LayerParts only = model::kNoParts;
        (rest ? only.rest : only.deciding) = l == layer;
        return only;
      };
      ASSIGN_OR_RETURN(
          one,
          model::LoadWeights(file, pool,
                             {.parts = parts, .shared = {false, false}, .log_conversions = false}));
      return &one->layers[layer];
    };
  };
  if (plan.sign) {
    RETURN_IF_ERROR(predictor::AddSignPredictors(layers, source(false), side_car,
                                                 SignOptionsOf(options), pool, *out));
  }
  if (plan.low_rank)
    RETURN_IF_ERROR(predictor::AddLowRankPredictors(file.config, weights, side_car, *out));
  if (plan.threshold) RETURN_IF_ERROR(predictor::AddThresholds(side_car, *out));
  if (plan.inputs || plan.may_use_inputs)
    RETURN_IF_ERROR(predictor::AddInputRules(side_car, options.KlMaxOfNamed(), *out));
  if (Audits(plan, options))
    RETURN_IF_ERROR(predictor::AddDownNorms(layers, source(true), side_car, pool, *out));
  return out;
}

Status CanRun(FfnMode mode, const model::ModelConfig& config, const model::LayerWeights& layer,
              const predictor::LayerPredictors* predictors) {
  if (mode == FfnMode::kDense) return OkStatus();
  if (mode == FfnMode::kInputs) {
    RETURN_IF_ERROR(exec::InputSparsity::Can(config));
    if (layer.down_rows.rows > 0)
      return base::FailedPrecondition(
          "mode 'inputs' reads a down projection along columns, and this one is neuron-major; "
          "leave out --down-layout rows, or `thermocline convert --down columns`");
    return predictors != nullptr && predictors->inputs.has_value() ? OkStatus()
                                                                   : RefuseUnloaded(mode);
  }
  if (config.experts.any()) {
    const model::ExpertWeights& experts = layer.experts;
    if (mode != FfnMode::kExact && mode != FfnMode::kSign) return RefuseInExperts(mode);
    if (!model::HasTrueZeros(config.hidden_act)) return RefuseWithoutZeros(mode, config);
    if (experts.any() && experts.down_rows.rows == 0) return RefuseWithoutRows(mode);
    const bool loaded = mode == FfnMode::kExact || experts.gate_layout == model::Layout::kRows;
    return loaded || !experts.any() ? OkStatus() : RefuseUnloaded(mode);
  }
  if (mode != FfnMode::kThreshold && !config.HasZeros()) return RefuseWithoutZeros(mode, config);
  if (!config.network_sizes.empty())
    return model::RequireNetworks(config, StrCat("mode '", FfnModeName(mode), "'"));
  if (config.HasCuts() && ffn::Predicts(mode)) return RefuseWithCut(mode);
  const bool rows = layer.up.layout == model::Layout::kRows;
  const bool gated = config.architecture->gated;
  const bool has_predictor =
      predictors != nullptr && ((mode == FfnMode::kSign && predictors->sign.has_value()) ||
                                (mode == FfnMode::kLowRank && predictors->low_rank.has_value()) ||
                                (mode == FfnMode::kThreshold && predictors->threshold.has_value()));
  if ((gated && !rows) || (mode != FfnMode::kExact && !has_predictor) ||
      (ffn::Predicts(mode) && predictor::DecidingMatrix(layer).layout != model::Layout::kRows)) {
    return RefuseUnloaded(mode);
  }
  return OkStatus();
}

Result<std::unique_ptr<ffn::ExpertNetworks>> LoadExpertNetworks(const model::ModelConfig& config,
                                                                const model::Weights& weights,
                                                                const FfnPlan& plan,
                                                                const FfnOptions& options,
                                                                base::WorkerPool& pool) {
  const auto rows = [](const model::LayerWeights& l) {
    return l.experts.down_rows.data != nullptr;
  };
  if (!std::any_of(weights.layers.begin(), weights.layers.end(), rows))
    return std::unique_ptr<ffn::ExpertNetworks>();
  auto networks = std::make_unique<ffn::ExpertNetworks>(config, weights);
  const std::vector<model::LayerWeights>& layers = networks->weights.layers;
  networks->predictors.layers.resize(layers.size());
  if (!plan.expert_sign) return networks;
  const auto source = [&](int network) -> Result<const model::LayerWeights*> {
    return &layers[network];
  };
  RETURN_IF_ERROR(predictor::AddSignPredictors(base::IntSize(layers), source, nullptr,
                                               SignOptionsOf(options), pool, networks->predictors));
  return networks;
}

}  // namespace thermocline::load
