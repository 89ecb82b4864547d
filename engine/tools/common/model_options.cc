#include "engine/tools/common/model_options.h"

#include "engine/base/strings.h"
#include "engine/tools/common/console.h"

namespace thermocline::tools {

CLI::Validator NumberIn(double low, double high) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
    return StrCat("not a number from ", low, " to ", high, ": ", text);
  };
  return {check, StrCat("in [", low, " - ", high, "]")};
}

void AddModelOptions(CLI::App& app, ModelOptions& o) {
  app.add_option("model", o.model, "Model file, folder or built-in name")->required();
  app.add_option("-t,--threads", o.threads, "Kernel threads; 0 = all processors")
      ->check(CLI::Range(0, 256));
  app.add_option("--cpu-isa", o.isa, "Kernels; the fastest if not given")
      ->check(CLI::IsMember({"amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "reference"}));
  app.add_option("--kv-type", o.kv_type, "Cached keys and values")
      ->check(CLI::IsMember({"f16", "q8_0", "f32"}))
      ->capture_default_str();
  app.add_option("--activation", o.activation,
                 "Of the feed-forward network, where the file does not say")
      ->check(CLI::IsMember({"silu", "relu", "fatrelu", "drelu", "relu2", "gelu", "gelu_tanh"}));
  app.add_flag("--quantize-head", o.quantize_head,
               "Hold a float output head as q8_0: half the bytes");
  app.add_flag("--verify", o.verify, "Refuse NaN and infinite weights");
}

void AddFfnOptions(CLI::App& app, FfnOptions& ffn) {
  app.add_option("--ffn-mode", ffn.modes,
                 "Neurons to compute: auto, dense, exact, sign, lowrank, threshold, or modes by "
                 "layer (0-3:dense,4-:sign)")
      ->capture_default_str();
  app.add_option("--also-modes", ffn.also, "Further modes to load predictors for: sign,lowrank");
  app.add_option("--side-car", ffn.side_car, "Side-car with predictors; MODEL.tcp if not given");
  app.add_option("--ffn-recall", ffn.recall,
                 "auto: take a predicted mode whose held-out recall is at least this; 1 = no loss")
      ->check(NumberIn(0, 1))
      ->capture_default_str();
  app.add_option("--sign-alpha", ffn.sign_alpha,
                 "sign without calibration: skip where negatives > alpha * positives")
      ->check(NumberIn(0, 10))
      ->capture_default_str();
  app.add_option("--sign-alpha-layers", ffn.sign_alpha_layers,
                 "First layers that alpha holds for; 1 in the others")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  app.add_option("--sign-slices", ffn.sign_slices,
                 "sign without calibration: bits of the input that count")
      ->check(CLI::Range(1, kernels::kSignSlicesMax))
      ->capture_default_str();
  app.add_option("--sign-planes", ffn.sign_planes,
                 "sign without calibration: bits of the weights that count")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  app.add_flag("--ignore-calibration", ffn.ignore_calibration,
               "sign: alpha, though the side-car has thresholds");
}

CLI::Validator SizeText() {
  const auto check = [](const std::string& text) {
    return base::ParseBytes(text).has_value() ? "" : "not a size, as 8GiB or 500M: " + text;
  };
  return {check, "SIZE"};
}

void AddMemoryOptions(CLI::App& app, load::MemoryOptions& memory) {
  app.add_option_function<std::string>(
         "--memory-budget",
         [&memory](const std::string& text) { memory.budget_bytes = *base::ParseBytes(text); },
         "Memory of the whole process (8GiB, 500M); what does not fit comes from the bundle file. "
         "0, or not given: what the system has free")
      ->check(SizeText());
  app.add_option("--ffn-memory", memory.ffn_share,
                 "Share of the feed-forward weights that may take memory, for measurements; "
                 "decides instead of the budget")
      ->check(NumberIn(0.001, 1));
  app.add_option("--bundle", memory.bundle, "Bundle file of `pack`; MODEL.tcb if not given");
  app.add_flag("!--no-read-ahead", memory.read_ahead,
               "Do not guess what the next layer needs from flash");
}

void AddHotOptions(CLI::App& app, HotOptions& hot) {
  hot.device = "auto";
  app.add_option("--device", hot.device,
                 "cpu; cuda: a GPU, or an error; auto: a GPU if one can be used, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--hot-memory", [&hot](const std::string& text) { hot.bytes = *base::ParseBytes(text); },
         "Memory of the hot tier (8GiB, 500M): of the GPU, all it has free if not given; on the "
         "CPU, of a second partition with kernel threads of its own, none if not given")
      ->check(SizeText());
  app.add_option("--hot-threads", hot.threads,
                 "Kernel threads, of all, that a second partition of the CPU has; 0 = half")
      ->check(CLI::Range(0, 255));
  app.add_option("--placement", hot.placement,
                 "Placement file of `plan --out`; planned while loading if not given");
  app.add_flag("--rebalance", hot.rebalance, "Swap neurons between the tiers as their use changes");
  app.add_flag("--calibrate", hot.calibrate, "Measure the machine though it was measured before");
}

void AddDraftOptions(CLI::App& app, SpecOptions& spec) {
  app.add_option("--draft", spec.draft,
                 "Draft model: a small model with the same vocabulary, a path or built-in name");
  app.add_option("--spec-source", spec.source,
                 "Where drafts come from: a draft model; ngram, what followed the same tokens "
                 "earlier in the text; self, this model with fewer neurons. If not given: model "
                 "with --draft, else ngram")
      ->check(CLI::IsMember({"model", "ngram", "self"}));
  app.add_option("--draft-tokens", spec.tokens_max, "Tokens of a draft, at most")
      ->check(CLI::Range(0, kDraftTokensMax))
      ->capture_default_str();
  app.add_flag("--draft-fixed", spec.fixed,
               "Draft --draft-tokens tokens always, else as many as pay");
  app.add_option("--draft-width", spec.width, "Tokens guessed at the end of each branch")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  app.add_option("--draft-threads", spec.threads,
                 "Kernel threads of the draft model; 0 = by measurement")
      ->check(CLI::Range(0, 256));
  app.add_option(
         "--draft-head", spec.head,
         "Tokens that the draft model chooses from, the first of the vocabulary, rounded up to "
         "16; 0 = all")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--self-shift", spec.self_shift,
                 "self: added to what the predictor must reach while drafting; above 0 drafts read "
                 "less and miss more")
      ->check(NumberIn(-1e6, 1e6));
  app.add_option("--spec-acceptance", spec.acceptance,
                 "same-text: a seed gives the text of plain decoding; rejection: accepts more, and "
                 "the text of a seed depends on the draft")
      ->check(CLI::IsMember({"same-text", "rejection"}))
      ->capture_default_str();
}

void AddSpecOptions(CLI::App& app, SpecOptions& spec) {
  AddDraftOptions(app, spec);
  CLI::Option* mode =
      app.add_option("--spec", spec.mode,
                     "Speculative decoding: sync drafts, then verifies; branch drafts on while the "
                     "target verifies; exhaustive does so from every outcome; auto: what is "
                     "fastest. If not given: auto with --draft or --spec-source, else off")
          ->check(CLI::IsMember({"off", "sync", "branch", "exhaustive", "auto"}));
  const auto implied = [&spec, mode](const std::string&) {
    if (mode->count() == 0) spec.mode = "auto";
  };
  app.get_option("--draft")->each(implied);
  app.get_option("--spec-source")->each(implied);
}

void AddTraceOption(CLI::App& app, std::string& path) {
  app.add_option("--record-trace", path,
                 "Write which neurons each decoded token needs to this file, for plan --replay");
}

ModelOptions WithMode(ModelOptions options, FfnMode mode) {
  options.ffn.modes = FfnModeName(mode);
  return options;
}

Result<load::LoadOptions> ToLoadOptions(const ModelOptions& o) {
  ASSIGN_OR_RETURN(const kernels::KvType kv_type, load::ParseKvType(o.kv_type));
  return load::LoadOptions{.model = o.model,
                           .threads = o.threads,
                           .cpu_isa = o.isa,
                           .activation = o.activation,
                           .kv_type = kv_type,
                           .verify = o.verify,
                           .quantize_head = o.quantize_head,
                           .ffn = o.ffn,
                           .memory = o.memory,
                           .hot = o.hot,
                           .fingerprint = !o.record_trace.empty(),
                           .on_progress = {}};
}

EngineConfig ToEngineConfig(const ModelOptions& o, int context_length) {
  EngineConfig config;
  config.model = o.model;
  config.threads = o.threads;
  config.context_length = context_length;
  config.cpu_isa = o.isa;
  config.activation = o.activation;
  config.kv_type = o.kv_type;
  config.verify = o.verify;
  config.quantize_head = o.quantize_head;
  config.ffn = o.ffn;
  config.memory_budget_bytes = o.memory.budget_bytes;
  config.ffn_memory_share = o.memory.ffn_share;
  config.bundle = o.memory.bundle;
  config.read_ahead = o.memory.read_ahead;
  config.hot = o.hot;
  config.spec = o.spec;
  config.record_trace = o.record_trace;
  return config;
}

Result<std::unique_ptr<load::LoadedModel>> LoadWithProgress(const ModelOptions& options) {
  ASSIGN_OR_RETURN(load::LoadOptions load, ToLoadOptions(options));
  ProgressBar bar("loading");
  load.on_progress = bar.callback();
  auto model = load::LoadModel(load);
  bar.Clear();
  return model;
}

}  // namespace thermocline::tools
