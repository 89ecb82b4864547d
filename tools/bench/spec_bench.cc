#include "tools/bench/spec_bench.h"

#include <sstream>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "tools/bench/bench_prompts.h"
#include "tools/bench/spec_bench_report.h"
#include "tools/common/console.h"
#include "tools/common/side_car_options.h"

namespace thermocline::tools {
namespace {

constexpr int kRoundsMax = 1 << 18;  // recorded; 28 bytes each

// One answer.
struct Answer {
  std::vector<int> tokens = {};
  Usage usage = {};
  // True if there are tokens after the first, which comes from prefill.
  bool has_speed() const { return usage.completion_tokens > 1 && usage.decode_s > 0; }
  double tokens_per_s() const { return (usage.completion_tokens - 1) / usage.decode_s; }
};

Result<Answer> Generate(Engine& engine, Request request) {
  ASSIGN_OR_RETURN(const auto channel, engine.Submit(std::move(request)));
  Answer answer;
  TokenChannel::Update update;
  TokenChannel::ReserveBuffers(update);
  do {
    channel->WaitForUpdate(update);
    answer.tokens.insert(answer.tokens.end(), update.tokens.begin(), update.tokens.end());
  } while (!update.finished);
  if (update.reason == FinishReason::kError) return update.error;
  answer.usage = update.usage;
  return answer;
}

// Text lookups are too cheap to be drafted ahead, so mode branch is skipped for them.
const char* ModesOf(const SpecStats& spec) {
  return spec.source != "ngram" && spec.not_ahead.empty() ? "sync,branch,auto" : "sync,auto";
}

// The modes to measure: off, as the baseline, then those of `list`.
Result<std::vector<SpecMode>> ParseModes(const std::string& list) {
  std::vector<SpecMode> modes = {SpecMode::kOff};
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    const auto mode = ParseSpecMode(name);
    if (!mode.ok())
      return base::InvalidArgument("--spec-modes: '", name,
                                   "' is none of off, sync, branch, exhaustive, auto");
    if (std::find(modes.begin(), modes.end(), *mode) == modes.end()) modes.push_back(*mode);
  }
  return modes;
}

// Interleaves modes, prompts and repetitions.
class Measurement {
 public:
  Measurement(Engine& engine, const SpecBenchOptions& options, const SpecBenchSize& size,
              bool same_text)
      : engine_(engine), options_(options), size_(size), same_text_(same_text) {}

  Status Run(const std::vector<SpecMode>& modes, const std::vector<std::vector<int>>& prompts) {
    for (const SpecMode mode : modes) {
      modes_.push_back({.mode = mode, .prompts = std::vector<SpecBenchCell>(prompts.size())});
      if (same_text_) modes_.back().text_equal = true;
      const Status warm = Ask(mode, prompts[0]).status();
      if (!warm.ok()) return warm.Annotate("prompt 1");
    }
    before_ = engine_.Stats().spec;
    texts_.resize(prompts.size());
    for (int r = 0; r < size_.repetitions; ++r) {
      for (std::size_t p = 0; p < prompts.size(); ++p) {
        const Status asked = AskAll(p, prompts[p], r + p);
        if (!asked.ok()) return asked.Annotate(StrCat("prompt ", p + 1));
      }
    }
    return OkStatus();
  }

  SpecBenchReport Report() const {
    SpecBenchReport report{.stats = engine_.Stats(),
                           .decode = size_.decode,
                           .repetitions = size_.repetitions,
                           .temperature = options_.temperature,
                           .modes = modes_};
    Count(report);
    return report;
  }
  // The first place where a mode's text differed; "" if there is none.
  const std::string& difference() const { return difference_; }

 private:
  Result<Answer> Ask(SpecMode mode, const std::vector<int>& prompt) {
    Request request;
    request.prompt = prompt;
    request.sampling.temperature = options_.temperature;
    request.sampling.seed = options_.seed;
    request.max_tokens = size_.decode;
    request.spec_mode = mode;
    return Generate(engine_, std::move(request));
  }

  // Runs one prompt in every mode, starting with a different mode in each turn.
  Status AskAll(std::size_t prompt_index, const std::vector<int>& prompt, std::size_t turn) {
    std::vector<Answer> answers(modes_.size());
    for (std::size_t i = 0; i < modes_.size(); ++i) {
      const std::size_t m = (i + turn) % modes_.size();
      const SpecStats before = engine_.Stats().spec;
      ASSIGN_OR_RETURN(answers[m], Ask(modes_[m].mode, prompt));
      const SpecStats after = engine_.Stats().spec;
      modes_[m].drafted_tokens += after.drafted_tokens - before.drafted_tokens;
      modes_[m].wasted_tokens += after.wasted_tokens - before.wasted_tokens;
      modes_[m].decode_s += answers[m].usage.decode_s;
      modes_[m].prompts[prompt_index].usage += answers[m].usage.spec;
    }
    if (same_text_) Compare(prompt_index, answers);
    for (std::size_t m = 0; m < modes_.size(); ++m) {
      SpecBenchCell& cell = modes_[m].prompts[prompt_index];
      if (!answers[m].has_speed() || !answers[0].has_speed()) continue;
      cell.tokens_per_s.values.push_back(answers[m].tokens_per_s());
      cell.ratio.values.push_back(answers[m].tokens_per_s() / answers[0].tokens_per_s());
    }
    return OkStatus();
  }

  // Compares all answers with the first answer of mode off.
  void Compare(std::size_t prompt_index, const std::vector<Answer>& answers) {
    std::optional<std::vector<int>>& text = texts_[prompt_index];
    if (!text.has_value()) text = answers[0].tokens;
    for (std::size_t m = 0; m < modes_.size(); ++m) {
      const std::vector<int>& tokens = answers[m].tokens;
      if (tokens == *text) continue;
      modes_[m].text_equal = false;
      if (!difference_.empty()) continue;
      const auto at = std::mismatch(tokens.begin(), tokens.end(), text->begin(), text->end());
      difference_ =
          StrCat("prompt ", prompt_index + 1, ": the answer in mode ", SpecModeName(modes_[m].mode),
                 " differs from plain decoding's from token ", at.first - tokens.begin(), " on");
    }
  }

  void Count(SpecBenchReport& report) const {
    const SpecStats& now = report.stats.spec;
    SpecStats& counts = report.counts;
    std::int64_t most = 0;  // tokens in drafts of one length
    for (int n = 0; n < base::IntSize(now.outcomes); ++n) {
      std::int64_t drafts = 0;
      for (int k = 0; k <= n; ++k) {
        counts.outcomes[n][k] = now.outcomes[n][k] - before_.outcomes[n][k];
        drafts += counts.outcomes[n][k];
      }
      const std::int64_t tokens = drafts * n;
      if (tokens > most) most = tokens, report.histogram_n = n;
    }
    for (std::size_t i = 0; i < now.bonus_ranks.size(); ++i) {
      counts.bonus_ranks[i] = now.bonus_ranks[i] - before_.bonus_ranks[i];
      counts.correction_ranks[i] = now.correction_ranks[i] - before_.correction_ranks[i];
    }
    report.phi = Fit(counts.outcomes[report.histogram_n], report.histogram_n);
  }

  // Fits phi to the counts of accepted lengths of drafts of n tokens. Every outcome has the same
  // weight, and the prior hardly any.
  template <typename Counts>
  static spec::Phi Fit(const Counts& counts, int n) {
    spec::PhiEstimator fit({}, 1e-3, 1e12);
    for (int k = 0; k <= n; ++k) {
      for (std::int64_t i = 0; i < counts[k]; ++i) fit.Add(k, n);
    }
    return fit.phi();
  }

  Engine& engine_;
  const SpecBenchOptions& options_;
  const SpecBenchSize& size_;
  const bool same_text_;
  std::vector<SpecBenchMode> modes_;
  std::vector<std::optional<std::vector<int>>> texts_;  // by prompt: tokens of plain decoding
  SpecStats before_;
  std::string difference_;
};

Status WriteText(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(text));
  return file->Commit();
}

Result<std::unique_ptr<Engine>> Load(ModelOptions model, bool record_rounds) {
  model.spec.mode = SpecMode::kAuto;
  model.spec.rounds_max = record_rounds ? kRoundsMax : 0;
  ProgressBar bar("loading");
  return Engine::Load({.model = std::move(model), .on_progress = bar.callback()});
}

}  // namespace

void AddSpecBenchOptions(const OptionSet& set, SpecBenchOptions& o, ModelOptions& model) {
  const OptionRef wanted = set.Add(
      "--spec", o.wanted, "Measure the modes of speculative decoding instead, side by side");
  AddOptions(set, OptionGroup::kDraft, model);
  set.Add("--spec-modes", o.modes,
          "Modes to measure beside off: sync,branch,exhaustive,auto; if not given sync, auto "
          "and, where a model drafts that can draft ahead, branch");
  set.Add("--prompts", o.prompts,
          "Prompts, a line each: raw text, {\"prompt\": text} or {\"messages\": [...]}; if "
          "not given a few short chats");
  set.Add("--temperature", DoubleValue{&o.temperature, 0, 2}, "0 takes the most probable token")
      .ShowDefault();
  set.Add("--seed", UnsignedValue{&o.seed}, "Of every answer");
  set.Add("--record-rounds", o.record_rounds,
          "Every verification in the JSON: the trace that hit rates are computed from");
  for (const char* name :
       {"--draft", "--spec-source", "--draft-tokens", "--draft-fixed", "--draft-width",
        "--draft-threads", "--draft-head", "--spec-acceptance", "--spec-modes", "--prompts",
        "--temperature", "--seed", "--record-rounds"})
    set.Find(name).Needs(wanted);
}

Status SpecBench(const ModelOptions& model, const SpecBenchOptions& options,
                 const SpecBenchSize& size) {
  RETURN_IF_ERROR(CheckPlotPath(size.plot));
  ASSIGN_OR_RETURN(auto modes, ParseModes(options.modes));
  ASSIGN_OR_RETURN(const auto engine, Load(model, options.record_rounds));
  if (options.modes.empty()) {
    ASSIGN_OR_RETURN(modes, ParseModes(ModesOf(engine->Stats().spec)));
  }
  ASSIGN_OR_RETURN(const auto prompts, BenchPrompts(options.prompts, engine->tokenizer()));
  const bool same_text =
      options.temperature == 0 || model.spec.acceptance == SpecAcceptance::kSameText;
  Measurement measurement(*engine, options, size, same_text);
  RETURN_IF_ERROR(measurement.Run(modes, prompts));
  const SpecBenchReport report = measurement.Report();
  if (!size.plot.empty()) RETURN_IF_ERROR(WriteText(size.plot, SpecBenchSvg(report)));
  if (size.json) {
    PrintJson(SpecBenchJson(report));
  } else {
    PrintSpecBench(report);
  }
  if (!measurement.difference().empty()) return base::Internal(measurement.difference());
  return OkStatus();
}

}  // namespace thermocline::tools
