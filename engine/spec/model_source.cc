#include "engine/spec/model_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"

namespace thermocline::spec {
namespace {

constexpr int kChunk = 64;  // tokens of one step
// Paths of one step, which the draft model computes together.
constexpr int kPathsMax = ffn::kSparseTokensMax;
// Blocks of a path beyond its shared ones: a copy of the block where it begins, and its drafted
// tokens.
constexpr int kPathBlocks = 1 + (kProposalsMax + kernels::kKvBlock - 1) / kernels::kKvBlock;
// For drafts by the target itself: the sequence needs as many blocks as a path, for its begun block
// and its drafts.
constexpr int kSelfBlocks = (1 + kPathsMax) * kPathBlocks;
static_assert(2 * kProposalsMax <= kernels::kKvBlock);  // a draft and one after it
static_assert(2 * kProposalsMax <= nn::kKvSlack);       // tokens that are rolled back

}  // namespace

Result<std::unique_ptr<ModelSource>> ModelSource::Create(Params params) {
  // Whole panels of rows: fewer panels are the same matrix with fewer rows.
  const int panels = (params.head + kernels::kPanelRows - 1) / kernels::kPanelRows;
  load::LoadedModel& model = *params.model;
  kernels::PackedMatrix& output = model.weights->output.weight;
  if (params.head > 0) output.rows = std::min(output.rows, panels * kernels::kPanelRows);
  ASSIGN_OR_RETURN(auto pool, nn::KvPool::Create({.config = model.config,
                                                  .blocks = nn::BlocksFor(params.capacity) +
                                                            kPathsMax * kPathBlocks,
                                                  .type = model.kv_type}));
  auto transformer = model.MakeTransformer(kChunk, params.capacity, kPathsMax);
  return std::unique_ptr<ModelSource>(
      new ModelSource({.model = std::move(params.model),
                       .pool = std::move(pool),
                       .transformer = std::move(transformer),
                       .capacity = params.capacity,
                       .width = params.width,
                       .head = static_cast<std::size_t>(output.rows),
                       .acceptance = params.acceptance}));
}

Result<std::unique_ptr<ModelSource>> ModelSource::OfTarget(SelfParams params) {
  const load::LoadedModel& model = params.model;
  CHECK(model.memory.tier == load::MemoryPlan::Tier::kMemory && model.split == nullptr &&
        model.device_forward == nullptr);
  ASSIGN_OR_RETURN(
      auto pool,
      nn::KvPool::Create({.config = model.config,
                          .blocks = kSelfBlocks,
                          .type = model.kv_type,
                          .window_blocks = params.cache.pool().window() > 0 ? kSelfBlocks : 0}));
  auto workers = std::make_unique<base::WorkerPool>(params.threads);
  const int capacity = params.cache.capacity();
  auto transformer = model.MakeTransformer(kSelfStepTokens, capacity, kPathsMax, workers.get());
  for (int l = 0; l < base::IntSize(params.policies); ++l)
    transformer->ffn().policy(l) = params.policies[l];
  transformer->ffn().SetCounting(false);
  return std::unique_ptr<ModelSource>(
      new ModelSource({.model = nullptr,
                       .workers = std::move(workers),
                       .pool = std::move(pool),
                       .transformer = std::move(transformer),
                       .target = &params.cache,
                       .capacity = capacity,
                       .width = params.width,
                       .head = static_cast<std::size_t>(model.config.vocab_size),
                       .acceptance = params.acceptance}));
}

std::size_t ModelSource::KvBytes(const model::ModelConfig& config, int capacity,
                                 kernels::KvType type) {
  return (nn::BlocksFor(capacity) + kPathsMax * kPathBlocks) * nn::KvPool::BlockBytes(config, type);
}

std::size_t ModelSource::SelfKvBytes(const model::ModelConfig& config, kernels::KvType type) {
  return kSelfBlocks * nn::KvPool::BlockBytes(config, type);
}

ModelSource::ModelSource(Parts parts)
    : model_(std::move(parts.model)),
      own_workers_(std::move(parts.workers)),
      workers_(own_workers_ != nullptr ? *own_workers_ : *model_->pool),
      pool_(std::move(parts.pool)),
      target_(parts.target),
      cache_(std::make_unique<nn::KvCache>(*pool_, parts.capacity)),
      transformer_(std::move(parts.transformer)),
      proposals_(transformer_->config().vocab_size, parts.capacity + kProposalsMax),
      width_(parts.width),
      acceptance_(parts.acceptance),
      threads_alone_(workers_.threads()),
      head_(parts.head) {
  wanted_.reserve(parts.capacity + kProposalsMax);
  cached_.reserve(wanted_.capacity());
  for (int i = 0; i < kPathsMax; ++i) {
    PathState& path = paths_.emplace_back();
    path.cache = std::make_unique<nn::KvCache>(*pool_, parts.capacity);
    path.tokens.reserve(wanted_.capacity());
  }
  step_paths_.reserve(kPathsMax);
  step_parts_.reserve(kPathsMax);
  const std::size_t vocabulary = transformer_->config().vocab_size;
  if (head_ < vocabulary) logits_.assign(vocabulary, -INFINITY);
}

void ModelSource::Begin(std::span<const int> prompt, const SamplingParams& params) {
  proposals_.Begin(prompt, params, width_, acceptance_ == Acceptance::kRejection);
  prompt_ = prompt.size();
  if (target_ == nullptr) return;  // keeps the cached tokens for reuse
  cache_->Clear();
  cached_.clear();
  taken_ = 0;
}

void ModelSource::OnTargetIdle(std::span<const int> sequence) {
  if (target_ == nullptr) return;
  const int length = target_->length();
  if (length == taken_) return;  // the drafts after it stay valid
  CHECK_EQ(length + 1, base::IntSize(sequence));
  cache_->Clear();
  cache_->Share(*target_, length);
  CHECK(cache_->Reserve(1));  // copies the block that the target keeps writing
  cached_.assign(sequence.begin(), sequence.begin() + length);
  taken_ = length;
}

Result<std::span<const float>> ModelSource::Feed() {
  const auto differ = std::mismatch(cached_.begin(), cached_.end(), wanted_.begin(), wanted_.end());
  // The last token is recomputed even if it is cached, because its logits are needed.
  const std::size_t common =
      std::min(static_cast<std::size_t>(differ.first - cached_.begin()), wanted_.size() - 1);
  cached_.resize(common);
  cache_->SetLength(static_cast<int>(common));
  std::span<const float> logits;
  const bool self = target_ != nullptr;  // never the whole network
  const std::size_t chunk = transformer_->tokens_max();
  while (cached_.size() < wanted_.size()) {
    if (wanted_.size() - cached_.size() > chunk / 4 && should_continue_ && !should_continue_())
      return Status(StatusCode::kCancelled, "the draft is not wanted any more");
    const std::size_t count = std::min(chunk, wanted_.size() - cached_.size());
    const auto tokens = std::span(wanted_).subspan(cached_.size(), count);
    const bool last = cached_.size() + count == wanted_.size();
    ASSIGN_OR_RETURN(
        logits, transformer_->Forward(
                    tokens, *cache_,
                    last ? exec::Transformer::Logits::kLast : exec::Transformer::Logits::kNothing,
                    self || count == 1 ? exec::Transformer::Step::kDecode
                                       : exec::Transformer::Step::kPrefill));
    cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  }
  return WithAllTokens(logits);
}

std::span<const float> ModelSource::WithAllTokens(std::span<const float> logits) {
  if (logits_.empty()) return logits;
  std::copy_n(logits.begin(), head_, logits_.begin());
  return logits_;
}

// Computes all but the last token, if there are more than a round usually leaves. This time does
// not count as drafting.
Status ModelSource::CatchUp() {
  constexpr std::size_t kFewTokens = 4;
  if (wanted_.size() < cached_.size() + kFewTokens) return OkStatus();
  const base::Stopwatch watch;
  const int last = wanted_.back();
  wanted_.pop_back();
  const auto logits = Feed();
  wanted_.push_back(last);
  catch_up_s_ = watch.Seconds();
  return logits.status();
}

Status ModelSource::Propose(std::span<const int> sequence, const More& more, Draft& draft) {
  wanted_.assign(sequence.begin(), sequence.end());
  for (int i = 0; i < draft.size; ++i) wanted_.push_back(draft[i].token);
  catch_up_s_ = 0;
  bool first = true;
  while (draft.size < kProposalsMax && base::IntSize(wanted_) <= capacity() && more(draft)) {
    if (std::exchange(first, false)) RETURN_IF_ERROR(CatchUp());
    ASSIGN_OR_RETURN(const auto logits, Feed());
    proposals_.Accept(std::span<const int>(wanted_).subspan(prompt_));
    Proposal& proposal = draft[draft.size];
    proposals_.Draw(logits, base::IntSize(wanted_), proposal);
    wanted_.push_back(proposal.token);
    ++draft.size;
  }
  return OkStatus();
}

Status ModelSource::ProposeEach(std::span<const int> sequence, std::span<const Path> paths,
                                const MoreOfEach& more) {
  CHECK_LE(paths.size(), paths_.size());
  int longest = 0;
  for (const Path& path : paths) longest = std::max(longest, path.kept);
  if (longest > capacity()) return OkStatus();
  const auto shared = sequence.first(longest);
  wanted_.assign(shared.begin(), shared.end());
  const bool there =
      cached_.size() >= shared.size() && std::equal(shared.begin(), shared.end(), cached_.begin());
  if (!there) RETURN_IF_ERROR(Feed().status());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    PathState& state = paths_[i];
    state.cache->Clear();
    state.cache->Share(*cache_, paths[i].kept);
    state.tokens.assign(sequence.begin(), sequence.begin() + paths[i].kept);
    state.tokens.push_back(paths[i].token);
  }
  Result<bool> stepped = true;
  for (int depth = 0; stepped.ok() && *stepped && more(depth); ++depth) stepped = StepPaths(paths);
  for (std::size_t i = 0; i < paths.size(); ++i) paths_[i].cache->Clear();
  return stepped.status();
}

Result<bool> ModelSource::StepPaths(std::span<const Path> paths) {
  step_paths_.clear(), step_parts_.clear();
  for (int i = 0; i < base::IntSize(paths); ++i) {
    PathState& state = paths_[i];
    if (base::IntSize(state.tokens) > capacity() || paths[i].draft->size == kProposalsMax) continue;
    step_paths_.push_back(i);
    step_parts_.push_back({std::span(state.tokens).last(1), state.cache.get(), 1});
  }
  if (step_paths_.empty()) return false;
  ASSIGN_OR_RETURN(const auto logits,
                   transformer_->ForwardParts(step_parts_, exec::Transformer::Step::kDecode));
  const std::size_t row = head_;  // logits of consecutive tokens are `head` values apart
  for (std::size_t k = 0; k < step_paths_.size(); ++k) {
    PathState& state = paths_[step_paths_[k]];
    Draft& draft = *paths[step_paths_[k]].draft;
    proposals_.Accept(std::span<const int>(state.tokens).subspan(prompt_));
    proposals_.Draw(WithAllTokens(logits.subspan(k * row, row)), base::IntSize(state.tokens),
                    draft[draft.size]);
    state.tokens.push_back(draft[draft.size].token);
    ++draft.size;
  }
  return true;
}

}  // namespace thermocline::spec
