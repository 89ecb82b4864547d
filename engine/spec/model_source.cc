#include "engine/spec/model_source.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"

namespace thermocline::spec {
namespace {

constexpr int kChunk = 64;  // tokens of one step
// Paths of one step: what the draft's networks compute together.
constexpr int kPathsMax = ffn::kSparseTokensMax;
// Of each path beside what it shares: the block it begins in, copied, and what is drafted.
constexpr int kPathBlocks = 1 + (kProposalsMax + kernels::kKvBlock - 1) / kernels::kKvBlock;

// The class of a lead of the first token over the second, in units of the (perturbed) logits.
int ConfidenceOf(double lead) {
  static constexpr double kFrom[kConfidenceClasses] = {0,   0.25, 0.5, 0.75, 1.0, 1.5,
                                                       2.0, 2.5,  3.0, 4.0,  5.0, 7.0};
  int level = 0;
  while (level + 1 < kConfidenceClasses && lead >= kFrom[level + 1]) ++level;
  return level;
}

}  // namespace

void Drawer::Begin(std::span<const int> prompt, const SamplingParams& params, int width,
                   bool distributions) {
  sampler_.Begin(params, prompt);
  width_ = std::min(width, kAlternatesMax);
  distributions_ = distributions && params.temperature > 0;
  ranked_.reserve(kAlternatesMax + 2);
}

void Drawer::Follow(std::span<const int> generated) {
  const auto have = sampler_.accepted();
  const auto differ = std::mismatch(have.begin(), have.end(), generated.begin(), generated.end());
  const std::size_t common = differ.first - have.begin();
  while (sampler_.accepted().size() > common) sampler_.Retract();
  for (const int token : generated.subspan(common)) sampler_.Accept(token);
}

void Drawer::Draw(std::span<const float> logits, int position, Proposal& proposal) {
  const sampling::Distribution& from = sampler_.Compute(logits);
  proposal.distribution.Clear();
  if (sampler_.params().temperature == 0) return DrawGreedy(proposal);
  DrawSampled(from, position, proposal);
  if (!distributions_) return;
  proposal.distribution = from;
}

void Drawer::DrawGreedy(Proposal& proposal) {
  sampling::Sampler::Scored first[kAlternatesMax + 1];
  const int count = sampler_.Top(std::max(width_, 1) + 1, first);
  proposal.token = first[0].token;
  proposal.confidence = count > 1 ? ConfidenceOf(double{first[0].logit} - double{first[1].logit})
                                  : kConfidenceClasses - 1;
  proposal.num_alternates = std::min(width_, count - 1);
  for (int i = 0; i < proposal.num_alternates; ++i) proposal.alternates[i] = first[i + 1].token;
}

void Drawer::DrawSampled(const sampling::Distribution& from, int position, Proposal& proposal) {
  const sampling::Chance& chance = chance_ != nullptr ? *chance_ : sampler_.chance();
  const std::uint64_t at = position;
  const auto stream = sampling::Stream::kToken;
  const auto wanted = static_cast<std::size_t>(width_) + 1;
  chance.Rank(from, at, stream, std::max<std::size_t>(wanted, 2), ranked_);
  proposal.token = ranked_[0];
  proposal.confidence = ranked_.size() > 1
                            ? ConfidenceOf(chance.Lead(from, at, stream, ranked_[0], ranked_[1]))
                            : kConfidenceClasses - 1;
  // What comes instead of a refused token is drawn anew where the rule is rejection.
  if (distributions_) chance.Rank(from, at, sampling::Stream::kCorrection, wanted, ranked_);
  proposal.num_alternates = 0;
  for (const int token : ranked_) {
    if (token == proposal.token || proposal.num_alternates == width_) continue;
    proposal.alternates[proposal.num_alternates++] = token;
  }
}

Result<std::unique_ptr<ModelSource>> ModelSource::Create(Params params) {
  // Whole panels of rows: fewer of them are the same matrix with fewer rows.
  const int panels = (params.head + kernels::kPanelRows - 1) / kernels::kPanelRows;
  kernels::PackedMatrix& output = params.model->weights->output.weight;
  if (params.head > 0) output.rows = std::min(output.rows, panels * kernels::kPanelRows);
  ASSIGN_OR_RETURN(auto pool, nn::KvPool::Create({.config = params.model->config,
                                                  .blocks = nn::BlocksFor(params.capacity) +
                                                            kPathsMax * kPathBlocks,
                                                  .type = params.model->kv_type}));
  return std::unique_ptr<ModelSource>(new ModelSource(std::move(params), std::move(pool)));
}

std::size_t ModelSource::KvBytes(const model::ModelConfig& config, int capacity,
                                 kernels::KvType type) {
  return (nn::BlocksFor(capacity) + kPathsMax * kPathBlocks) * nn::KvPool::BlockBytes(config, type);
}

ModelSource::ModelSource(Params params, std::unique_ptr<nn::KvPool> pool)
    : model_(std::move(params.model)),
      pool_(std::move(pool)),
      cache_(std::make_unique<nn::KvCache>(*pool_, params.capacity)),
      transformer_(model_->MakeTransformer(kChunk, params.capacity, kPathsMax)),
      drawer_(model_->config.vocab_size, params.capacity + kProposalsMax),
      width_(params.width),
      acceptance_(params.acceptance) {
  wanted_.reserve(static_cast<std::size_t>(params.capacity) + kProposalsMax);
  cached_.reserve(wanted_.capacity());
  for (int i = 0; i < kPathsMax; ++i) {
    PathState& path = paths_.emplace_back();
    path.cache = std::make_unique<nn::KvCache>(*pool_, params.capacity);
    path.tokens.reserve(wanted_.capacity());
  }
  for (std::vector<int>* each : {&step_tokens_, &step_paths_}) each->reserve(kPathsMax);
  step_caches_.reserve(kPathsMax);
  threads_alone_ = model_->pool->threads();
  head_ = model_->weights->output.weight.rows;
  if (head_ < static_cast<std::size_t>(model_->config.vocab_size))
    logits_.assign(model_->config.vocab_size, -INFINITY);
}

void ModelSource::Begin(std::span<const int> prompt, const SamplingParams& params) {
  drawer_.Begin(prompt, params, width_, acceptance_ == Acceptance::kRejection);
  prompt_ = prompt.size();
}

Result<std::span<const float>> ModelSource::Feed() {
  const auto differ = std::mismatch(cached_.begin(), cached_.end(), wanted_.begin(), wanted_.end());
  // The last token's logits are wanted, so it is computed though it is there.
  const std::size_t common =
      std::min(static_cast<std::size_t>(differ.first - cached_.begin()), wanted_.size() - 1);
  cached_.resize(common);
  cache_->SetLength(static_cast<int>(common));
  std::span<const float> logits;
  while (cached_.size() < wanted_.size()) {
    if (wanted_.size() - cached_.size() > kChunk / 4 && goes_on_ && !goes_on_())
      return Status(StatusCode::kCancelled, "the draft is not wanted any more");
    const std::size_t count = std::min<std::size_t>(kChunk, wanted_.size() - cached_.size());
    const auto tokens = std::span(wanted_).subspan(cached_.size(), count);
    const bool last = cached_.size() + count == wanted_.size();
    ASSIGN_OR_RETURN(logits, transformer_->Forward(tokens, *cache_,
                                                   last ? exec::Transformer::Logits::kLast
                                                        : exec::Transformer::Logits::kNone,
                                                   count == 1 ? exec::Transformer::Step::kDecode
                                                              : exec::Transformer::Step::kPrefill));
    cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  }
  return Widened(logits);
}

std::span<const float> ModelSource::Widened(std::span<const float> logits) {
  if (logits_.empty()) return logits;
  std::copy_n(logits.begin(), head_, logits_.begin());
  return logits_;
}

// All but the last token, if that is more than a round leaves: not what drafting a token takes.
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
    drawer_.Follow(std::span<const int>(wanted_).subspan(prompt_));
    Proposal& proposal = draft[draft.size];
    drawer_.Draw(logits, base::IntSize(wanted_), proposal);
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
    state.cache->Adopt(cache_->blocks(), paths[i].kept);
    state.tokens.assign(sequence.begin(), sequence.begin() + paths[i].kept);
    state.tokens.push_back(paths[i].token);
  }
  Result<bool> stepped = true;
  for (int depth = 0; stepped.ok() && *stepped && more(depth); ++depth) stepped = StepPaths(paths);
  for (std::size_t i = 0; i < paths.size(); ++i) paths_[i].cache->Clear();
  return stepped.status();
}

Result<bool> ModelSource::StepPaths(std::span<const Path> paths) {
  step_tokens_.clear(), step_paths_.clear(), step_caches_.clear();
  for (int i = 0; i < static_cast<int>(paths.size()); ++i) {
    PathState& state = paths_[i];
    if (base::IntSize(state.tokens) > capacity() || paths[i].draft->size == kProposalsMax) continue;
    step_paths_.push_back(i);
    step_tokens_.push_back(state.tokens.back());
    step_caches_.push_back(state.cache.get());
  }
  if (step_paths_.empty()) return false;
  ASSIGN_OR_RETURN(const auto logits, transformer_->ForwardEach(step_tokens_, step_caches_));
  const std::size_t row = head_;  // logits lie as many apart as the head has rows
  for (std::size_t k = 0; k < step_paths_.size(); ++k) {
    PathState& state = paths_[step_paths_[k]];
    Draft& draft = *paths[step_paths_[k]].draft;
    drawer_.Follow(std::span<const int>(state.tokens).subspan(prompt_));
    drawer_.Draw(Widened(logits.subspan(k * row, row)), base::IntSize(state.tokens),
                 draft[draft.size]);
    state.tokens.push_back(draft[draft.size].token);
    ++draft.size;
  }
  return true;
}

}  // namespace thermocline::spec
