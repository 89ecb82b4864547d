// `thermocline synth`: makes a random model of any shape and type, and a file with the true
// statistics of its activations.
#include <algorithm>
#include <cstdio>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/output_file.h"
#include "engine/base/strings.h"
#include "engine/base/system_memory.h"
#include "engine/load/loaded_model.h"
#include "engine/model/expert_rows.h"
#include "engine/model/gguf/writer.h"
#include "engine/store/trace.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"
#include "tools/common/model_output.h"
#include "tools/synth/synth_model.h"

namespace thermocline::tools {
namespace {

struct Options {
  SynthParams params;
  std::string out, type = "q4_0", format = "gguf", down, routing = "uniform";
  std::string family = "llama", mixer = "attention";
  double reuse = -1;  // -1 = not given
  bool json = false, overwrite = false;
};

constexpr const char* kName = "Synthetic";

// Warns of shapes that PowerInfer's own program cannot run correctly, though this one can.
void WarnOfPowerInfersLimits(const Options& o) {
  const SynthParams& p = o.params;
  if (p.intermediate_size % 256 != 0 || p.intermediate_size <= 1000 || p.hidden_size % 256 != 0) {
    base::LogWarning(
        "PowerInfer itself needs --intermediate-size above 1000, it and --hidden-size "
        "multiples of 256; here they are ",
        p.intermediate_size, " and ", p.hidden_size);
  }
  if (o.type != "f16" && o.type != "q4_0")
    base::LogWarning("PowerInfer itself reads ffn_down_t as f16 or q4_0 alone, not as ", o.type);
}

// Reads from a trace how often each layer chose each expert; returns the share of a token's experts
// that the next token keeps. Layers without experts are left out.
Result<double> ReadRouting(const std::string& path, int experts, SynthParams& params) {
  ASSIGN_OR_RETURN(const store::Trace trace, store::ReadTrace(path));
  if (trace.intermediate_size != experts || trace.tokens < 2)
    return base::InvalidArgument("--routing trace:", path, ": it holds ", trace.tokens,
                                 " tokens of a model with ", trace.intermediate_size,
                                 " experts, and --experts is ", experts);
  double kept = 0, all = 0;
  for (int layer = 0; layer < trace.num_hidden_layers; ++layer) {
    std::vector<double> frequency(experts);
    for (std::int64_t token = 0; token < trace.tokens; ++token) {
      const auto set = trace.Set(token, layer);
      for (const std::uint32_t id : set) frequency[id] += 1.0 / static_cast<double>(trace.tokens);
      if (token == 0) continue;
      const auto before = trace.Set(token - 1, layer);
      all += base::IntSize(set);
      for (const std::uint32_t id : set)
        kept += static_cast<double>(std::count(before.begin(), before.end(), id));
    }
    if (std::any_of(frequency.begin(), frequency.end(), [](double f) { return f > 0; }))
      params.routing.push_back(std::move(frequency));
  }
  if (params.routing.empty())
    return base::InvalidArgument("--routing trace:", path, ": no token chose an expert");
  // An expert that no token chose is rare, not impossible; one that all chose gets the highest
  // possible frequency.
  constexpr double kMost = 0.98;
  const double least = 0.1 / static_cast<double>(trace.tokens);
  for (std::vector<double>& layer : params.routing)
    for (double& f : layer) f = std::clamp(f, least, kMost);
  return kept / all;
}

// The Zipf exponent for the text of `routing`.
Result<double> ParseRouting(const std::string& routing) {
  if (routing == "uniform") return 0.0;
  constexpr std::string_view kZipf = "zipf:";
  if (routing.starts_with(kZipf)) {
    const auto exponent = base::ParseNumber<double>(routing.substr(kZipf.size()));
    if (exponent.has_value() && *exponent >= 0 && *exponent <= 3) return *exponent;
  }
  return base::InvalidArgument("--routing ", routing,
                               ": uniform, zipf:S with S from 0 to 3, as in zipf:0.8, or "
                               "trace:FILE");
}

Result<SynthParams> Complete(const Options& o) {
  SynthParams params = o.params;
  params.opt = o.family == "opt";
  if (o.mixer == "delta-net") params.mixer = model::Mixer::kDeltaNet;
  if (o.mixer == "mamba2") params.mixer = model::Mixer::kMamba2;
  if (o.mixer == "conv") params.mixer = model::Mixer::kShortConv;
  params.reuse = params.experts > 0 ? 0.6 : 0.4;
  constexpr std::string_view kTrace = "trace:";
  const bool trace = o.routing.starts_with(kTrace);
  if (trace && params.experts > 0) {
    ASSIGN_OR_RETURN(params.reuse,
                     ReadRouting(o.routing.substr(kTrace.size()), params.experts, params));
  } else if (!trace) {
    ASSIGN_OR_RETURN(params.routing_zipf, ParseRouting(o.routing));
  }
  if (o.reuse >= 0) params.reuse = o.reuse;
  if (params.experts == 0 && (params.experts_used > 0 || params.routing_zipf > 0 || trace))
    return base::InvalidArgument("--experts-used and --routing need --experts");
  if (params.experts > 0 && params.experts_used == 0)
    return base::InvalidArgument("--experts ", params.experts, " needs --experts-used");
  if (o.format == "gguf") {
    if (params.predictor_rank > 0)
      return base::InvalidArgument("--rank ", params.predictor_rank, " needs --format powerinfer");
    return params;
  }
  if (o.down == "columns")
    return base::InvalidArgument("--down columns: PowerInfer's files have their neurons in rows");
  if (params.predictor_rank == 0) params.predictor_rank = std::max(64, params.hidden_size / 4);
  WarnOfPowerInfersLimits(o);
  return params;
}

// True for a truth file of a synthetic model: a JSON object with these members.
bool IsTruth(const base::File& file) {
  const auto text = base::ReadFileToString(file.path());
  const auto json = text.ok() ? base::ParseJson(*text) : Result<Json>(text.status());
  return json.ok() && json->is_object() && json->Find("input_correlation") != nullptr &&
         json->Find("layers") != nullptr;
}

Status Synth(const Options& o) {
  ASSIGN_OR_RETURN(const SynthParams params, Complete(o));
  const std::string truth_path = o.out + ".truth.json";
  RETURN_IF_ERROR(CheckModelOutput(o.out, kName, o.overwrite));
  RETURN_IF_ERROR(base::CheckReplaceable(truth_path, {"the truth about a model", IsTruth}));
  const bool powerinfer = o.format == "powerinfer";
  const bool rows = o.down.empty() ? powerinfer : o.down == "rows";
  ASSIGN_OR_RETURN(const SynthModel model, MakeSynthModel(params));
  if (params.experts > 0 && rows)
    RETURN_IF_ERROR(model::TurnExpertsDown(*model.file, /*to_rows=*/true));
  ProgressBar bar("writing");
  RETURN_IF_ERROR(
      model::WriteGguf(*model.file, o.out,
                       {.type = model::TypeByName(o.type),
                        .down = rows ? model::DownLayout::kRows : model::DownLayout::kColumns,
                        .powerinfer = powerinfer,
                        .name = kName,
                        .threads = base::UsableProcessors(),
                        .on_progress = bar.callback()}));
  bar.Clear();
  ASSIGN_OR_RETURN(const auto truth, base::FileWriter::Create(truth_path));
  RETURN_IF_ERROR(truth->Append(model.truth.Dump() + "\n"));
  RETURN_IF_ERROR(truth->Commit());
  if (o.json) {
    PrintJson(Json::Object{{"out", o.out},
                           {"truth", truth_path},
                           {"num_parameters", model.file->config.num_parameters()}});
  } else {
    std::printf("%s: %.2f billion parameters, %s; the truth about its neurons: %s\n", o.out.c_str(),
                static_cast<double>(model.file->config.num_parameters()) / 1e9, o.type.c_str(),
                truth_path.c_str());
  }
  return OkStatus();
}

}  // namespace

Command AddSynth(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  SynthParams& p = o->params;
  set.Add("out", o->out, "GGUF file to write; OUT.truth.json beside it").Required();
  set.Add("--family", TextValue{&o->family, {"llama", "opt"}},
          "opt: networks of two matrices, layer norms, learned positions")
      .ShowDefault();
  set.Add("--layers", IntValue{&p.layers, 1, 1024}, "Layers").ShowDefault();
  set.Add("--hidden-size", IntValue{&p.hidden_size, 32, 1 << 17}, "D").ShowDefault();
  set.Add("--intermediate-size", IntValue{&p.intermediate_size, 32, 1 << 20}, "Neurons of a layer")
      .ShowDefault();
  set.Add("--heads", IntValue{&p.heads, 1, 1024}, "Attention heads").ShowDefault();
  set.Add("--kv-heads", IntValue{&p.kv_heads, 1, 1024}, "Key and value heads").ShowDefault();
  set.Add("--vocab", IntValue{&p.vocab_size, 260, 1 << 22}, "Tokens of the vocabulary")
      .ShowDefault();
  set.Add("--context", IntValue{&p.context_length, 1, 1 << 24}, "Context length").ShowDefault();
  set.Add("--type", TextValue{&o->type, model::QuantizableTypes()}, "Type of the matrices");
  set.Add("--active", DoubleValue{&p.active, 0.0001, 0.97},
          "Mean share of neurons active for a token")
      .ShowDefault();
  set.Add("--zipf", DoubleValue{&p.zipf, 0.0, 3.0},
          "Exponent of the neurons' frequencies over their rank")
      .ShowDefault();
  set.Add("--reuse", DoubleValue{&o->reuse, 0.0, 1.0},
          "Share of active neurons, or of chosen experts, that the next token keeps; 0.4, of "
          "experts 0.6, if not given");
  set.Add("--co-activation", DoubleValue{&p.co_activation, 0.0, 1.0},
          "Correlation inside a cluster of neurons")
      .ShowDefault();
  set.Add("--head-dim", IntValue{&p.head_dim, 2, 512},
          "Of a head; --hidden-size / --heads if not given");
  set.Add("--experts", IntValue{&p.experts, 1, 4096},
          "A mixture of so many experts in each layer, with --intermediate-size neurons each");
  set.Add("--experts-used", IntValue{&p.experts_used, 1, 4096},
          "Experts that a token goes through");
  set.Add("--mixer", TextValue{&o->mixer, {"attention", "delta-net", "mamba2", "conv"}},
          "Of the layers but each --attention-every-th: delta-net as Qwen 3.5, mamba2 as Granite, "
          "conv as LFM2")
      .ShowDefault();
  set.Add("--attention-every", IntValue{&p.attention_every, 1, 1024}, "With --mixer").ShowDefault();
  set.Add("--state-heads", IntValue{&p.state_heads, 1, 1024}, "Of a recurrent state").ShowDefault();
  set.Add("--state-key-heads", IntValue{&p.state_key_heads, 1, 1024},
          "Key heads, or Mamba's groups")
      .ShowDefault();
  set.Add("--state-key-dim", IntValue{&p.state_key_dim, 1, 1024}, "Rows of a head's state")
      .ShowDefault();
  set.Add("--state-value-dim", IntValue{&p.state_value_dim, 16, 1024}, "Columns of a head's state")
      .ShowDefault();
  set.Add("--routing", o->routing,
          "How often experts are chosen: uniform; zipf:S, where S is the exponent over their rank; "
          "or trace:FILE, as often as in a trace of --record-trace, and kept as often")
      .ShowDefault();
  set.Add("--seed", UnsignedValue{&p.seed}, "The same seed gives the same file");
  set.Add("--format", TextValue{&o->format, {"gguf", "powerinfer"}},
          "powerinfer: magic PWRI, neurons along the rows of ffn_down_t, a predictor in "
          "every layer, which at threshold 0 picks --active of the neurons")
      .ShowDefault();
  set.Add("--rank", IntValue{&p.predictor_rank, 1, 1 << 16},
          "Of the predictors (powerinfer); a quarter of the hidden size, at least 64, if "
          "not given");
  set.Add("--down", TextValue{&o->down, {"columns", "rows"}},
          "Neurons of the down projection: along its columns (default of gguf, for "
          "comparisons with other programs) or rows (default of powerinfer)");
  AddOverwriteOption(set, o->overwrite);
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Synth(*o); };
}

}  // namespace thermocline::tools
