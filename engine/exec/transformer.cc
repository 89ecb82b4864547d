#include "engine/exec/transformer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/index.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"
#include "kernels/quantize.h"

namespace thermocline::exec {
namespace {

void Scale(double scale, float* x, int n) {
  if (scale == 1) return;
  const auto factor = static_cast<float>(scale);
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

Transformer::Transformer(Params p)
    : config_(p.config),
      weights_(p.weights),
      ops_(p.ops),
      pool_(p.pool),
      ws_({.config = p.config,
           .tokens_max = p.tokens_max,
           .logits_max = p.logits_max,
           .context_length = p.context_length,
           .threads = p.pool.threads()}),
      multiplier_(p.ops, p.pool, nn::PanelScratchBytes(p.weights)),
      ffn_({.config = p.config,
            .weights = p.weights,
            .predictors = p.predictors,
            .ops = p.ops,
            .pool = p.pool,
            .multiplier = multiplier_,
            .tokens_max = p.tokens_max,
            .flash = p.flash,
            .deciding_held = p.deciding_held,
            .read_ahead = p.read_ahead,
            .members = p.members,
            .ablation = p.ablation}),
      hot_(std::move(p.hot)),
      hot_experts_(std::move(p.hot_experts)),
      device_(p.device),
      flash_(p.flash),
      stream_(p.stream),
      places_(p.tokens_max),
      group_(p.config.num_attention_heads / p.config.num_key_value_heads) {
  multiplier_.SetPrefetch(p.prefetch_bytes);
  tiles_.reserve(p.tokens_max);
  ids_.reserve(p.tokens_max);
  device_parts_.reserve(p.tokens_max);
  if (config_.latent.any())
    latent_.emplace(LatentAttention::Params{.config = config_,
                                            .ops = ops_,
                                            .pool = pool_,
                                            .multiplier = multiplier_,
                                            .tokens_max = ws_.tokens_max});
  if (config_.altup.any())
    altup_.emplace(AltUp::Params{.config = config_,
                                 .weights = weights_,
                                 .ops = ops_,
                                 .pool = pool_,
                                 .multiplier = multiplier_,
                                 .tokens_max = ws_.tokens_max});
  if (p.predictors != nullptr && !p.predictors->layers.empty() &&
      p.predictors->layers.front().inputs.has_value())
    inputs_.emplace(
        InputSparsity::Params{.context = ffn_.context(),
                              .predictors = *p.predictors,
                              .weights = p.input_major,
                              .tokens_max = std::min(p.tokens_max, ffn::kSparseTokensMax)});
  if (config_.architecture->value_norm) ones_.assign(config_.head_dim, 1.0F);
  ffn::ExpertPartition* experts =
      p.device_experts != nullptr ? p.device_experts : hot_experts_.get();
  if (experts != nullptr) ffn_.SetHotExperts(experts);
  if (p.expert_networks != nullptr) {
    neuron_experts_ =
        std::make_unique<ffn::NeuronExperts>(*p.expert_networks, ffn_.context(), ws_.tokens_max);
    ffn_.SetNeuronExperts(neuron_experts_.get());
  }
  ffn::FfnPartition* hot = device_ != nullptr ? device_->partition() : hot_.get();
  if (hot == nullptr) return;
  hybrid_.emplace(ffn::HybridFfn::Params{.config = config_,
                                         .weights = weights_,
                                         .ops = ops_,
                                         .pool = pool_,
                                         .cold = ffn_,
                                         .hot = *hot,
                                         .tokens_max = ws_.tokens_max});
}

std::size_t Transformer::BufferBytes(const nn::Workspace::Params& sizes, const ffn::FfnSizes& ffn) {
  return nn::Workspace::Bytes(sizes) + ffn::SparseFfn::Bytes(ffn) +
         LatentAttention::Bytes(sizes.config, sizes.tokens_max) +
         AltUp::Bytes(sizes.config, sizes.tokens_max) +
         (ffn.expert_rows ? ffn::NeuronExperts::Bytes(ffn) : 0) +
         sizes.threads * nn::PanelScratchBytesMax(sizes.config);
}

void Transformer::Begin(Step step) {
  lossless_ = step == Step::kPrefill || step == Step::kMixed;
  decoded_ = step != Step::kPrefill;
}

StepResult<std::span<const float>> Transformer::Forward(std::span<const int> tokens,
                                                        nn::KvCache& cache, Logits wanted,
                                                        Step step) {
  Begin(step);
  const int count = base::IntSize(tokens);
  CHECK(count >= 1 && count <= ws_.tokens_max);
  CHECK_LE(cache.length() + count, cache.capacity());
  CHECK(cache.Reserve(count));
  ws_.Cover(cache.length() + count);
  for (int t = 0; t < count; ++t) places_[t] = {&cache, cache.length() + t};
  tiles_.clear();
  AddTiles(0, count);
  const int rows = wanted == Logits::kAll ? count : wanted == Logits::kLast ? 1 : 0;
  device_parts_.assign(1, {&cache, count, rows});
  const Status embedded = Embed(tokens);
  if (!embedded.ok()) return StepError{embedded, false};
  CHECK_LE(rows, ws_.logits_max);
  const auto on_device = Blocks(count, step, rows);
  if (!on_device.ok()) return on_device.error();
  cache.Advance(count);
  if (rows == 0 || !on_device->empty()) return *on_device;
  Head(count - rows, rows);
  return std::span<const float>(ws_.logits)
      .first(static_cast<std::size_t>(rows) * config_.vocab_size);
}

std::span<const float> Transformer::HiddenStates(int tokens) {
  CHECK(device_ == nullptr);
  NormHidden(weights_.output_norm, 0, tokens);
  return std::span<const float>(ws_.hidden.x)
      .first(static_cast<std::size_t>(tokens) * config_.hidden_size);
}

StepResult<std::span<const float>> Transformer::ForwardParts(std::span<const Part> parts,
                                                             Step step) {
  CHECK_LE(base::IntSize(parts), parts_max());
  Begin(step);
  tiles_.clear();
  ids_.clear();
  device_parts_.clear();
  int rows = 0;
  for (const Part& part : parts) {
    nn::KvCache& cache = *part.cache;
    const int first = base::IntSize(ids_), count = base::IntSize(part.tokens);
    CHECK(count >= part.rows && first + count <= ws_.tokens_max);
    CHECK_LE(cache.length() + count, cache.capacity());
    CHECK(cache.Reserve(count));
    ws_.Cover(cache.length() + count);
    for (int t = 0; t < count; ++t) places_[first + t] = {&cache, cache.length() + t};
    ids_.insert(ids_.end(), part.tokens.begin(), part.tokens.end());
    AddTiles(first, count);
    device_parts_.push_back({&cache, count, part.rows});
    rows += part.rows;
  }
  CHECK_LE(rows, ws_.logits_max);
  const int count = base::IntSize(ids_);
  const Status embedded = Embed(ids_);
  if (!embedded.ok()) return StepError{embedded, false};
  const auto done = Blocks(count, step, rows);
  if (!done.ok()) return done.error();
  for (const Part& part : parts) part.cache->Advance(base::IntSize(part.tokens));
  if (rows == 0 || !done->empty()) return *done;
  GatherRows(parts);
  Head(0, rows);
  return std::span<const float>(ws_.logits)
      .first(static_cast<std::size_t>(rows) * config_.vocab_size);
}

// Moves the residuals whose logits are wanted to the front.
void Transformer::GatherRows(std::span<const Part> parts) {
  const int d = config_.hidden_size;
  int to = 0, end = 0;
  for (const Part& part : parts) {
    end += base::IntSize(part.tokens);
    for (int from = end - part.rows; from < end; ++from, ++to) {
      const float* row = ws_.residual.data() + nn::Offset(from, d);
      if (from != to) std::copy_n(row, d, ws_.residual.data() + nn::Offset(to, d));
    }
  }
}

ffn::HybridCounters Transformer::hybrid_counters() const {
  ffn::HybridCounters all = hybrid_.has_value() ? hybrid_->counters() : ffn::HybridCounters{};
  if (device_ != nullptr) all += device_->counters();
  if (ffn_.experts() != nullptr) all += ffn_.experts()->counters();
  return all;
}

StepResult<std::span<const float>> Transformer::Blocks(int tokens, Step step, int rows) {
  const auto logits = Layers(tokens, rows);
  if (logits.ok()) {
    if (step == Step::kDecode) CountKept(tokens);
    if (flash_ != nullptr && step != Step::kVerify) flash_->EndStep(tokens);
    // While the device would wait for the next token.
    if (device_ != nullptr && auditor_ != nullptr && !lossless_) auditor_->Start(audited_sides());
    return *logits;
  }
  if (flash_ != nullptr) flash_->Abandon();
  if (stream_ != nullptr) stream_->Abandon();
  return StepError{logits.status(), device_ != nullptr && device_->failed()};
}

Result<std::span<const float>> Transformer::Layers(int tokens, int rows) {
  std::span<const float> logits;
  // Longer steps are computed whole, whatever the modes.
  const bool audited = !lossless_ && tokens <= ffn::kSparseTokensMax;
  ffn::Auditor* const auditor = audited ? auditor_ : nullptr;
  if (auditor != nullptr) auditor->Begin();
  int layer = 0;
  if (device_ != nullptr) {
    ASSIGN_OR_RETURN(logits, device_->Run({ws_.residual.data(), tokens, device_parts_, rows,
                                           lossless_, decoded_, auditor},
                                          ffn_));
    layer = device_->home_layers();
  }
  for (; layer < config_.num_hidden_layers; ++layer) {
    if (stream_ != nullptr) RETURN_IF_ERROR(stream_->Wait(layer));
    RETURN_IF_ERROR(Block(layer, tokens));
    if (block_tap_ != nullptr) block_tap_->OnBlock(layer, ws_.residual.data(), tokens);
    if (stream_ != nullptr) stream_->Done(layer);
  }
  if (altup_.has_value()) altup_->End(tokens, ws_.residual.data());
  return logits;
}

void Transformer::SetOnWait(const std::function<bool()>& on_wait) {
  if (flash_ != nullptr) flash_->SetOnWait(on_wait);
  if (stream_ != nullptr) stream_->SetOnWait(on_wait);
}

Status Transformer::Embed(std::span<const int> tokens) {
  const int d = config_.hidden_size;
  ForTokens(base::IntSize(tokens), [&](int t) {
    const int token = tokens[t];
    CHECK(token >= 0 && token < config_.vocab_size);
    float* x = ws_.residual.data() + nn::Offset(t, d);
    kernels::DequantizePackedRow(weights_.token_embedding, token, x);
    Scale(config_.embedding_scale, x, d);
    if (config_.rotary()) return;
    float* learned = ws_.hidden.x.data() + nn::Offset(t, d);  // free until the first norm
    kernels::DequantizePackedRow(weights_.position_embedding,
                                 places_[t].position + config_.architecture->position_offset,
                                 learned);
    ops_.add(x, learned, d);
  });
  return altup_.has_value() ? altup_->Begin(tokens, ws_.residual.data()) : OkStatus();
}

Status Transformer::Block(int layer, int tokens) {
  const model::LayerWeights& w = weights_.layers[layer];
  const bool own_norm = w.attn_second_norm.weight != nullptr;
  if (altup_.has_value()) altup_->Predict(layer, tokens, ws_.residual.data());
  if (config_.experts.router.before_attention && config_.experts.InLayer(layer))
    ffn_.ChooseExperts(layer, ws_.residual.data(), tokens);
  NormHidden(own_norm ? w.attn_second_norm : w.attn_norm, 0, tokens);
  Attention(layer, tokens);
  if (flash_ != nullptr) flash_->Poke();
  if (config_.architecture->parallel_block) {
    if (own_norm) NormHidden(w.attn_norm, 0, tokens);
    RETURN_IF_ERROR(FeedForward(layer, tokens));
    AddToResidual(w.attn_post_norm, ws_.attention_out, tokens);
  } else {
    AddToResidual(w.attn_post_norm, ws_.attention_out, tokens);
    if (altup_.has_value()) altup_->AddLaurel(layer, tokens, ws_.hidden, ws_.residual.data());
    NormHidden(w.ffn_norm, 0, tokens);
    RETURN_IF_ERROR(FeedForward(layer, tokens));
  }
  AddToResidual(w.ffn_post_norm, ws_.ffn_out, tokens);
  if (altup_.has_value()) altup_->Correct(layer, tokens, ws_.residual.data());
  return OkStatus();
}

void Transformer::AddToResidual(const model::NormWeights& norm, std::vector<float>& out,
                                int tokens) {
  const int d = config_.hidden_size;
  if (norm.weight != nullptr) {
    ForTokens(tokens, [&](int t) {
      float* row = out.data() + nn::Offset(t, d);
      Normalize(norm, row, d, row);
    });
  }
  Scale(config_.residual_scale, out.data(), tokens * d);
  ops_.add(ws_.residual.data(), out.data(), tokens * d);
}

bool Transformer::EntersInputs(int layer, int tokens) {
  if (!inputs_.has_value() || lossless_ || tokens > ffn::kSparseTokensMax) return false;
  const ffn::FfnPolicy& policy = ffn_.policy(layer);
  if (policy.mode != FfnMode::kInputs) return false;
  inputs_->Enter(layer, policy.input_point);
  return true;
}

Status Transformer::FeedForward(int layer, int tokens) {
  if (EntersInputs(layer, tokens)) {
    inputs_->FeedForward(ws_.hidden.x.data(), tokens, ws_.ffn_out.data());
    return OkStatus();
  }
  const ffn::SparseFfn::Input input{ws_.hidden, ws_.residual.data(), tokens, decoded_};
  RETURN_IF_ERROR(hybrid_.has_value() ? hybrid_->Run(layer, input, lossless_, ws_.ffn_out.data())
                                      : ffn_.Run(layer, input, lossless_, ws_.ffn_out.data()));
  if (auditor_ != nullptr && !lossless_)
    auditor_->Keep(layer, {.hidden = ws_.hidden.x.data(), .residual = ws_.residual.data()},
                   ffn_.policy(layer));
  return OkStatus();
}

// A quantised head multiplies 8-bit activations, and their rounding is most of the error of the
// logits (0.06 of the 0.06 nats on Tidepool; all other products together give 0.01). So the
// rounding error itself is quantised too and multiplied as a second token: 16 bits of precision for
// the same weight bytes.
void Transformer::Head(int first, int count) {
  const int d = config_.hidden_size;
  NormHidden(weights_.output_norm, first, count);
  const std::array product = {nn::Product{&weights_.output, ws_.logits.data()}};
  const int logits = count * config_.vocab_size;
  if (!kernels::Traits(weights_.output.weight.type).quantized) {
    Multiply(product, ws_.hidden, count);
    return FinishLogits(logits);
  }
  nn::ActivationBuffer& x = ws_.head;
  for (int t = 0; t < count; ++t) {
    const std::ptrdiff_t from = nn::Offset(t, d), rest = nn::Offset(count + t, d);
    const kernels::Activations hidden = ws_.hidden.view(from, d);
    for (int i = 0; i < d; ++i) {
      x.x[from + i] = hidden.x[i];
      x.x[rest + i] = hidden.x[i] - hidden.scale[i / kernels::kActivationBlock] * hidden.q[i];
    }
    Quantize(x, t);
    Quantize(x, count + t);
  }
  Multiply(product, x, 2 * count, /*fold=*/true);
  FinishLogits(logits);
}

void Transformer::FinishLogits(int count) {
  Scale(config_.logit_scale, ws_.logits.data(), count);
  if (config_.logit_cap > 0)
    ops_.soft_cap(ws_.logits.data(), count, static_cast<float>(config_.logit_cap));
}

void Transformer::NormHidden(const model::NormWeights& norm, int first, int tokens) {
  const int d = config_.hidden_size;
  ForTokens(tokens, [&](int t) {
    const float* x = ws_.residual.data() + nn::Offset(first + t, d);
    float* out = ws_.hidden.x.data() + nn::Offset(t, d);
    if (norm.weight != nullptr) {
      Normalize(norm, x, d, out);
    } else {
      std::copy_n(x, d, out);
    }
    Quantize(ws_.hidden, t);
  });
}

void Transformer::Normalize(const model::NormWeights& norm, const float* x, int n, float* out) {
  nn::Normalize(ops_, config_, norm, x, n, out);
}

void Transformer::Quantize(nn::ActivationBuffer& buffer, int token) {
  nn::QuantizeToken(ops_, buffer, token);
}

void Transformer::Multiply(std::span<const nn::Product> products, const nn::ActivationBuffer& input,
                           int tokens, bool fold) {
  multiplier_.Multiply(products, input.view(), tokens, fold);
}

ffn::FfnCounters Transformer::ffn_counters(int layer) const {
  ffn::FfnCounters all = ffn_.counters(layer);
  for (const model::InputKind kind : {model::InputKind::kFfn, model::InputKind::kDown}) {
    if (!inputs_.has_value()) break;
    const nn::InputCounts& counts = inputs_->counts(layer, kind);
    all.bytes += counts.bytes;
    all.operations += counts.operations;
    if (kind != model::InputKind::kFfn) continue;
    all.steps += counts.steps;
    all.computed += counts.tokens;
  }
  if (hot_ != nullptr && hot_->NumNeurons(layer) > 0) all += hot_->ffn_counters(layer);
  if (device_ != nullptr && layer < device_->home_layers()) all += device_->ffn_counters(layer);
  if (device_ != nullptr && layer >= device_->home_layers() && device_->partition() != nullptr)
    all += device_->partition()->ffn_counters(layer);
  all.tokens = kept_tokens_;
  return all;
}

}  // namespace thermocline::exec
