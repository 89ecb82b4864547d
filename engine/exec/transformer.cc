#include "engine/exec/transformer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/index.h"
#include "engine/nn/for_tokens.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"
#include "kernels/quantize.h"

namespace thermocline::exec {

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
      inputs_(InputSparsity::ForRules(p.predictors, p.input_major, ffn_.context(), p.tokens_max)),
      step_(p.tokens_max),
      embedding_({.config = p.config, .weights = p.weights, .ops = p.ops, .pool = p.pool}),
      attention_({.config = p.config,
                  .weights = p.weights,
                  .ops = p.ops,
                  .pool = p.pool,
                  .multiplier = multiplier_,
                  .workspace = ws_,
                  .inputs = inputs_.has_value() ? &*inputs_ : nullptr,
                  .step = step_}),
      texts_({.config = p.config,
              .attention = attention_,
              .workspace = ws_,
              .step = step_,
              .embed = [this] { return Embed(); },
              .compute = [this](int layer, auto keys) { return Block(layer, keys); },
              .store = [this](int layer) { return StoreOnly(layer); }}),
      residual_(p.config, p.ops, p.pool, ws_),
      head_({.config = p.config,
             .weights = p.weights,
             .ops = p.ops,
             .multiplier = multiplier_,
             .residual = residual_,
             .workspace = ws_}),
      hot_(std::move(p.hot)),
      hot_experts_(std::move(p.hot_experts)),
      device_(p.device),
      flash_(p.flash),
      stream_(p.stream) {
  multiplier_.SetPrefetch(p.prefetch_bytes);
  if (p.updates != nullptr) {
    updates_.emplace(*p.updates, ops_, pool_, ws_.tokens_max);
    multiplier_.SetUpdates(&*updates_);
  }
  if (weights_.dense[0].weight.rows > 0) vector_head_.emplace(weights_.dense, ops_, multiplier_);
  if (config_.ranks()) rank_head_.emplace(config_, weights_.rank, ops_, multiplier_);
  device_parts_.reserve(p.tokens_max);
  if (config_.recurrent.any())
    recurrent_.emplace(RecurrentBlock::Params{.config = config_,
                                              .weights = weights_,
                                              .ops = ops_,
                                              .pool = pool_,
                                              .multiplier = multiplier_,
                                              .workspace = ws_,
                                              .step = step_});
  if (config_.altup.embedding_dim > 0)
    layer_inputs_.emplace(LayerInputs::Params{.config = config_,
                                              .weights = weights_,
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
                                 .inputs = *layer_inputs_,
                                 .tokens_max = ws_.tokens_max});
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
         AttentionBlock::Bytes(sizes.config, sizes.tokens_max) +
         RecurrentBlock::Bytes(sizes.config, sizes.tokens_max, sizes.threads) +
         AltUp::Bytes(sizes.config, sizes.tokens_max) +
         LayerInputs::Bytes(sizes.config, sizes.tokens_max) +
         (ffn.expert_rows ? ffn::NeuronExperts::Bytes(ffn) : 0) +
         sizes.threads * nn::PanelScratchBytesMax(sizes.config);
}

StepResult<std::span<const float>> Transformer::Forward(std::span<const int> tokens,
                                                        nn::KvCache& cache, Logits wanted,
                                                        Step step) {
  const int count = base::IntSize(tokens);
  const int rows = wanted == Logits::kAll ? count : wanted == Logits::kLast ? 1 : 0;
  const std::array part = {Part{tokens, &cache, rows}};
  return ForwardParts(part, step, wanted == Logits::kNothing);
}

StepResult<int> Transformer::ForwardText(std::span<const int> text, nn::KvCache& cache,
                                         TextProgress& progress, int most) {
  CHECK(config_.architecture->encoder && device_ == nullptr && !altup_.has_value());
  lossless_ = decoded_ = true;
  const int layer = progress.layer;
  if (stream_ != nullptr && layer != streamed_layer_) stream_->Abandon();
  const Status fetched = stream_ != nullptr ? stream_->Wait(layer) : OkStatus();
  const auto done = fetched.ok() ? texts_.Forward(text, cache, progress, most) : fetched;
  const bool ends = progress.layer == config_.num_hidden_layers;
  if (done.ok() && stream_ != nullptr && progress.layer > layer) stream_->Done(layer);
  streamed_layer_ = ends ? 0 : progress.layer;
  if (done.ok() && flash_ != nullptr && ends) flash_->EndStep(base::IntSize(text));
  if (done.ok()) return *done;
  AbandonStep();
  return StepError{done.status(), false};
}

void Transformer::AbandonStep() {
  if (flash_ != nullptr) flash_->Abandon();
  if (stream_ != nullptr) stream_->Abandon();
}

std::span<const float> Transformer::HiddenStates(int tokens) {
  CHECK(device_ == nullptr);
  residual_.Norm(weights_.output_norm, 0, tokens);
  return std::span<const float>(ws_.hidden.x).first(nn::Offset(tokens, config_.hidden_size));
}

float Transformer::RankScore(std::span<const float> state) {
  CHECK(rank_head_.has_value());
  return rank_head_->Score(state);
}

int Transformer::Begin(std::span<const Part> parts, Step step) {
  CHECK_LE(base::IntSize(parts), parts_max());
  lossless_ = step == Step::kPrefill || step == Step::kMixed;
  decoded_ = step != Step::kPrefill;
  step_.Clear();
  device_parts_.clear();
  int rows = 0;
  for (const Part& part : parts) {
    const int count = base::IntSize(part.tokens);
    CHECK(count >= 1 && count >= part.rows);
    // A part with logits for all of its tokens may contain drafted ones.
    const bool verified = step == Step::kVerify || step == Step::kMixed;
    const bool tentative = recurrent_.has_value() && verified && count > 1 && part.rows == count &&
                           count <= part.cache->pool().states().pending_max();
    step_.Add(part.tokens, *part.cache, attention_.TokensOfTile(count), tentative);
    CHECK(!recurrent_.has_value() || part.cache->has_state());
    ws_.Cover(part.cache->length() + count);
    device_parts_.push_back({part.cache, count, part.rows});
    rows += part.rows;
  }
  CHECK_LE(rows, ws_.logits_max);
  return rows;
}

StepResult<std::span<const float>> Transformer::ForwardParts(std::span<const Part> parts, Step step,
                                                             bool cache_only) {
  const int rows = Begin(parts, step);
  // Steps of decoded tokens are counted in every layer.
  cache_only_ = cache_only && rows == 0 && step == Step::kPrefill;
  const Status embedded = Embed();
  if (!embedded.ok()) return StepError{embedded, false};
  const auto done = Blocks(step, rows);
  if (recurrent_.has_value()) step_.EndStates(done.ok());
  if (!done.ok()) return done.error();
  for (const Part& part : parts) part.cache->Advance(base::IntSize(part.tokens));
  if (rows == 0 || !done->empty()) return *done;
  GatherRows(parts);
  return head_.Run(rows);
}

void Transformer::GatherRows(std::span<const Part> parts) {
  int to = 0, end = 0;
  for (const Part& part : parts) {
    end += base::IntSize(part.tokens);
    for (int from = end - part.rows; from < end; ++from, ++to) residual_.Move(from, to);
  }
}

ffn::HybridCounters Transformer::hybrid_counters() const {
  ffn::HybridCounters all = hybrid_.has_value() ? hybrid_->counters() : ffn::HybridCounters{};
  if (device_ != nullptr) all += device_->counters();
  if (ffn_.experts() != nullptr) all += ffn_.experts()->counters();
  return all;
}

StepResult<std::span<const float>> Transformer::Blocks(Step step, int rows) {
  const int tokens = step_.count();
  const auto logits = Layers(rows);
  if (logits.ok()) {
    if (step == Step::kDecode) CountKept(tokens);
    if (flash_ != nullptr && step != Step::kVerify) flash_->EndStep(tokens);
    // Runs while the device would otherwise wait for the next token.
    if (device_ != nullptr && auditor_ != nullptr && !lossless_) auditor_->Start(audited_sides());
    return *logits;
  }
  AbandonStep();
  return StepError{logits.status(), device_ != nullptr && device_->failed()};
}

Result<std::span<const float>> Transformer::Layers(int rows) {
  const int tokens = step_.count();
  std::span<const float> logits;
  // Longer steps compute all neurons in every mode, so there is nothing to audit.
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
  const int needed = cache_only_ ? LayersBeforeStoring() : config_.num_hidden_layers;
  for (; layer < needed; ++layer) {
    if (stream_ != nullptr) RETURN_IF_ERROR(stream_->Wait(layer));
    RETURN_IF_ERROR(Block(layer));
    if (block_tap_ != nullptr) block_tap_->OnBlock(layer, ws_.residual.data(), tokens);
    if (stream_ != nullptr) stream_->Done(layer);
  }
  if (needed < config_.num_hidden_layers) {
    RETURN_IF_ERROR(StoreOnly(needed));
    return logits;
  }
  if (altup_.has_value()) altup_->End(tokens, ws_.residual.data());
  return logits;
}

void Transformer::SetOnWait(const std::function<bool()>& on_wait) {
  if (flash_ != nullptr) flash_->SetOnWait(on_wait);
  if (stream_ != nullptr) stream_->SetOnWait(on_wait);
}

Status Transformer::Embed() {
  // The hidden states are free until the first norm.
  embedding_.Compute(step_, ws_.residual.data(), ws_.hidden.x.data());
  if (altup_.has_value()) return altup_->Begin(step_.ids(), ws_.residual.data());
  if (!layer_inputs_.has_value()) return OkStatus();
  residual_.Norm({}, 0, step_.count());
  return layer_inputs_->Begin(step_.ids(), ws_.hidden);
}

Status Transformer::StoreOnly(int layer) {
  if (config_.recurrent.of(layer) != model::Mixer::kAttention || altup_.has_value())
    return Block(layer);
  const model::LayerWeights& w = weights_.layers[layer];
  const bool own_norm = w.attn_second_norm.weight != nullptr;
  residual_.Norm(own_norm ? w.attn_second_norm : w.attn_norm, 0, step_.count());
  attention_.StoreOnly(layer);
  return OkStatus();
}

Status Transformer::Block(int layer, AttentionBlock::Keys keys) {
  const model::LayerWeights& w = weights_.layers[layer];
  const int tokens = step_.count();
  const bool own_norm = w.attn_second_norm.weight != nullptr;
  const bool by_inputs = EntersInputs(layer, tokens);
  if (altup_.has_value()) altup_->Predict(layer, tokens, ws_.residual.data());
  const model::RouterInput routed = config_.experts.router.input;
  if (routed == model::RouterInput::kResidualBefore && config_.experts.InLayer(layer))
    ffn_.ChooseExperts(layer, ws_.residual.data(), tokens);
  const model::Mixer mixer = config_.recurrent.of(layer);
  if (mixer == model::Mixer::kNone) return NetworkAlone(layer, by_inputs);
  residual_.Norm(own_norm ? w.attn_second_norm : w.attn_norm, 0, tokens);
  if (mixer == model::Mixer::kAttention) {
    attention_.Run(layer, by_inputs, keys);
  } else {
    recurrent_->Run(layer);
  }
  if (flash_ != nullptr) flash_->Poll();
  if (config_.architecture->parallel_block) {
    if (own_norm) residual_.Norm(w.attn_norm, 0, tokens);
    RETURN_IF_ERROR(FeedForward(layer, by_inputs));
    residual_.Add(w.attn_post_norm, ws_.attention_out, tokens);
  } else {
    residual_.Add(w.attn_post_norm, ws_.attention_out, tokens);
    if (!config_.recurrent.has_network(layer)) return OkStatus();
    if (altup_.has_value()) altup_->AddLaurel(layer, tokens, ws_.hidden, ws_.residual.data());
    residual_.Norm(w.ffn_norm, 0, tokens);
    RETURN_IF_ERROR(w.expert_norm.weight != nullptr ? NetworkBesideExperts(layer)
                                                    : FeedForward(layer, by_inputs));
  }
  residual_.Add(w.ffn_post_norm, ws_.ffn_out, tokens);
  if (altup_.has_value()) {
    altup_->Correct(layer, tokens, ws_.residual.data());
  } else if (layer_inputs_.has_value()) {
    residual_.Norm({}, 0, tokens);
    layer_inputs_->Contribute(layer, tokens, ws_.hidden, ws_.ffn_out.data());
    residual_.Add({}, ws_.ffn_out, tokens);
  }
  if (w.out_scale != nullptr)
    nn::Scale(*w.out_scale, ws_.residual.data(), tokens * config_.hidden_size);
  return OkStatus();
}

// Attention's output has been added, so that its buffer holds the dense network's.
Status Transformer::NetworkBesideExperts(int layer) {
  const model::LayerWeights& w = weights_.layers[layer];
  const int tokens = step_.count();
  ffn_.RunBeside(layer, {ws_.hidden, ws_.residual.data(), tokens, decoded_},
                 ws_.attention_out.data());
  residual_.NormOutput(w.dense_post_norm, ws_.attention_out, tokens);
  ffn_.ChooseExperts(layer, ws_.residual.data(), tokens);
  residual_.Norm(w.expert_norm, 0, tokens);
  RETURN_IF_ERROR(FeedForward(layer, false));
  residual_.NormOutput(w.expert_post_norm, ws_.ffn_out, tokens);
  ops_.add(ws_.ffn_out.data(), ws_.attention_out.data(), tokens * config_.hidden_size);
  return OkStatus();
}

Status Transformer::NetworkAlone(int layer, bool by_inputs) {
  const model::LayerWeights& w = weights_.layers[layer];
  residual_.Norm(w.ffn_norm, 0, step_.count());
  RETURN_IF_ERROR(FeedForward(layer, by_inputs));
  residual_.Add(w.ffn_post_norm, ws_.ffn_out, step_.count());
  return OkStatus();
}

bool Transformer::EntersInputs(int layer, int tokens) {
  if (!inputs_.has_value() || lossless_ || tokens > ffn::kSparseTokensMax) return false;
  const ffn::FfnPolicy& policy = ffn_.policy(layer);
  if (policy.mode != FfnMode::kInputs) return false;
  inputs_->Enter(layer, policy.input_point);
  return true;
}

Status Transformer::FeedForward(int layer, bool by_inputs) {
  const int tokens = step_.count();
  if (by_inputs) {
    inputs_->FeedForward(ws_.hidden.x.data(), tokens, ws_.ffn_out.data());
    return OkStatus();
  }
  const ffn::SparseFfn::Input input{ws_.hidden, ws_.residual.data(), tokens, decoded_};
  RETURN_IF_ERROR(hybrid_.has_value() ? hybrid_->Run(layer, input, lossless_, ws_.ffn_out.data())
                                      : ffn_.Run(layer, input, lossless_, ws_.ffn_out.data()));
  if (auditor_ != nullptr && !lossless_)
    auditor_->KeepInput(layer, {.hidden = ws_.hidden.x.data(), .residual = ws_.residual.data()},
                        ffn_.policy(layer));
  return OkStatus();
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
