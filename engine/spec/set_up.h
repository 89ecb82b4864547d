// Sets up speculation from the options: checks them, loads the draft model, compares it with the
// target and measures step times.
#pragma once

#include <memory>
#include <optional>

#include "engine/load/loaded_model.h"
#include "engine/spec/decoder.h"
#include "engine/spec/draft_source.h"
#include "engine/spec/estimates.h"

namespace thermocline::spec {

// Returns InvalidArgument with the option's name, its value and the allowed values.
Status Validate(const SpecOptions& options);

// The draft model of `options`, if it has one; it uses kernels and threads as the target does.
// `fallback` gives the reason if a requested draft model could not be loaded; where
// options.required, that is an error instead (that of load::LoadModel).
struct LoadedDraft {
  std::unique_ptr<load::LoadedModel> model;
  std::string fallback;
};
Result<LoadedDraft> LoadDraft(const SpecOptions& options, const load::LoadOptions& target);

// Checks that `draft` can draft for `target`: InvalidArgument with the first token that differs.
// Logs a warning for a draft that is larger than its target.
Status CheckPair(const load::LoadedModel& target, const load::LoadedModel& draft);

// Adds the draft's needs to the target's load options: the predictor for drafts by the target
// itself, and memory to draft ahead.
void AddDraftNeeds(const SpecOptions& options, load::LoadOptions& target);

// Everything that decodes with drafts. Decode thread only, except Create.
class Speculation {
 public:
  struct Params {
    const SpecOptions& options;
    LoadedDraft draft;
    const load::LoadedModel& target;
    exec::Transformer& transformer;  // of the target; with logits for kDraftTokensMax + 1 tokens
    nn::KvCache& cache;              // of the target
    sampling::Sampler& sampler;
  };
  // Errors of Validate, CheckPair (where the draft is required), and FailedPrecondition if the
  // target cannot draft for itself, or not while it verifies and the mode requires that.
  static Result<std::unique_ptr<Speculation>> Create(Params params);

  // Measures steps of the target and of the draft, for about `seconds`; leaves the cache empty. A
  // slow target exceeds this time after two measured steps, and is then measured while requests
  // run.
  void WarmUp(int token, double seconds);
  // The same with the times of an earlier load of the same model: measures the draft alone.
  void WarmUp(int token, double seconds, const StepTimes& known);
  // nullopt if nothing was measured.
  std::optional<StepTimes> step_times() const;

  // The decoder of every request; without a source if the mode is off.
  Decoder& decoder() { return *decoder_; }
  SpecMode mode() const { return options_.mode; }
  int tokens_max() const { return options_.tokens_max; }
  // The reason why the source cannot work while the target verifies; "" = it can, or there is none.
  const std::string& not_ahead() const { return not_ahead_; }
  // The statistics of all requests up to the last End.
  SpecStats Stats() const;

 private:
  explicit Speculation(const SpecOptions& options) : options_(options) {}
  Status MakeSource(Params& params);
  Status MakeSelfSource(const Params& params);
  void MeasureDraft(int token, double seconds);

  const SpecOptions options_;
  std::string draft_path_, fallback_, not_ahead_;
  std::unique_ptr<TransformerTarget> target_;
  nn::KvCache* cache_ = nullptr;
  int vocab_size_ = 1;
  bool any_length_ =
      false;  // the target's steps may have more than kSparseDraftTokensMax + 1 tokens
  std::unique_ptr<DraftSource> source_;
  std::unique_ptr<DraftSource> beside_;  // as Decoder::Params
  class ModelSource* model_ = nullptr;   // the source, if it is a ModelSource
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace thermocline::spec
