#include "engine/ffn/expert_ffn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/stopwatch.h"
#include "engine/ffn/neuron_experts.h"
#include "engine/nn/gate_functions.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

void AddWeighed(const float* y, float weight, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] += weight * y[i];
}

// Floats of the routers' inputs, where these are neither the residual nor the network's input.
std::size_t RoutedFloats(const model::ModelConfig& config, int tokens) {
  const bool own = config.experts.router.input == model::RouterInput::kNormedResidual;
  return own ? base::Area(tokens, config.hidden_size) : 0;
}

}  // namespace

ExpertFfn::ExpertFfn(const FfnContext& context, int tokens_max)
    : context_(context),
      router_(context.config.experts),
      computer_(context, tokens_max),
      starts_(context.config.experts.num_experts + 1) {
  const model::ExpertConfig& e = context.config.experts;
  const int places = tokens_max * e.num_experts_per_tok;
  stats_ = {.experts = e.num_experts, .used = e.num_experts_per_tok};
  stats_.uses.resize(base::Area(context.config.num_hidden_layers, e.num_experts));
  logits_.resize(base::Area(tokens_max, e.num_experts));
  chosen_.reserve(places);
  chosen_ids_.resize(e.num_experts_per_tok);
  units_.reserve(std::min(places, e.num_experts) + 1);
  ready_.reserve(units_.capacity());
  hot_units_.reserve(units_.capacity());
  ids_.resize(places);
  weights_.resize(places);
  input_weights_.resize(places);
  h_.Resize(places, e.intermediate_size);
  up_.resize(base::Area(places, e.intermediate_size));
  shared_h_.Resize(tokens_max, e.shared_intermediate_size);
  shared_up_.resize(base::Area(tokens_max, e.shared_intermediate_size));
  shared_weight_.resize(tokens_max);
  routed_.resize(RoutedFloats(context.config, tokens_max));
}

std::size_t ExpertFfn::Bytes(const FfnSizes& sizes) {
  const model::ExpertConfig& e = sizes.config.experts;
  if (!e.any()) return 0;
  const int tokens = sizes.tokens_max;
  const int places = tokens * e.num_experts_per_tok;
  return (base::Area(tokens, e.num_experts) + RoutedFloats(sizes.config, tokens)) * sizeof(float) +
         base::Area(places, 1) * (sizeof(ChosenExpert) + sizeof(int) + 2 * sizeof(float)) +
         base::Area(std::min(places, e.num_experts) + 1, 1) *
             (sizeof(ExpertUnit) + 2 * sizeof(std::uintptr_t)) +
         (sizes.flash ? FlashExperts::Bytes(sizes.config) : 0) +
         nn::ActivationBuffer::Bytes(places, e.intermediate_size) +
         base::Area(places, e.intermediate_size) * sizeof(float) +
         nn::ActivationBuffer::Bytes(tokens, e.shared_intermediate_size) +
         base::Area(tokens, e.shared_intermediate_size + 1) * sizeof(float) +
         base::Area(4, e.num_experts) * sizeof(float) + ExpertComputer::Bytes(sizes);
}

Status ExpertFfn::Run(const FfnStep& step, float* out) {
  const int layer = step.layer;
  const FfnInput& input = step.input;
  const base::Stopwatch watch;
  const double waited = counters_.wait_s;
  const bool chosen = context_.config.experts.router.input != model::RouterInput::kHidden;
  if (!chosen) Choose(layer, input.hidden.view(), input.tokens);
  MakeUnits(layer, input);
  if (neurons_ != nullptr) {
    RunNeurons(step, out);
    return OkStatus();
  }
  StartHotUnits(layer, input);
  RETURN_IF_ERROR(ComputeHere(layer, input));
  const float* rows = nullptr;
  if (!hot_units_.empty()) {
    ASSIGN_OR_RETURN(rows, AwaitHot(layer, input));
  }
  SumDown(input.tokens, rows, out);
  if (flash_.has_value()) flash_->EndLayer(layer);
  if (hot_ == nullptr) return OkStatus();
  const double took = watch.Seconds();
  counters_.total_s += took;
  counters_.cold.busy_s += took - (counters_.wait_s - waited);
  return OkStatus();
}

void ExpertFfn::RunNeurons(const FfnStep& step, float* out) {
  const int d = context_.config.hidden_size;
  std::fill_n(out, nn::Offset(step.input.tokens, d), 0.0F);
  const bool has_shared = units_.back().expert < 0;
  neurons_->Add(step, std::span(units_).first(units_.size() - (has_shared ? 1 : 0)), out);
  if (!has_shared) return;
  const ExpertUnit& shared = units_.back();
  ready_ = {&units_.back()};
  computer_.ComputeNeurons(ready_, step.input);
  computer_.ForColumns([&](int column, int columns, int thread) {
    computer_.Down(shared, column, columns, thread, [&](int i, const float* y) {
      AddWeighed(y, shared.weight[i], columns, out + nn::Offset(i, d) + column);
    });
  });
}

Status ExpertFfn::ComputeHere(int layer, const FfnInput& input) {
  if (flash_.has_value()) return ComputeFromFlash(layer, input);
  ready_.clear();
  for (ExpertUnit& unit : units_)
    if (unit.hot_row < 0) ready_.push_back(&unit);
  computer_.ComputeNeurons(ready_, input);
  return OkStatus();
}

void ExpertFfn::StartHotUnits(int layer, const FfnInput& input) {
  hot_units_.clear();
  if (hot_ == nullptr) return;
  int rows = 0;
  for (ExpertUnit& unit : units_) {
    if (unit.expert < 0 || !hot_->Has(layer, unit.expert)) continue;
    unit.hot_row = rows;
    rows += unit.tokens;
    hot_units_.push_back(&unit);
  }
  if (!hot_units_.empty()) hot_->Start({layer, input, hot_units_});
  if (!input.decoded) return;
  ++counters_.cold.steps;
  counters_.hot.active += rows;
  counters_.cold.active += input.tokens * context_.config.experts.num_experts_per_tok - rows;
}

// A failed side is given up: this side has its experts too.
Result<const float*> ExpertFfn::AwaitHot(int layer, const FfnInput& input) {
  const base::Stopwatch watch;
  auto rows = hot_->Await();
  counters_.wait_s += watch.Seconds();
  if (rows.ok()) return rows;
  base::LogWarning("the hot experts are computed by the CPU from now on: ",
                   rows.status().message());
  lost_ = rows.status();
  hot_ = nullptr;
  for (ExpertUnit* unit : hot_units_) unit->hot_row = -1;
  if (flash_.has_value()) {
    flash_->SetHot(nullptr);
    flash_->Request(layer, chosen_, input.tokens);
    RETURN_IF_ERROR(flash_->Await());
    PlaceReady(layer);
  } else {
    ready_ = hot_units_;
  }
  computer_.ComputeNeurons(ready_, input);
  return nullptr;
}

HybridCounters ExpertFfn::counters() const {
  HybridCounters all = counters_;
  if (hot_ != nullptr) all.hot.busy_s = hot_->busy_s();
  return all;
}

void ExpertFfn::ChooseFirst(int layer, const float* residual, int tokens) {
  const int d = context_.config.hidden_size;
  if (!routed_.empty()) {
    for (int t = 0; t < tokens; ++t)
      MakeRouterInput(context_, layer, residual + nn::Offset(t, d),
                      routed_.data() + nn::Offset(t, d));
    residual = routed_.data();
  }
  Choose(layer, {.x = residual, .cols = d}, tokens);
}

Status ExpertFfn::ComputeFromFlash(int layer, const FfnInput& input) {
  const bool some_late = flash_->reading();
  if (input.tokens == 1) flash_->ReadAhead(layer, input.residual);
  PlaceReady(layer);
  computer_.ComputeNeurons(ready_, input);
  flash_->Poll();
  if (!some_late) return OkStatus();
  RETURN_IF_ERROR(flash_->Await());
  PlaceReady(layer);
  computer_.ComputeNeurons(ready_, input);
  return OkStatus();
}

void ExpertFfn::PlaceReady(int layer) {
  ready_.clear();
  for (ExpertUnit& unit : units_) {
    const bool shared = unit.expert < 0;
    if (unit.placed || unit.hot_row >= 0 || (!shared && !flash_->Has(layer, unit.expert))) continue;
    unit.placed = true;
    ready_.push_back(&unit);
    if (shared) continue;
    const ExpertPlace place = flash_->PlaceOf(layer, unit.expert);
    unit.gate.weight.data = place.gate;
    unit.up.weight.data = place.up;
    unit.down.weight.data = place.down;
  }
}

void ExpertFfn::Choose(int layer, const kernels::Activations& input, int tokens) {
  const model::ExpertWeights& w = context_.layer(layer).experts;
  const std::size_t e = context_.config.experts.num_experts,
                    k = context_.config.experts.num_experts_per_tok;
  const std::array product = {nn::Product{&w.router, logits_.data()}};
  context_.multiplier.Multiply(product, input, tokens);
  chosen_.resize(tokens * k);
  for (int t = 0; t < tokens; ++t) {
    router_.Choose(std::span(logits_).subspan(t * e, e), w.choice_bias,
                   std::span(chosen_).subspan(t * k, k), w.weight_scale);
  }
  for (std::size_t i = 0; i < k; ++i) chosen_ids_[i] = chosen_[i].expert;
  if (flash_.has_value()) flash_->Request(layer, chosen_, tokens);
}

void ExpertFfn::MakeUnits(int layer, const FfnInput& input) {
  const model::ExpertWeights& w = context_.layer(layer).experts;
  units_.clear();
  ready_.clear();
  computer_.Begin();
  AddExperts(w, input.tokens);
  if (w.shared_up.weight.rows > 0) AddShared(w, input);
}

void ExpertFfn::AddExperts(const model::ExpertWeights& w, int tokens) {
  const model::ExpertConfig& e = context_.config.experts;
  const int k = e.num_experts_per_tok, f = e.intermediate_size, d = context_.config.hidden_size;
  const bool on_input = e.router.on_input;
  std::fill(starts_.begin(), starts_.end(), 0);
  for (const ChosenExpert& c : chosen_) ++starts_[c.expert + 1];
  for (int i = 0; i < e.num_experts; ++i) starts_[i + 1] += starts_[i];
  const auto of = [](const model::Linear& all, int expert, int rows) {
    return model::Linear{model::ExpertWeights::Of(all.weight, expert, rows),
                         all.bias == nullptr ? nullptr : all.bias + nn::Offset(expert, rows)};
  };
  for (int i = 0; i < e.num_experts; ++i) {
    const int first = starts_[i], count = starts_[i + 1] - first;
    if (count == 0) continue;
    units_.push_back({.expert = i,
                      .gate = context_.gated() ? of(w.gate, i, f) : model::Linear{},
                      .up = of(w.up, i, f),
                      .down = of(w.down, i, d),
                      .tokens = count,
                      .ids = ids_.data() + first,
                      .weight = weights_.data() + first,
                      .input_weight = on_input ? input_weights_.data() + first : nullptr,
                      .h = &h_,
                      .up_out = up_.data(),
                      .first = first});
  }
  // A token's place among its expert's tokens: starts_ is advanced.
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < k; ++i) {
      const ChosenExpert& c = chosen_[nn::Offset(t, k) + i];
      const int place = starts_[c.expert]++;
      ids_[place] = t;
      weights_[place] = on_input ? 1.0F : c.weight;
      input_weights_[place] = c.weight;
    }
  }
}

void ExpertFfn::AddShared(const model::ExpertWeights& w, const FfnInput& input) {
  const int d = context_.config.hidden_size;
  for (int t = 0; t < input.tokens; ++t) {
    float score = 0;
    const float* x = input.hidden.x.data() + nn::Offset(t, d);
    for (int i = 0; w.shared_switch != nullptr && i < d; ++i) score += w.shared_switch[i] * x[i];
    shared_weight_[t] =
        w.shared_switch == nullptr ? context_.config.experts.PartScale() : nn::Sigmoid(score);
  }
  units_.push_back({.gate = w.shared_gate,
                    .up = w.shared_up,
                    .down = w.shared_down,
                    .tokens = input.tokens,
                    .weight = shared_weight_.data(),
                    .h = &shared_h_,
                    .up_out = shared_up_.data()});
}

void ExpertFfn::SumDown(int tokens, const float* rows, float* out) {
  const int d = context_.config.hidden_size;
  computer_.ForColumns([&](int column, int columns, int thread) {
    for (int t = 0; t < tokens; ++t) std::fill_n(out + nn::Offset(t, d) + column, columns, 0.0F);
    for (const ExpertUnit& unit : units_) {
      const auto add = [&](int i, const float* y) {
        const int token = unit.ids == nullptr ? i : unit.ids[i];
        AddWeighed(y, unit.weight[i], columns, out + nn::Offset(token, d) + column);
      };
      for (int i = 0; unit.hot_row >= 0 && i < unit.tokens; ++i)
        add(i, rows + nn::Offset(unit.hot_row + i, d) + column);
      if (unit.hot_row >= 0) continue;
      CHECK(unit.down.weight.data != nullptr);
      computer_.Down(unit, column, columns, thread, add);
    }
  });
}

void ExpertFfn::Count(int layer, int tokens, FfnCounters& counters) {
  const model::ExpertWeights& w = context_.layer(layer).experts;
  const model::ExpertConfig& e = context_.config.experts;
  int read = 0;
  for (const ExpertUnit& unit : units_) {
    if (unit.expert < 0) continue;
    stats_.uses[nn::Offset(layer, e.num_experts) + unit.expert] += unit.tokens;
    ++read;
  }
  if (flash_.has_value()) {
    stats_.guessed = flash_->guesses().guessed;
    stats_.guessed_right = flash_->guesses().right;
  }
  ++counters.steps;
  counters.computed += tokens;
  if (neurons_ != nullptr) {  // also the weights that every token reads
    counters += neurons_->counts();
    counters.bytes += w.bytes_per_step(0);
    return;
  }
  const model::LayerWeights& dense = context_.layer(layer);
  const std::int64_t rows = std::int64_t{read} * e.intermediate_size + e.shared_intermediate_size +
                            dense.up.linear.weight.rows;
  counters.gate_rows += rows;
  counters.up_rows += context_.gated() ? rows : 0;
  counters.down_rows += rows;
  counters.operations += tokens * DenseOperations(context_.config, layer);
  counters.bytes += w.bytes_per_step(read) + NetworkBytes(dense);
}

}  // namespace thermocline::ffn
