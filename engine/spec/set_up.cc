#include "engine/spec/set_up.h"

#include <algorithm>
#include <chrono>

#include "engine/base/hash.h"
#include "engine/base/log.h"
#include "engine/base/stopwatch.h"
#include "engine/spec/model_source.h"
#include "engine/spec/ngram_source.h"
#include "engine/spec/self_source.h"

namespace thermocline::spec {
namespace {

base::Hash128 HashOf(const model::Vocabulary& vocabulary) {
  base::Hasher hasher;
  for (const std::string& token : vocabulary.tokens) {
    hasher.Add(token);
    hasher.Add(std::string_view("\0", 1));
  }
  return hasher.Digest();
}

// Returns the target's cheapest predictor; mode inputs for a model without exact zeros.
Result<std::vector<ffn::FfnPolicy>> DraftPolicies(const load::LoadedModel& target, double shift) {
  std::vector<ffn::FfnPolicy> policies;
  for (std::size_t l = 0; l < target.weights->layers.size(); ++l) {
    ffn::FfnPolicy policy{.mode = FfnMode::kSign,
                          .shift = static_cast<float>(shift),
                          .resident_only = target.flash != nullptr};
    const auto can = [&](FfnMode mode) {
      return load::CanRun(mode, target.config, target.weights->layers[l],
                          &target.predictors->layers[l]);
    };
    if (!can(policy.mode).ok()) policy.mode = FfnMode::kLowRank;
    if (!can(policy.mode).ok() && can(FfnMode::kInputs).ok()) policy.mode = FfnMode::kInputs;
    const Status status = can(policy.mode);
    if (!status.ok()) {
      return base::FailedPrecondition(
          "spec.source self: the model drafts for itself with a predictor or mode inputs, and "
          "layer ",
          l, " has neither: ", status.message());
    }
    policies.push_back(policy);
  }
  return policies;
}

// Returns the reason why `target` cannot draft for itself while it verifies, as the start of a
// sentence; "" = it can.
std::string WhyNotAhead(SpecMode mode, const load::LoadedModel& target) {
  const std::string what = "spec.source self cannot draft while the model verifies: ";
  if (target.flash != nullptr)
    return what + "neurons come from flash, through a cache that one thread uses";
  if (target.stream != nullptr)
    return what + "layers come from flash, through memory that one thread uses";
  if (target.split != nullptr) return what + "its neurons are shared out to a hot tier";
  if (mode == SpecMode::kSync)
    return what +
           "spec.mode sync takes no threads and no memory for it, as auto, branch and "
           "exhaustive do";
  if (!target.memory.ahead) return what + "the memory budget has no room for it";
  return "";
}

}  // namespace

Status Validate(const SpecOptions& o) {
  const SpecSource source = o.chosen_source();
  if (source == SpecSource::kModel && o.draft.empty())
    return base::InvalidArgument("spec.source model needs a draft model: give spec.draft");
  if (source != SpecSource::kModel && !o.draft.empty())
    return base::InvalidArgument("spec.draft ", o.draft, " is not used by spec.source ",
                                 SpecSourceName(source), "; leave one of them out");
  if (o.tokens_max < 0 || o.tokens_max > kDraftTokensMax)
    return base::InvalidArgument("spec.tokens_max is ", o.tokens_max, "; a draft has at most ",
                                 kDraftTokensMax, " tokens");
  if (o.width < 1 || o.width > kAlternatesMax)
    return base::InvalidArgument("spec.width is ", o.width, "; it must lie in [1, ", kAlternatesMax,
                                 "]");
  return OkStatus();
}

Result<LoadedDraft> LoadDraft(const SpecOptions& options, const load::LoadOptions& target) {
  LoadedDraft out;
  if (options.mode == SpecMode::kOff || options.chosen_source() != SpecSource::kModel) return out;
  auto model = load::LoadModel(
      {.model = {.path = options.draft,
                 .threads = options.threads > 0 ? options.threads : target.model.threads,
                 .context_length = target.model.context_length,
                 .cpu_isa = target.model.cpu_isa,
                 .kv_type = target.model.kv_type,
                 .reading = target.model.reading,
                 .verify = target.model.verify},
       .sizes = {.logits_max = ffn::kSparseTokensMax,
                 .kv_bytes = [&](const auto& config, int, bool) {
                   const int longest = config.max_position_embeddings,
                             asked = target.model.context_length;
                   const int context = std::min(longest, asked > 0 ? asked : load::kContextDefault);
                   return ModelSource::KvBytes(config, context, target.model.kv_type);
                 }}});
  if (model.ok()) {
    out.model = *std::move(model);
    return out;
  }
  if (options.required) return model.status().Annotate("the draft model");
  out.fallback = model.status().message();
  return out;
}

Status CheckPair(const load::LoadedModel& target, const load::LoadedModel& draft) {
  RETURN_IF_ERROR(model::RequireAttention(draft.config, StrCat("the draft model ", draft.path)));
  if (target.tokenizer == nullptr || draft.tokenizer == nullptr)
    return base::InvalidArgument(draft.tokenizer == nullptr ? draft.path : target.path,
                                 ": no vocabulary, so draft and target cannot be compared");
  const auto& theirs = target.tokenizer->vocabulary();
  const auto& ours = draft.tokenizer->vocabulary();
  if (HashOf(theirs) != HashOf(ours)) {
    const auto differ = std::mismatch(theirs.tokens.begin(), theirs.tokens.end(),
                                      ours.tokens.begin(), ours.tokens.end());
    const auto at = differ.first - theirs.tokens.begin();
    const auto name = [](auto token, auto end) {
      return token == end ? std::string("nothing") : "'" + *token + "'";
    };
    return base::InvalidArgument("the draft model ", draft.path, " has another vocabulary than ",
                                 target.path, " (", ours.size(), " and ", theirs.size(),
                                 " tokens): token ", at, " is ",
                                 name(differ.second, ours.tokens.end()), " there and ",
                                 name(differ.first, theirs.tokens.end()),
                                 " here. A draft must share the target's vocabulary");
  }
  if (draft.config.vocab_size != target.config.vocab_size)
    return base::InvalidArgument("the draft model ", draft.path, " has logits for ",
                                 draft.config.vocab_size, " tokens, the target for ",
                                 target.config.vocab_size);
  if (draft.config.num_parameters() > target.config.num_parameters())
    base::LogWarning("the draft model ", draft.path, " is larger (", draft.config.num_parameters(),
                     " parameters) than ", target.path, " (", target.config.num_parameters(),
                     "): drafting will cost more than it saves");
  return OkStatus();
}

void AddDraftNeeds(const SpecOptions& options, load::LoadOptions& target) {
  if (options.mode == SpecMode::kOff || options.chosen_source() != SpecSource::kSelf) return;
  std::string& also = target.model.ffn.also;
  // A model with rules for mode inputs uses these for drafting.
  if (!target.model.ffn.Names(FfnMode::kInputs)) also += also.empty() ? "sign" : ",sign";
  if (options.mode == SpecMode::kSync) return;
  target.sizes.ahead = {.tokens_max = ModelSource::kSelfStepTokens,
                        .threads = options.threads,
                        .required = DraftsAhead(options.mode),
                        .bytes = [type = target.model.kv_type,
                                  rule = options.acceptance](const model::ModelConfig& config) {
                          return ModelSource::SelfKvBytes(config, type) +
                                 DistributionBytes(rule, config.vocab_size);
                        }};
}

Result<std::unique_ptr<Speculation>> Speculation::Create(Params p) {
  RETURN_IF_ERROR(Validate(p.options));
  std::unique_ptr<Speculation> out(new Speculation(p.options));
  out->cache_ = &p.cache;
  out->vocab_size_ = p.target.config.vocab_size;
  out->target_ = std::make_unique<TransformerTarget>(p.transformer, p.cache, *p.target.pool);
  if (p.options.mode != SpecMode::kOff) {
    if (const int room = std::max(0, p.cache.capacity() - 2); p.options.tokens_max > room) {
      base::LogWarning("spec.tokens_max is ", p.options.tokens_max, ", beyond the context of ",
                       p.cache.capacity(), " tokens: ", room, " are drafted at most");
    }
    RETURN_IF_ERROR(out->MakeSource(p));
  }
  const auto& modes = p.target.ffn_modes;
  out->any_length_ =
      p.transformer.StepsOfAnyLength() &&
      std::all_of(modes.begin(), modes.end(), [](FfnMode mode) { return mode == FfnMode::kDense; });
  if (!out->any_length_ && p.options.tokens_max > kSparseDraftTokensMax)
    base::LogWarning("spec.tokens_max is ", p.options.tokens_max, ": ", kSparseDraftTokensMax,
                     " are drafted at most where neurons are skipped, come from flash or lie on a "
                     "GPU");
  if (out->source_ != nullptr) {
    const DraftSource& beside = out->beside_ != nullptr ? *out->beside_ : *out->source_;
    out->controller_ =
        std::make_unique<Controller>(Controller::Params{.fixed = p.options.fixed,
                                                        .width = p.options.width,
                                                        .free = out->source_->free(),
                                                        .parallel = beside.parallel(),
                                                        .threads = p.target.pool->threads(),
                                                        .draft_threads = beside.threads()});
  }
  out->decoder_ = std::make_unique<Decoder>(Decoder::Params{.target = *out->target_,
                                                            .sampler = p.sampler,
                                                            .capacity = p.cache.capacity(),
                                                            .source = out->source_.get(),
                                                            .beside = out->beside_.get(),
                                                            .controller = out->controller_.get(),
                                                            .acceptance = p.options.acceptance,
                                                            .width = p.options.width});
  out->decoder_->KeepRounds(p.options.rounds_max);
  return out;
}

Status Speculation::MakeSource(Params& p) {
  const SpecSource source = options_.chosen_source();
  fallback_ = p.draft.fallback;
  if (p.draft.model != nullptr) {
    Status fits = CheckPair(p.target, *p.draft.model);
    if (!fits.ok() && options_.required) return fits;
    if (!fits.ok()) fallback_ = fits.message();
  }
  if (source == SpecSource::kSelf) {
    RETURN_IF_ERROR(model::RequireAttention(p.target.config, "spec.source self"));
    if (p.target.device_forward != nullptr)
      return base::FailedPrecondition("spec.source self drafts on the CPU alone: --device cpu");
    return MakeSelfSource(p);
  }
  if (source == SpecSource::kModel && fallback_.empty()) {
    draft_path_ = p.draft.model->path;
    // The planned KV cache bounds the length: longer sequences continue without drafts.
    const int longest =
        std::min(p.draft.model->config.max_position_embeddings, p.draft.model->context);
    ASSIGN_OR_RETURN(auto model,
                     ModelSource::Create({.model = std::move(p.draft.model),
                                          .capacity = std::min(longest, p.cache.capacity()),
                                          .width = options_.width,
                                          .head = options_.head,
                                          .acceptance = options_.acceptance}));
    model_ = model.get();
    source_ = std::move(model);
    return OkStatus();
  }
  if (!fallback_.empty())
    base::LogWarning("no draft model, so drafts come from the text itself: ", fallback_);
  source_ = std::make_unique<NgramSource>(p.cache.capacity());
  return OkStatus();
}

Status Speculation::MakeSelfSource(const Params& p) {
  ASSIGN_OR_RETURN(auto policies, DraftPolicies(p.target, options_.self_shift));
  not_ahead_ = WhyNotAhead(options_.mode, p.target);
  const bool ahead = not_ahead_.empty();
  if (!ahead && DraftsAhead(options_.mode))
    return base::FailedPrecondition("spec.mode ", SpecModeName(options_.mode), ": ", not_ahead_,
                                    "; give spec.mode sync or auto");
  source_ = std::make_unique<SelfSource>(SelfSource::Params{.model = p.target,
                                                            .transformer = p.transformer,
                                                            .cache = p.cache,
                                                            .policies = policies,
                                                            .width = ahead ? options_.width : 0,
                                                            .acceptance = options_.acceptance});
  if (!ahead) {
    if (options_.mode == SpecMode::kAuto) base::LogInfo(not_ahead_);
    return OkStatus();
  }
  const int threads = options_.threads > 0 ? options_.threads : p.target.pool->threads();
  ASSIGN_OR_RETURN(beside_, ModelSource::OfTarget({.model = p.target,
                                                   .cache = p.cache,
                                                   .policies = std::move(policies),
                                                   .threads = threads,
                                                   .width = options_.width,
                                                   .acceptance = options_.acceptance}));
  base::LogInfo("spec.source self can draft while the model verifies: on ", threads,
                " threads of its own, with ",
                base::HumanBytes(ModelSource::SelfKvBytes(p.target.config, p.target.kv_type)),
                " of KV cache");
  return OkStatus();
}

void Speculation::WarmUp(int token, double seconds) {
  if (source_ == nullptr) return;
  const base::Stopwatch begin;
  // Uses different tokens, as in real text: they activate different neurons.
  std::vector<int> tokens(kDraftTokensMax + 1, token);
  for (std::size_t i = 1; i < tokens.size(); ++i)
    tokens[i] = static_cast<int>(i * 7919 % vocab_size_);
  const int most = (any_length_ ? kDraftTokensMax : kSparseDraftTokensMax) + 1;
  const int longest = std::min(most, cache_->capacity() - 1);
  cache_->Clear();
  // The first round warms up; two lengths are measured regardless of the time.
  int steps = 0;
  for (int round = 0; round < 4; ++round) {
    for (const int length : {1, 5, most, 2, 9, 3}) {
      const bool late = steps > 2 && begin.Seconds() > seconds;
      if (length > longest || late) continue;
      const base::Stopwatch start;
      const auto step = target_->Step(std::span(tokens).first(length));
      if (!step.ok()) return;
      if (steps > 0) controller_->AddStep(length, start.Seconds());
      ++steps;
      target_->Keep(length);
      cache_->Clear();
    }
  }
  if (model_ != nullptr) MeasureDraft(token, seconds / 2);
  cache_->Clear();
}

void Speculation::WarmUp(int token, double seconds, const StepTimes& known) {
  if (source_ == nullptr) return;
  controller_->SetSteps(known);
  if (model_ != nullptr) MeasureDraft(token, seconds / 2);
  cache_->Clear();
}

std::optional<StepTimes> Speculation::step_times() const {
  if (controller_ == nullptr || controller_->verify_s()(1) <= 0) return std::nullopt;
  return controller_->verify_s();
}

void Speculation::MeasureDraft(int token, double seconds) {
  const std::vector<int> prompt(4, token);
  const int all = model_->threads();
  const base::Stopwatch begin;
  Draft draft;
  const auto more = [](const Draft& d) { return d.size < 8; };
  // Returns seconds per token, the minimum of several runs.
  const auto measure = [&](int threads) {
    double least = 1e9;
    model_->SetThreads(threads);
    for (int i = 0; i < 6 && (i < 2 || begin.Seconds() < seconds); ++i) {
      draft.Clear();
      model_->Begin(prompt, {.temperature = 0, .logit_bias = {}});
      const base::Stopwatch start;
      if (!model_->Propose(prompt, more, draft).ok() || draft.size == 0) break;
      if (i > 0) least = std::min(least, start.Seconds() / draft.size);
    }
    return least;
  };
  const double one = measure(1);
  const double many = options_.threads == 0 && all > 1 ? measure(all) : 1e9;
  model_->SetThreadsAlone(options_.threads == 0 && one <= many ? 1 : all);
  model_->SetThreads(0);
  controller_->AddDraftToken(std::min(one, many));
}

SpecStats Speculation::Stats() const {
  SpecStats stats = decoder_->stats();
  stats.used = source_ != nullptr;
  stats.mode = SpecModeName(options_.mode);
  stats.source = source_ != nullptr ? source_->name() : "";
  stats.draft = draft_path_;
  stats.fallback = fallback_;
  stats.not_ahead = not_ahead_;
  return stats;
}

}  // namespace thermocline::spec
