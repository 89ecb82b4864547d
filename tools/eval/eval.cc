// `thermocline eval`: perplexity and logits of a text or of given tokens, and the divergence of one
// model or setting from another.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/sampling/sampler.h"
#include "tools/common/console.h"
#include "tools/common/divergence.h"
#include "tools/common/model_options.h"
#include "tools/common/side_car_options.h"
#include "tools/common/work_report.h"
#include "tools/eval/npy.h"
#include "tools/eval/side.h"
#include "tools/eval/task_eval.h"

namespace thermocline::tools {
namespace {

struct Options {
  ModelOptions model;
  std::string text, tokens_json, logits, against;
  int window = 512, max_tokens = 0, score_from = 0;
  bool decode = false, predictor = false, json = false;
  bool lossy = false;  // a mode is lossy, so the text is computed as in decoding
  std::string plot;
  TaskOptions task;
};

using Tokens = std::vector<int>;

Result<std::vector<Tokens>> WindowsOfJson(const std::string& path, int vocab_size) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  ASSIGN_OR_RETURN(const Json json, base::ParseJson(text));
  const auto wrong = [&] {
    return base::InvalidArgument(path, ": expected an array of arrays of token ids");
  };
  if (!json.is_array()) return wrong();
  std::vector<Tokens> windows;
  for (const Json& row : json.as_array()) {
    windows.emplace_back();
    if (!row.is_array()) return wrong();
    for (const Json& id : row.as_array()) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() >= vocab_size)
        return base::InvalidArgument(path, ": ", id.Dump(), " is no token id");
      windows.back().push_back(static_cast<int>(id.as_int()));
    }
  }
  return windows;
}

Result<std::vector<Tokens>> WindowsOfText(const Options& options, const load::LoadedModel& model) {
  if (model.tokenizer == nullptr)
    return base::FailedPrecondition(model.path, ": the model file holds no tokenizer");
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(options.text));
  Tokens tokens = model.tokenizer->Encode(text, {});
  if (options.max_tokens > 0 && base::IntSize(tokens) > options.max_tokens)
    tokens.resize(options.max_tokens);
  const bool bos = model.tokenizer->vocabulary().add_bos;
  const std::size_t room = options.window - (bos ? 1 : 0);
  std::vector<Tokens> windows;
  for (std::size_t begin = 0; begin < tokens.size(); begin += room) {
    windows.emplace_back();
    if (bos) windows.back().push_back(model.tokenizer->vocabulary().bos);
    const std::size_t end = std::min(tokens.size(), begin + room);
    windows.back().insert(windows.back().end(), tokens.begin() + begin, tokens.begin() + end);
  }
  return windows;
}

// The settings that may differ between the two sides, besides the model and the way of decoding.
constexpr std::array<std::string_view, 6> kSettings = {"cpu-isa",  "kv-type",  "activation",
                                                       "ffn-mode", "side-car", "quantize-head"};

// Sets an option by its name on the command line.
Status SetOption(ModelOptions& options, const std::string& flag, const std::string& value) {
  for (const ModelOption& option : OptionsOf(options)) {
    if (flag == option.flag) return SetValue(option.value, "--against " + flag.substr(2), value);
  }
  return base::Internal(flag, " is no option");
}

// The other side: a model, or the same model with other settings (key=value, ...).
Result<std::unique_ptr<Side>> OtherSide(const Options& options) {
  ModelOptions other = options.model;
  bool decode = options.decode;
  if (options.against.find('=') == std::string::npos) {
    other.path = options.against;
    return Side::Create(other, decode);
  }
  std::istringstream pairs(options.against);
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string key = pair.substr(0, equals);
    const std::string value = pair.substr(std::min(equals + 1, pair.size()));
    if (key == "path" && (value == "decode" || value == "prefill")) {
      decode = value == "decode";
    } else if (std::find(kSettings.begin(), kSettings.end(), key) != kSettings.end()) {
      RETURN_IF_ERROR(SetOption(other, "--" + key, value));
    } else {
      return base::InvalidArgument(
          "--against ", pair,
          ": expected a model, or cpu-isa=, kv-type=, activation=, ffn-mode=, side-car=, "
          "quantize-head=true|false or path=decode|prefill");
    }
  }
  return Side::Create(other, decode);
}

struct Totals {
  double loss = 0, other_loss = 0, kl = 0, kl_max = 0;  // nats
  std::int64_t scored = 0, positions = 0, same_top = 0;
};

std::size_t Best(std::span<const float> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

void Compare(std::span<const float> row, std::span<const float> other, Totals& totals) {
  const double kl = Divergence(row, other);
  totals.kl += kl;
  totals.kl_max = std::max(totals.kl_max, kl);
  totals.same_top += Best(row) == Best(other) ? 1 : 0;
}

Status Score(const Tokens& window, std::size_t score_from, Side& side, Side* other, NpyWriter* npy,
             Totals& totals) {
  const std::size_t vocab = side.vocab_size();
  side.Rewind();
  if (other != nullptr) other->Rewind();
  for (std::size_t begin = 0; begin < window.size(); begin += kPrefillChunk) {
    const std::size_t count = std::min<std::size_t>(kPrefillChunk, window.size() - begin);
    const auto tokens = std::span(window).subspan(begin, count);
    ASSIGN_OR_RETURN(const auto logits, side.Logits(tokens));
    std::span<const float> others;
    if (other != nullptr) {
      ASSIGN_OR_RETURN(others, other->Logits(tokens));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = logits.subspan(i * vocab, vocab);
      if (npy != nullptr) RETURN_IF_ERROR(npy->Append(row));
      ++totals.positions;
      if (other != nullptr) Compare(row, others.subspan(i * vocab, vocab), totals);
      if (begin + i < score_from || begin + i + 1 >= window.size()) continue;
      const int next = window[begin + i + 1];
      totals.loss -= sampling::LogProbability(row, next);
      if (other != nullptr)
        totals.other_loss -= sampling::LogProbability(others.subspan(i * vocab, vocab), next);
      ++totals.scored;
    }
  }
  return OkStatus();
}

void Print(const Options& options, const Totals& t, std::size_t windows,
           const PredictorReport* report, std::span<const FfnLayerStats> work) {
  const double scored = static_cast<double>(std::max<std::int64_t>(1, t.scored));
  const double positions = static_cast<double>(std::max<std::int64_t>(1, t.positions));
  const bool compared = !options.against.empty();
  const double agreement = static_cast<double>(t.same_top) / positions;
  if (options.json) {
    Json out{Json::Object{{"perplexity", std::exp(t.loss / scored)},
                          {"loss_nats", t.loss / scored},
                          {"tokens", t.scored},
                          {"windows", windows},
                          {"path", options.decode || options.lossy ? "decode" : "prefill"}}};
    if (compared) {
      out.Set("against", options.against);
      out.Set("against_perplexity", std::exp(t.other_loss / scored));
      out.Set("kl_mean", t.kl / positions);
      out.Set("kl_max", t.kl_max);
      out.Set("top1_agreement", agreement);
    }
    if (!work.empty()) out.Set("work", WorkJson(work));
    if (report != nullptr) out.Set("layers", LayersJson(*report));
    return PrintJson(out);
  }
  std::printf("perplexity %.4f over %lld tokens (%.4f nats), %zu windows, by %s\n",
              std::exp(t.loss / scored), static_cast<long long>(t.scored), t.loss / scored, windows,
              options.decode || options.lossy ? "decoding" : "prefill");
  if (report != nullptr) PrintReport(*report);
  if (!compared) return;
  std::printf("against %s: perplexity %.4f, KL %.3g nats (largest %.3g), same best token %.2f%%\n",
              options.against.c_str(), std::exp(t.other_loss / scored), t.kl / positions, t.kl_max,
              100 * agreement);
}

Status Eval(Options options) {
  if (options.predictor) {
    options.decode = true;
    options.model.ffn.audit_interval = 1;
  }
  if (!options.task.path.empty()) return EvalTask(options.model, options.task, options.json);
  if (options.text.empty() == options.tokens_json.empty())
    return base::InvalidArgument("give either --text or --tokens, or --task");
  if (!options.plot.empty() && !options.predictor)
    return base::InvalidArgument("--plot draws what --predictor finds; give both");
  RETURN_IF_ERROR(CheckPlotPath(options.plot));
  ASSIGN_OR_RETURN(const auto side, Side::Create(options.model, options.decode));
  const auto& modes = side->model().ffn_modes;
  options.lossy = !std::all_of(modes.begin(), modes.end(), IsLossless);
  if (options.predictor) RETURN_IF_ERROR(side->Audit());
  std::unique_ptr<Side> other;
  if (!options.against.empty()) {
    ASSIGN_OR_RETURN(other, OtherSide(options));
    if (other->vocab_size() != side->vocab_size())
      return base::InvalidArgument("the vocabularies have ", side->vocab_size(), " and ",
                                   other->vocab_size(), " tokens: nothing can be compared");
  }
  ASSIGN_OR_RETURN(const auto windows,
                   options.text.empty()
                       ? WindowsOfJson(options.tokens_json, side->model().config.vocab_size)
                       : WindowsOfText(options, side->model()));
  std::size_t longest = 1, rows = 0;
  for (const Tokens& window : windows) {
    longest = std::max(longest, window.size());
    rows += window.size();
  }
  RETURN_IF_ERROR(side->Prepare(static_cast<int>(longest)));
  if (other != nullptr) RETURN_IF_ERROR(other->Prepare(static_cast<int>(longest)));
  std::unique_ptr<NpyWriter> npy;
  if (!options.logits.empty()) {
    ASSIGN_OR_RETURN(npy, NpyWriter::Create(options.logits, rows, side->model().config.vocab_size));
  }
  Totals totals;
  ProgressBar bar("evaluating");
  for (std::size_t i = 0; i < windows.size(); ++i) {
    RETURN_IF_ERROR(Score(windows[i], options.score_from, *side, other.get(), npy.get(), totals));
    bar.Show(base::Ratio(i + 1, windows.size()));
  }
  bar.Clear();
  if (npy != nullptr) RETURN_IF_ERROR(npy->Commit());
  if (totals.scored == 0)
    return base::InvalidArgument("nothing was scored: the windows have no token behind the first ",
                                 options.score_from + 1);
  std::optional<PredictorReport> report;
  if (options.predictor) report = side->Report();
  if (!options.plot.empty()) RETURN_IF_ERROR(WriteReportPlot(options.plot, *report));
  Print(options, totals, windows.size(), report.has_value() ? &*report : nullptr, side->Work());
  return OkStatus();
}

}  // namespace

Command AddEval(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  o->model.ffn.down = DownInMemory::kFile;  // gives both sides the same layout
  AddModelOptions(set, o->model);
  AddDecodeOptions(set, o->model);
  AddOptions(set, OptionGroup::kAblation, o->model);
  set.Add("--text", o->text, "Text file to score, in windows one after the other");
  set.Add("--tokens", o->tokens_json, "JSON file of token ids to score instead: [[...], ...]");
  set.Add("--window", IntValue{&o->window, 2, 1 << 20}, "Tokens in a window").ShowDefault();
  set.Add("--score-from", IntValue{&o->score_from, 0},
          "Leave out what the first tokens of a window predict; llama.cpp's perplexity starts "
          "at half of the window");
  set.Add("--max-tokens", IntValue{&o->max_tokens, 0},
          "Score only the first tokens of the text; 0 = all");
  set.Add("--logits", o->logits, "Write every position's logits to this .npy");
  set.Add("--decode", o->decode, "One token at a time, as decoding does, instead of in chunks");
  set.Add("--against", o->against,
          "Compare with another model, or with other settings of this one: "
          "kv-type=q8_0,cpu-isa=avx2,path=decode,...");
  set.Add("--predictor", o->predictor,
          "Audit every token of the predicted layers: what was missed, what was read for nothing");
  set.Add("--plot", o->plot, "Draw what the audits found into this SVG file");
  AddTaskOptions(set, o->task);
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Eval(*o); };
}

}  // namespace thermocline::tools
