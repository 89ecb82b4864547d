#include "engine/gpu/device_ffn.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::gpu {
namespace {

constexpr int kTokens = ffn::kSparseTokensMax;
static_assert(kTokens <= kernels::kSparseTokensMax);

// The maximum over all layers.
struct Needs {
  bool rows = false, panels = false, quantized_sums = false, float_sums = false;
  int rank = 0, sign_words = 0;
};
Needs NeedsOf(const DeviceModel& model) {
  Needs needs;
  for (const DeviceLayer& layer : model.layers()) {
    if (layer.neurons == 0 && !layer.home) continue;
    (layer.has_rows() ? needs.rows : needs.panels) = true;
    if (layer.has_rows())
      (DeviceFfn::SumsFloats(layer) ? needs.float_sums : needs.quantized_sums) = true;
    needs.rank = std::max(needs.rank, layer.fc1.rows);
    if (layer.sign_slices > 0)
      needs.sign_words =
          std::max(needs.sign_words, kernels::SignInputWords(layer.planes.cols, layer.sign_slices));
  }
  return needs;
}

}  // namespace

DeviceFfn::DeviceFfn(const Params& p)
    : model_(p.model),
      config_(p.model.config()),
      ops_(p.model.ops()),
      runs_(kernels::NumSumRuns(config_.intermediate_size)),
      activation_(ffn::GateOf(config_.hidden_act)) {
  const int f = config_.intermediate_size, d = config_.hidden_size;
  const Needs needs = NeedsOf(p.model);
  const std::size_t layers = config_.num_hidden_layers, starts = runs_ + 1;
  scratch_.Add(&shifts_, layers);
  scratch_.Add(&starts_, layers * 2 * starts);
  const std::size_t h =
      std::max(needs.rows ? Area(kTokens, f) : 0, needs.panels ? Area(p.tokens_max, f) : 0);
  scratch_.Add(&gate_, h);
  scratch_.Add(&h_, h);
  if (needs.panels) AddActivations(scratch_, p.tokens_max, f, &dense_h_);
  if (needs.rows) {
    for (kernels::NeuronSet* set : {&predicted_, &live_}) {
      scratch_.Add(&set->masks, f);
      scratch_.Add(&set->ids, f);
      scratch_.Add(&set->ticket, 1);
    }
    scratch_.Add(&tickets_, Area(kTokens, kernels::DeviceDownRowsParams::Tickets(d)));
  }
  const std::size_t sums = Area(kTokens * runs_, d);
  if (needs.quantized_sums) {
    scratch_.Add(&maxima_, sums / 32);
    scratch_.Add(&minimums_, sums / 32);
    scratch_.Add(&high_, sums);
    scratch_.Add(&low_, sums);
  }
  if (needs.float_sums) scratch_.Add(&sums_, sums);
  if (needs.rank > 0) {
    AddActivations(scratch_, kTokens, d, &low_rank_input_);
    AddActivations(scratch_, kTokens, kernels::RoundUp(needs.rank, kernels::kActivationBlock),
                   &low_rank_hidden_);
    scratch_.Add(&logits_, Area(kTokens, f));
  }
  scratch_.Add(&sign_words_, Area(kTokens, needs.sign_words));
  scratch_.Add(&sign_totals_, kTokens);
}

Status DeviceFfn::Allocate() {
  device::Device& device = model_.device();
  const std::size_t layers = config_.num_hidden_layers;
  RETURN_IF_ERROR(scratch_.Allocate(device));
  ASSIGN_OR_RETURN(DeviceUploader uploader, DeviceUploader::Create(model_.stream()));
  RETURN_IF_ERROR(scratch_.Upload(uploader, model_.stream()));
  const std::size_t starts = layers * 2 * (static_cast<std::size_t>(runs_) + 1);
  ASSIGN_OR_RETURN(pinned_, device::MappedBuffer::Allocate(
                                device, "shifts and counts",
                                layers * sizeof(Shift) + starts * sizeof(std::int32_t)));
  return OkStatus();
}

Status DeviceFfn::Check(kernels::DeviceError error, const char* what) const {
  return error == 0 ? OkStatus() : model_.device().Check(error, what);
}

Status DeviceFfn::SetShift(int layer, const ffn::FfnPolicy& policy) {
  const Shift shift{policy.shift, policy.mode == FfnMode::kSign
                                      ? static_cast<std::int32_t>(std::lround(policy.shift))
                                      : 0};
  Shift& held = pinned_.host<Shift>()[layer];
  if (held == shift) return OkStatus();
  held = shift;
  Status copied = model_.stream().CopyToDevice(shifts_ + layer, &held, sizeof(Shift));
  if (!copied.ok()) held.least = std::numeric_limits<float>::quiet_NaN();  // unequal to all
  return copied;
}

kernels::NeuronSet DeviceFfn::SetOf(const kernels::NeuronSet& set, int layer, int which) const {
  kernels::NeuronSet of = set;
  of.starts = starts_ + nn::Offset(2 * layer + which, runs_ + 1);
  return of;
}

Status DeviceFfn::Find(int layer, FfnMode mode, const Input& input) {
  RETURN_IF_ERROR(Predict(layer, mode, input));
  const DeviceLayer& w = model_.layer(layer);
  const bool gated = w.gate.cols > 0, at_once = gated && w.gate.type == w.up.type;
  kernels::DeviceGemmRowsParams p{
      .weights = gated ? w.gate : w.up,
      .neurons = SetOf(predicted_, layer, 0),
      .activations = input.hidden.view(),
      .tokens = input.tokens,
      .bias = (gated ? w.dense.gate : w.dense.up).linear.bias,
      .epilogue = at_once ? kernels::RowsEpilogue::kGated : kernels::RowsEpilogue::kDecide,
      .activation = activation_,
      .activation_threshold = static_cast<float>(config_.fatrelu_threshold),
      .out = at_once ? nullptr : gate_,
      .stride = config_.intermediate_size,
      .live = SetOf(live_, layer, 1),
      .h = gated && !at_once ? nullptr : h_,
      .up = at_once ? w.up : kernels::DeviceRows{},
      .up_bias = w.dense.up.linear.bias};
  if (mode == FfnMode::kThreshold) p.least = &shifts_[layer].least;
  RETURN_IF_ERROR(Check(ops_.sparse.gemm_rows(p, model_.stream().handle()), "deciding rows"));
  if (!gated || at_once) return OkStatus();
  p.weights = w.up;
  p.neurons = p.live;
  p.live = {};
  p.least = nullptr;
  p.bias = w.dense.up.linear.bias;
  p.epilogue = kernels::RowsEpilogue::kCombine;
  p.out = nullptr;
  p.gate = gate_;
  p.h = h_;
  return Check(ops_.sparse.gemm_rows(p, model_.stream().handle()), "up's rows");
}

Status DeviceFfn::Predict(int layer, FfnMode mode, const Input& input) {
  const DeviceLayer& w = model_.layer(layer);
  const kernels::NeuronSet out = SetOf(predicted_, layer, 0);
  const Shift* shift = shifts_ + layer;
  if (mode == FfnMode::kSign && w.neurons > 0) return PredictSign(w, shift, input, out);
  if (mode == FfnMode::kLowRank && w.neurons > 0) return PredictLowRank(w, shift, input, out);
  return Check(ops_.sparse.logit_predict({.slots = w.slots,
                                          .neurons = config_.intermediate_size,
                                          .tokens = input.tokens,
                                          .out = out},
                                         model_.stream().handle()),
               "listing neurons");
}

Status DeviceFfn::PredictSign(const DeviceLayer& w, const Shift* shift, const Input& input,
                              const kernels::NeuronSet& out) {
  const kernels::Stream stream = model_.stream().handle();
  RETURN_IF_ERROR(Check(ops_.sparse.pack_sign_input({.x = input.hidden.x,
                                                     .x_stride = input.hidden.cols,
                                                     .columns = w.columns,
                                                     .cols = w.planes.cols,
                                                     .slices = w.sign_slices,
                                                     .tokens = input.tokens,
                                                     .words = sign_words_,
                                                     .totals = sign_totals_},
                                                    stream),
                        "packing signs"));
  return Check(ops_.sparse.sign_predict({.planes = w.planes,
                                         .slots = w.slots,
                                         .planes_by_slot = w.slots != nullptr,
                                         .thresholds = w.thresholds,
                                         .shift = &shift->score,
                                         .neurons = config_.intermediate_size,
                                         .slices = w.sign_slices,
                                         .tokens = input.tokens,
                                         .words = sign_words_,
                                         .totals = sign_totals_,
                                         .out = out},
                                        stream),
               "predicting by signs");
}

Status DeviceFfn::PredictLowRank(const DeviceLayer& w, const Shift* shift, const Input& input,
                                 const kernels::NeuronSet& out) {
  const kernels::Stream stream = model_.stream().handle();
  kernels::DeviceActivations x = input.hidden;
  if (w.before_norm) {
    x = low_rank_input_;
    x.x = input.residual;
    if (x.q != nullptr)
      RETURN_IF_ERROR(Check(ops_.dense.quantize({.x = x, .tokens = input.tokens}, stream),
                            "rounding the residual"));
  }
  const auto multiply = [&](const kernels::PackedMatrix& matrix,
                            const kernels::DeviceActivations& from, float* to) {
    return Check(ops_.dense.gemm({.gemm = {.weights = matrix,
                                           .activations = from.view(),
                                           .tokens = input.tokens,
                                           .out = to,
                                           .out_stride = matrix.rows,
                                           .panel_begin = 0,
                                           .panel_end = kernels::NumPanels(matrix.rows)}},
                                 stream),
                 "the low-rank predictor");
  };
  const kernels::DeviceActivations z = WithCols(low_rank_hidden_, w.fc1.rows);
  RETURN_IF_ERROR(multiply(w.fc1, x, z.x));
  RETURN_IF_ERROR(Check(ops_.dense.gated({.gate = z.x,
                                          .n = w.fc1.rows,
                                          .tokens = input.tokens,
                                          .activation = kernels::GateActivation::kRelu,
                                          .out = z},
                                         stream),
                        "the low-rank predictor"));
  RETURN_IF_ERROR(multiply(w.fc2, z, logits_));
  return Check(ops_.sparse.logit_predict({.logits = logits_,
                                          .logits_stride = w.fc2.rows,
                                          .threshold = w.low_rank_threshold,
                                          .shift = &shift->least,
                                          .slots = w.slots,
                                          .logits_by_slot = w.slots != nullptr,
                                          .neurons = config_.intermediate_size,
                                          .tokens = input.tokens,
                                          .out = out},
                                         stream),
               "predicting by logits");
}

kernels::DeviceSumRowsParams DeviceFfn::SumParams(int layer, int tokens, const float* other) const {
  return {.weights = model_.layer(layer).down,
          .neurons = SetOf(live_, layer, 1),
          .h = h_,
          .h_stride = config_.intermediate_size,
          .tokens = tokens,
          .maxima = maxima_,
          .limits = {maxima_, other},
          .high = high_,
          .low = low_,
          .minimums = minimums_,
          .sums = sums_};
}

Status DeviceFfn::Maxima(int layer, int tokens) {
  return Check(ops_.sparse.max_rows(SumParams(layer, tokens, nullptr), model_.stream().handle()),
               "the largest of down's rows");
}

Status DeviceFfn::Sum(int layer, int tokens, const float* other) {
  return Check(ops_.sparse.sum_rows(SumParams(layer, tokens, other), model_.stream().handle()),
               "the sum of down's rows");
}

kernels::DeviceFinishSumParams DeviceFfn::FinishParams(int layer, int tokens, const Other* other,
                                                       const Output& out) const {
  const DeviceLayer& w = model_.layer(layer);
  kernels::DeviceFinishSumParams p{.neurons = config_.intermediate_size,
                                   .cols = config_.hidden_size,
                                   .tokens = tokens,
                                   .parts = 1,
                                   .bias = out.add_bias ? w.dense.down.bias : nullptr,
                                   .accumulate = out.accumulate,
                                   .out = out.data,
                                   .out_stride = config_.hidden_size};
  if (SumsFloats(w)) {
    p.sums[0] = sums_;
  } else {
    p.limits[0] = maxima_;
    p.high[0] = high_;
    p.low[0] = low_;
    if (HasMinimums(w)) p.minimums[0] = minimums_;
    if (other != nullptr) {
      p.parts = 2;
      p.limits[1] = other->limits;
      p.high[1] = other->high;
      p.low[1] = other->low;
      if (HasMinimums(w)) p.minimums[1] = other->minimums;
    }
  }
  return p;
}

Status DeviceFfn::Finish(int layer, int tokens, const Other* other, const Output& out) {
  return Check(
      ops_.sparse.finish_sum(FinishParams(layer, tokens, other, out), model_.stream().handle()),
      "scaling the sum");
}

Status DeviceFfn::Down(int layer, int tokens, const Output& out) {
  return Check(ops_.sparse.down_rows({.sum = SumParams(layer, tokens, nullptr),
                                      .finish = FinishParams(layer, tokens, nullptr, out),
                                      .tickets = tickets_},
                                     model_.stream().handle()),
               "the down projection");
}

Status DeviceFfn::Run(int layer, FfnMode mode, const Input& input, const Output& out) {
  const DeviceLayer& w = model_.layer(layer);
  if (!w.has_rows()) return RunDense(w, input, out);
  const int d = config_.hidden_size;
  for (int first = 0; first < input.tokens; first += kTokens) {
    const int tokens = std::min(kTokens, input.tokens - first);
    RETURN_IF_ERROR(
        Find(layer, mode,
             {TokensFrom(input.hidden, first), input.residual + nn::Offset(first, d), tokens}));
    RETURN_IF_ERROR(
        Down(layer, tokens, {out.data + nn::Offset(first, d), out.accumulate, out.add_bias}));
  }
  return OkStatus();
}

Status DeviceFfn::RunDense(const DeviceLayer& w, const Input& input, const Output& out) {
  const kernels::Stream stream = model_.stream().handle();
  const auto multiply = [&](const model::Linear& matrix, const kernels::DeviceActivations& x,
                            float* to, bool accumulate) {
    return Check(ops_.dense.gemm({.gemm = {.weights = matrix.weight,
                                           .activations = x.view(),
                                           .tokens = input.tokens,
                                           .out = to,
                                           .out_stride = matrix.weight.rows,
                                           .panel_begin = 0,
                                           .panel_end = kernels::NumPanels(matrix.weight.rows)},
                                  .bias = matrix.bias,
                                  .accumulate = accumulate},
                                 stream),
                 "the feed-forward network");
  };
  const bool gated = w.dense.gate.linear.weight.rows > 0;
  if (gated) RETURN_IF_ERROR(multiply(w.dense.gate.linear, input.hidden, gate_, false));
  RETURN_IF_ERROR(multiply(w.dense.up.linear, input.hidden, gated ? h_ : gate_, false));
  RETURN_IF_ERROR(
      Check(ops_.dense.gated({.gate = gate_,
                              .up = gated ? h_ : nullptr,
                              .n = config_.intermediate_size,
                              .tokens = input.tokens,
                              .activation = activation_,
                              .threshold = static_cast<float>(config_.fatrelu_threshold),
                              .out = dense_h_},
                             stream),
            "the activation"));
  return multiply(w.dense.down, dense_h_, out.data, out.accumulate);
}

Status DeviceFfn::ReadCounts(int first_layer, int layers) {
  const std::ptrdiff_t width = 2 * (runs_ + 1);
  return model_.stream().CopyToHost(host_starts() + first_layer * width,
                                    starts_ + first_layer * width,
                                    (layers * width) * sizeof(*starts_));
}

std::int32_t* DeviceFfn::host_starts() const {
  return reinterpret_cast<std::int32_t*>(pinned_.host<Shift>() + config_.num_hidden_layers);
}

DeviceFfn::Counts DeviceFfn::counts(int layer) const {
  const std::int32_t* of = host_starts() + nn::Offset(2 * layer, runs_ + 1);
  return {of[runs_], of[2 * runs_ + 1]};
}

DeviceFfn::Counts DeviceFfn::all(int layer) const {
  const int neurons = model_.layer(layer).neurons;
  return {neurons, neurons};
}

void DeviceFfn::AddCounts(int layer, FfnMode mode, const Counts& found, int tokens,
                          ffn::FfnCounters& to) const {
  const DeviceLayer& w = model_.layer(layer);
  const auto row_bytes = [](const kernels::DeviceRows& m) {
    return static_cast<std::int64_t>(kernels::RowBytes(m.type, m.cols));
  };
  const bool gated = w.gate.cols > 0;
  std::int64_t predictor_bytes = 0, predictor_operations = 0;
  if (mode == FfnMode::kSign) {
    predictor_bytes = base::Area(w.planes.rows, kernels::SignWords(w.planes.cols)) * 8 *
                      (w.planes.magnitude != nullptr ? 2 : 1);
    predictor_operations = predictor_bytes / 4 * w.sign_slices;
  } else if (mode == FfnMode::kLowRank) {
    predictor_bytes = w.fc1.bytes() + w.fc2.bytes();
    predictor_operations = base::Area(w.fc1.rows, w.fc1.cols) + base::Area(w.fc2.rows, w.fc2.cols);
  }
  to.gate_rows += found.predicted;
  to.up_rows += gated ? found.live : 0;
  to.down_rows += found.live;
  to.predictor_bytes += predictor_bytes;
  to.predictor_operations += tokens * predictor_operations;
  const std::int64_t rows = found.predicted + (gated ? 2 : 1) * found.live;
  to.operations += tokens * rows * config_.hidden_size;
  to.computed += tokens;
  to.bytes += predictor_bytes + found.predicted * row_bytes(gated ? w.gate : w.up) +
              found.live * (row_bytes(w.down) + (gated ? row_bytes(w.up) : 0));
}

}  // namespace thermocline::gpu
