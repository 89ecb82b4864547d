#include "tools/calibrate/input_trials.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/sampling/sampler.h"
#include "tools/common/divergence.h"

namespace thermocline::tools {
namespace {

constexpr int kTokensAtOnce = ffn::kSparseTokensMax;  // tokens computed at once
constexpr double kIgnored = 0.25;  // of a window's tokens, when blocks are compared

}  // namespace

// Keeps the full model's output of each layer. The runs with rules continue from it, so that each
// layer is compared alone.
class InputTrials::BlockComparison final : public exec::BlockTap {
 public:
  BlockComparison(std::size_t layers, int hidden_size)
      : d_(hidden_size), whole_(layers, std::vector<float>(kTokensAtOnce * d_)) {}

  BlockErrors NoErrors() const { return BlockErrors(whole_.size(), std::vector<double>(d_)); }
  // The next run is the full model's.
  void Keep() { keeps_ = true; }
  // The next run uses rules; its errors are added to `errors`, if that is not null.
  void Compare(BlockErrors* errors) {
    keeps_ = false;
    errors_ = errors;
  }

  void OnBlock(int layer, float* residual, int tokens) override {
    std::vector<float>& whole = whole_[layer];
    const std::size_t count = tokens * d_;
    if (keeps_) {
      std::copy_n(residual, count, whole.begin());
      return;
    }
    if (errors_ != nullptr) Add(residual, whole, count, (*errors_)[layer]);
    std::copy_n(whole.begin(), count, residual);
  }

 private:
  void Add(const float* residual, const std::vector<float>& whole, std::size_t count,
           std::vector<double>& errors) const {
    for (std::size_t i = 0; i < count; ++i) {
      const double off = double{residual[i]} - whole[i];
      errors[i % d_] += off * off;
    }
  }

  const std::size_t d_;
  std::vector<std::vector<float>> whole_;  // [L][chunk, D]
  bool keeps_ = true;
  BlockErrors* errors_ = nullptr;
};

InputTrials::InputTrials(load::LoadedModel& model, int window)
    : model_(model), window_(window), whole_(model.weights->layers.size()) {
  model_.predictors->layers.resize(whole_.size());
  Use(whole_);
  transformer_ = model_.MakeTransformer(kTokensAtOnce, window, kTokensAtOnce);
}

void InputTrials::SetMode(FfnMode mode) {
  for (int l = 0; l < base::IntSize(whole_); ++l) transformer_->ffn().policy(l).mode = mode;
}

void InputTrials::Use(const InputRuleSet& rules) {
  for (std::size_t l = 0; l < rules.size(); ++l) model_.predictors->layers[l].inputs = rules[l];
}

Result<std::span<const float>> InputTrials::Logits(std::span<const int> tokens,
                                                   nn::KvCache& cache) {
  return transformer_->Forward(tokens, cache, exec::Transformer::Logits::kAll);
}

Result<std::vector<std::unique_ptr<nn::KvCache>>> InputTrials::MakeCaches(std::size_t count) const {
  std::vector<std::unique_ptr<nn::KvCache>> caches;
  while (caches.size() < count) {
    ASSIGN_OR_RETURN(caches.emplace_back(), model_.MakeCache(window_));
  }
  return caches;
}

Result<std::vector<InputScore>> InputTrials::Run(std::span<const Window> windows,
                                                 std::span<const InputRuleSet> sets) {
  const std::size_t vocab = model_.config.vocab_size;
  ASSIGN_OR_RETURN(const auto caches, MakeCaches(sets.size() + 1));
  std::vector<double> kl(sets.size()), loss(sets.size());
  double whole_loss = 0, positions = 0, scored = 0;
  std::vector<float> whole;
  for (const Window& window : windows) {
    for (const auto& cache : caches) cache->SetLength(0);
    for (std::size_t at = 0; at < window.size(); at += kTokensAtOnce) {
      const auto tokens =
          std::span(window).subspan(at, std::min<std::size_t>(kTokensAtOnce, window.size() - at));
      SetMode(FfnMode::kDense);
      ASSIGN_OR_RETURN(const auto logits, Logits(tokens, *caches.back()));
      whole.assign(logits.begin(), logits.end());
      const auto loss_of = [&](std::span<const float> all, std::size_t i) {
        return at + i + 1 < window.size()
                   ? -sampling::LogProbability(all.subspan(i * vocab, vocab), window[at + i + 1])
                   : 0.0;
      };
      for (std::size_t i = 0; i < tokens.size(); ++i) whole_loss += loss_of(whole, i);
      positions += base::IntSize(tokens);
      scored += static_cast<double>(tokens.size() - (at + tokens.size() == window.size() ? 1 : 0));
      SetMode(FfnMode::kInputs);
      for (std::size_t set = 0; set < sets.size(); ++set) {
        Use(sets[set]);
        ASSIGN_OR_RETURN(const auto cut, Logits(tokens, *caches[set]));
        std::vector<double> each(tokens.size());
        model_.pool->Run(base::IntSize(tokens), [&](int i, int) {
          const auto row = i * vocab;
          each[i] = Divergence(std::span(whole).subspan(row, vocab), cut.subspan(row, vocab));
        });
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          kl[set] += each[i];
          loss[set] += loss_of(cut, i);
        }
      }
    }
  }
  std::vector<InputScore> scores;
  for (std::size_t i = 0; i < sets.size(); ++i)
    scores.push_back(
        {.kl = kl[i] / std::max(1.0, positions),
         .perplexity_ratio = std::exp((loss[i] - whole_loss) / std::max(1.0, scored))});
  return scores;
}

Result<std::vector<BlockErrors>> InputTrials::RunBlocks(std::span<const Window> windows,
                                                        std::span<const InputRuleSet> sets) {
  ASSIGN_OR_RETURN(const auto caches, MakeCaches(sets.size() + 1));
  BlockComparison comparison(whole_.size(), model_.config.hidden_size);
  std::vector<BlockErrors> errors(sets.size(), comparison.NoErrors());
  transformer_->SetBlockTap(&comparison);
  Status done = OkStatus();
  for (std::size_t i = 0; i < windows.size() && done.ok(); ++i)
    done = CompareWindow(windows[i], sets, caches, comparison, errors);
  transformer_->SetBlockTap(nullptr);
  RETURN_IF_ERROR(done);
  return errors;
}

Status InputTrials::CompareWindow(const Window& window, std::span<const InputRuleSet> sets,
                                  std::span<const std::unique_ptr<nn::KvCache>> caches,
                                  BlockComparison& comparison, std::vector<BlockErrors>& errors) {
  for (const auto& cache : caches) cache->SetLength(0);
  for (int at = 0; at < base::IntSize(window); at += kTokensAtOnce) {
    const auto tokens =
        std::span(window).subspan(at, std::min<std::size_t>(kTokensAtOnce, window.size() - at));
    const auto forward = [&](nn::KvCache& cache) {
      return transformer_->Forward(tokens, cache, exec::Transformer::Logits::kNone).status();
    };
    SetMode(FfnMode::kDense);
    comparison.Keep();
    RETURN_IF_ERROR(forward(*caches.back()));
    SetMode(FfnMode::kInputs);
    for (std::size_t set = 0; set < sets.size(); ++set) {
      Use(sets[set]);
      const bool ignored = kIgnored * base::IntSize(window) > at;
      comparison.Compare(ignored ? nullptr : &errors[set]);
      RETURN_IF_ERROR(forward(*caches[set]));
    }
  }
  return OkStatus();
}

}  // namespace thermocline::tools
