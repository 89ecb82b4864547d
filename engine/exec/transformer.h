// The forward pass: T tokens in, logits out.
//
//   x = embed(tokens) (+ positions)
//   for each layer:  q, k, v = W n1 (rotated);  a = Wo attention(q, k, v)     n1 = norm(x)
//                    f = Wdown act(Wgate n2) * (Wup n2)                       n2 = norm(x + a), or
//                    x += a + f                                               norm(x) in parallel
//   logits = Whead norm(x)                                                    blocks
// or x += norm(a), x += norm(f), with norms n1, n2 in addition or not. In recurrent layers a is the
// output of exec/recurrent_block.h; layers may lack a, or f.
// The differences between families are data: model/architecture.h. Every token's arithmetic is the
// same alone or in a batch, at any number of threads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/exec/altup.h"
#include "engine/exec/attention_block.h"
#include "engine/exec/block_tap.h"
#include "engine/exec/input_sparsity.h"
#include "engine/exec/output_head.h"
#include "engine/exec/rank_head.h"
#include "engine/exec/recurrent_block.h"
#include "engine/exec/step_result.h"
#include "engine/exec/text_parts.h"
#include "engine/exec/token_embedding.h"
#include "engine/exec/vector_head.h"
#include "engine/ffn/auditor.h"
#include "engine/ffn/hybrid_ffn.h"
#include "engine/ffn/neuron_experts.h"
#include "engine/ffn/sparse_ffn.h"
#include "engine/gpu/device_forward.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/kv_cache.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "engine/store/layer_stream.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows config, weights, ops and pool; owns its workspace. Allocates nothing
// after construction.
class Transformer {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const predictor::Predictors* predictors = nullptr;  // null: none
    const model::InputMajor* input_major = nullptr;     // copies for mode inputs; null: none
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    int tokens_max = 64;                           // T of one call
    int logits_max = 1;                            // tokens of one call with Logits::kAll
    int context_length = 0;                        // tokens a KvCache may hold
    int prefetch_bytes = kernels::kPrefetchBytes;  // as nn::Multiplier
    store::NeuronStore* flash = nullptr;           // as SparseFfn
    bool deciding_held = true;
    bool read_ahead = true;
    store::LayerStream* stream = nullptr;  // loads whole layers; null: all are in memory
    // The neurons computed here, as SparseFfn, and the partition of the others. Null: all are here.
    const std::vector<std::vector<int>>* members = nullptr;
    std::unique_ptr<ffn::FfnPartition> hot = nullptr;
    const ffn::ExpertNetworks* expert_networks = nullptr;  // of a mixture; null: whole experts
    // The partitions of a mixture, each of which computes its own experts. Both null: all are here.
    std::unique_ptr<ffn::ExpertPartition> hot_experts = nullptr;
    ffn::ExpertPartition* device_experts = nullptr;  // borrowed
    const nn::UpdateTable* updates = nullptr;        // of adapters; null: there are none
    gpu::DeviceForward* device = nullptr;  // computes the layers placed on a device; null: none
    Ablation ablation = {};
  };
  explicit Transformer(Params params);
  // Maximum bytes of the buffers that a transformer of these sizes allocates, without hot sides.
  static std::size_t BufferBytes(const nn::Workspace::Params& sizes, const ffn::FfnSizes& ffn);

  // kNothing: only the KV cache and the states are wanted. In prefill, layers are computed as far
  // as these need them, and the residual is not that of the last layer.
  enum class Logits { kNothing, kNone, kLast, kAll };
  // Prefill is lossless in every mode. Decoded tokens, and up to kSparseTokensMax tokens verified
  // together, are computed as the modes say; steps with both answers and prefill (kMixed) are
  // lossless. A step that verifies is ended by EndVerify. The caller reports with CountKept how
  // many tokens of a verified or mixed step were decoded and stay.
  enum class Step { kPrefill, kDecode, kVerify, kMixed };
  // Appends `tokens` to `cache` and computes the requested logits.
  // Returns [1, V] (kLast), [T, V] (kAll, T <= logits_max) or [0] (kNone); valid until the next
  // call. Errors, after which the cache's length is unchanged: Unavailable, DataLoss or Cancelled
  // from the flash tier; Unavailable from a device, with kv_cache_lost.
  //
  // Requires: 1 <= T <= tokens_max; ids in [0, V); room in the cache and its pool.
  StepResult<std::span<const float>> Forward(std::span<const int> tokens, nn::KvCache& cache,
                                             Logits wanted, Step step = Step::kDecode);
  // Computes the next part of an encoder's text, at most `most` tokens of one layer, and returns
  // the number of its tokens that are complete then, in order: 0 before the last layer. The text
  // has the bits that it has in one part. `cache` holds its K and V and has its length from the
  // first part on. Errors as Forward. Requires: `progress` is new, or that of the same text and
  // cache; an encoder.
  StepResult<int> ForwardText(std::span<const int> text, nn::KvCache& cache, TextProgress& progress,
                              int most);
  // True if other steps may come before the next part of a text. A tier that fetches layers is in
  // the midst of one; another text makes it begin anew.
  bool MayPause(const TextProgress& progress) const {
    return (flash_ == nullptr && stream_ == nullptr) || (progress.at == 0 && !progress.stored);
  }
  // The hidden states after the final norm of the last tokens [tokens, D] of Forward or
  // ForwardText; valid until the next call. Requires: Logits::kNone in that call, and no layers on
  // a device.
  std::span<const float> HiddenStates(int tokens);
  // The vector of a text, from its pooled states of length 1 [D] (VectorHead).
  std::vector<float> VectorOf(std::vector<float> pooled) {
    return vector_head_.has_value() ? vector_head_->Apply(std::move(pooled)) : std::move(pooled);
  }
  // The score of a pair of texts, from its first token's hidden state [D] or, with ranks_by_mean,
  // from the mean of all (RankHead).
  // Requires: config().ranks().
  float RankScore(std::span<const float> state);
  // One sequence's part of a shared step.
  struct Part {
    std::span<const int> tokens;
    nn::KvCache* cache = nullptr;
    int rows = 0;  // its last `rows` tokens have logits
  };
  // Appends each part's tokens to its cache, of one pool or of several: the weights are read once
  // for all, and each token has the bits that it has alone. Returns the requested logits [R, V], or
  // [R, rows] of an output with fewer rows, part by part. Errors as Forward; then no cache has
  // grown. A step that verifies is ended by EndVerify. Requires: as Forward, of all tokens
  // together; R <= logits_max; T <= ffn::kSparseTokensMax unless all layers are lossless; at most
  // parts_max() parts.
  // `cache_only`: as Logits::kNothing, if no part has rows.
  StepResult<std::span<const float>> ForwardParts(std::span<const Part> parts, Step step,
                                                  bool cache_only = false);
  // A hint that the first `tokens` of the tokens that the next step verifies will probably stay:
  // neurons that only the others need are not cached. Source: LLM in a flash, section 5.2.
  void ExpectKept(int tokens) {
    if (flash_ != nullptr) flash_->ExpectKept(tokens);
  }
  // Ends a step that verified tokens, of which the first `kept` stay: the others have no influence
  // on which neurons stay in memory.
  void EndVerify(int kept) {
    if (flash_ != nullptr) flash_->EndStep(kept);
  }
  // Counts `tokens` answer tokens that stay. Tokens of kDecode are counted automatically.
  void CountKept(int tokens) { kept_tokens_ += ffn_.counting() ? tokens : 0; }
  // Sets a function that is called repeatedly while a step waits for flash; false cancels it
  // (Cancelled).
  void SetOnWait(const std::function<bool()>& on_wait);

  // Sets the factor of each adapter from now on; empty: none is applied. With an adapter all
  // networks are computed in mode dense. Requires: the updates were given, if any factor is not 0.
  void SetAdapterScales(std::span<const float> scales) {
    if (updates_.has_value()) updates_->SetScales(scales);
  }

  // Modes, counters and taps of the feed-forward networks.
  ffn::SparseFfn& ffn() { return ffn_; }
  const ffn::SparseFfn& ffn() const { return ffn_; }
  // Computes one layer's network again for the last token's input, in its mode, to time it.
  Status ProbeFfn(int layer) {
    return ffn_.Run(layer, {ws_.hidden, ws_.residual.data(), 1}, false, ws_.ffn_out.data());
  }
  void ProbePredictor(int layer) {
    (void)ffn_.PredictedBy(layer, {ws_.hidden, ws_.residual.data(), 1}, ffn_.policy(layer));
  }
  // The counters of the layers on the CPU. Decode thread only.
  const AttentionCounters& attention_counters() const { return attention_.counters(); }
  // Figures of the two sides; zeros without a hot one. Decode thread only.
  ffn::HybridCounters hybrid_counters() const;
  // The counters of a layer's network, on all sides. Decode thread only.
  ffn::FfnCounters ffn_counters(int layer) const;
  // Sets an observer of the inputs of every product on the CPU; null: none. Borrowed.
  void SetTap(nn::ProductTap* tap) { multiplier_.SetTap(tap); }
  // Sets an observer of every CPU layer's output, which may change it; null: none. Borrowed.
  void SetBlockTap(BlockTap* tap) { block_tap_ = tap; }
  // The implementation of mode inputs; null: no rules are loaded.
  const InputSparsity* inputs() const { return inputs_.has_value() ? &*inputs_ : nullptr; }
  // Null if no layer is on a device.
  gpu::DeviceForward* device() { return device_; }
  const gpu::DeviceForward* device() const { return device_; }
  // Null if there is no hot side.
  ffn::HybridFfn* hybrid() { return hybrid_.has_value() ? &*hybrid_ : nullptr; }
  // `auditor` sees every decoded token from now on; null: none. Borrowed.
  void SetAuditor(ffn::Auditor* auditor) { auditor_ = auditor; }
  ffn::Auditor* auditor() { return auditor_; }
  // The sides that audits compare. Requires: a device, if any, was placed for audits.
  ffn::AuditedSides audited_sides() {
    if (device_ != nullptr) return {ffn_, device_->audited_side()};
    return {ffn_, hybrid_.has_value() ? hybrid_->hot().audited_side() : nullptr};
  }

  // The layers that a prefill step of Logits::kNothing computes. The one behind them, if there is
  // one, only stores its K and V.
  int LayersBeforeStoring() const {
    // Observers, and tiers that fetch layers, need all layers.
    const bool observed = block_tap_ != nullptr || multiplier_.tap() != nullptr || ffn_.tapped();
    const bool fetched = device_ != nullptr || flash_ != nullptr || stream_ != nullptr;
    return observed || fetched ? config_.num_hidden_layers : config_.StoringLayers() - 1;
  }

  int tokens_max() const { return ws_.tokens_max; }
  // Maximum sequences of one step.
  int parts_max() const { return device_ != nullptr ? device_->parts_max() : ws_.tokens_max; }
  // True if dense steps of more than ffn::kSparseTokensMax tokens are computed like shorter ones.
  bool StepsOfAnyLength() const { return device_ == nullptr && flash_ == nullptr; }
  const model::ModelConfig& config() const { return config_; }

 private:
  // Places the tokens of a step; returns the number of rows of logits.
  int Begin(std::span<const Part> parts, Step step);
  // Tells the tiers that fetch weights that the step ends here.
  void AbandonStep();
  // Returns errors of the flash tier only, for a table that stays in the file.
  Status Embed();
  // Computes the layers, and ends the flash tier's step. `rows`: rows of logits. Returns them if a
  // device has the head, else [0].
  StepResult<std::span<const float>> Blocks(Step step, int rows);
  Result<std::span<const float>> Layers(int rows);
  // Computes as much of a layer as its K and V, or its state, need.
  Status StoreOnly(int layer);
  Status Block(int layer, AttentionBlock::Keys keys = AttentionBlock::Keys::kNew);
  // ffn_out = the layer's dense network of `hidden` and its experts, each normed.
  Status NetworkBesideExperts(int layer);
  // Computes a layer without a mixer.
  Status NetworkAlone(int layer, bool by_inputs);
  // True if the layer's matrices read only inputs that count in this step; inputs_ is then set.
  bool EntersInputs(int layer, int tokens);
  // ffn_out = the feed-forward network of `hidden`.
  Status FeedForward(int layer, bool by_inputs);
  // Moves the residuals of tokens with logits to the front.
  void GatherRows(std::span<const Part> parts);

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Workspace ws_;
  nn::Multiplier multiplier_;
  std::optional<nn::LowRankUpdates> updates_;
  std::optional<LayerInputs> layer_inputs_;
  std::optional<AltUp> altup_;
  std::optional<RankHead> rank_head_;
  std::optional<VectorHead> vector_head_;
  ffn::SparseFfn ffn_;
  std::optional<InputSparsity> inputs_;
  StepTokens step_;
  TokenEmbedding embedding_;
  AttentionBlock attention_;
  TextParts texts_;
  std::optional<RecurrentBlock> recurrent_;
  ResidualStream residual_;
  OutputHead head_;
  std::unique_ptr<ffn::FfnPartition> hot_;
  std::unique_ptr<ffn::ExpertPartition> hot_experts_;
  std::unique_ptr<ffn::NeuronExperts> neuron_experts_;
  int streamed_layer_ = 0;  // the layer that a text's next part needs, if the stream is in order
  gpu::DeviceForward* const device_;
  std::optional<ffn::HybridFfn> hybrid_;
  ffn::Auditor* auditor_ = nullptr;
  BlockTap* block_tap_ = nullptr;
  store::NeuronStore* const flash_;
  store::LayerStream* const stream_;
  std::vector<gpu::DevicePart> device_parts_;  // of this step
  bool lossless_ = false, decoded_ = false;    // this step
  bool cache_only_ = false;
  std::int64_t kept_tokens_ = 0;
};

}  // namespace thermocline::exec
