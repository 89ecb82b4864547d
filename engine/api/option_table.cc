#include "engine/api/option_table.h"

#include "kernels/sign_predict.h"

namespace thermocline {
namespace {

using Rows = std::vector<ModelOption>;
using enum OptionGroup;

constexpr int kMillion = 1'000'000;

void AddModel(ModelOptions& o, Rows& rows) {
  rows.insert(
      rows.end(),
      {{kModel, "model", "model.path", TextValue{&o.path}, "Model file, folder or built-in name"},
       {kModel, "-t,--threads", "engine.threads", IntValue{&o.threads, 0, 256},
        "Kernel threads; 0 = all processors", true},
       {kModel, "--cpu-isa", "engine.cpu_isa",
        TextValue{&o.cpu_isa,
                  {"amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "reference"},
                  /*optional=*/true},
        "Kernels; the fastest if not given"},
       {kModel, "--kv-type", "engine.kv_type", Choice(o.kv_type, kKvTypeNames),
        "Cached keys and values"},
       {kModel, "--activation", "model.activation", Choice(o.activation, kActivationNames),
        "Of the feed-forward network, whatever the file says; the file's if not given"},
       {kModel, "--quantize-head", "engine.quantize_head", BoolValue{&o.quantize_head},
        "Hold a float output head as q8_0: half the bytes"},
       {kModel, "--read", "model.read", Choice(o.reading, kFileReadingNames),
        "How the model's file is read: cached; direct, around the page cache, so that memory holds "
        "no second copy of the weights; auto: direct where a GPU shares the memory or the file is "
        "larger than half of what is free"},
       {kModel, "--lora", "model.lora", TextValue{&o.lora},
        "LoRA adapters, GGUF files or folders of PEFT: [NAME=]PATH[:SCALE],... A request that names "
        "none has each with its scale, 1 if not given"},
       {kModel, "--verify", "model.verify", BoolValue{&o.verify},
        "Refuse NaN and infinite weights"},
       {kContext, "--context", "engine.context_length", IntValue{&o.context_length, 0, 1 << 24},
        "Context length in tokens; 0 = the model's, as far as memory allows", true}});
}

void AddFfn(FfnOptions& ffn, Rows& rows) {
  rows.insert(
      rows.end(),
      {{kFfn, "--ffn-mode", "engine.ffn_mode", TextValue{&ffn.modes},
        "Neurons to compute: auto, dense, exact, sign, lowrank, threshold, inputs (attention's "
        "matrices, too), or modes by layer (0-3:dense,4-:sign)",
        true},
       {kFfn, "--also-modes", "engine.ffn_also", TextValue{&ffn.also},
        "Further modes to load predictors for: sign,lowrank"},
       {kFfn, "--side-car", "model.side_car", TextValue{&ffn.side_car},
        "Side-car with predictors; MODEL.tcp if not given"},
       {kFfn, "--down-layout", "engine.down_layout", Choice(ffn.down, kDownInMemoryNames),
        "Down projection that the file has along columns: file, as it is; rows, neuron-major, so "
        "that rows are skipped (quantised weights are rounded once more); auto: rows where modes "
        "are measured, that pays and nothing is rounded"},
       {kFfn, "--ffn-recall", "engine.ffn_recall", DoubleValue{&ffn.recall, 0, 1},
        "auto: take a predicted mode whose held-out recall is at least this; 1 = no loss"},
       {kFfn, "--kl-max", "engine.kl_max", DoubleValue{&ffn.kl_max, 0, kKlMaxMax},
        "inputs: read as little as the calibration allows with at most so much divergence from the "
        "whole model, in nats a token; auto takes it, too, where it is faster; 0: auto does not, "
        "and the "
        "mode by its name takes 0.05"},
       {kFfn, "--input-layout", "engine.input_layout", Choice(ffn.input_layout, kInputLayoutNames),
        "inputs: rows, matrices held input-major besides, so that weights are skipped (quantised "
        "ones are rounded once more); file, as in the file: the loss without the gain"},
       {kFfn, "--sign-alpha", "engine.sign_alpha", DoubleValue{&ffn.sign_alpha, 0, 10},
        "sign without calibration: skip where negatives > alpha * positives"},
       {kFfn, "--sign-alpha-layers", "engine.sign_alpha_layers",
        IntValue{&ffn.sign_alpha_layers, 0, 10'000},
        "First layers that alpha holds for; 1 in the others"},
       {kFfn, "--sign-slices", "engine.sign_slices",
        IntValue{&ffn.sign_slices, 1, kernels::kSignSlicesMax},
        "sign without calibration: bits of the input that count"},
       {kFfn, "--sign-planes", "engine.sign_planes", IntValue{&ffn.sign_planes, 1, 2},
        "sign without calibration: bits of the weights that count"},
       {kFfn, "--ignore-calibration", "engine.ignore_calibration",
        BoolValue{&ffn.ignore_calibration}, "sign: alpha, though the side-car has thresholds"},
       {kFfn, "", "engine.audit_interval", IntValue{&ffn.audit_interval, 0, kMillion},
        "One of so many tokens is checked for what its predictors missed; 0 = none"},
       {kFfn, "", "engine.audit_shadow", Choice(ffn.audit_shadow, kAuditShadowNames),
        "Predictor that is audited where layers are computed without loss: what it would miss; "
        "auto: "
        "what the side-car beside the model has learnt"},
       {kFfn, "", "engine.controller_recall", DoubleValue{&ffn.controller_recall, 0, 1},
        "Share of the active neurons to be found, held by moving thresholds; 0 = they stay"}});
}

void AddMemory(ModelOptions& o, Rows& rows) {
  MemoryOptions& memory = o.memory;
  rows.insert(
      rows.end(),
      {{kMemory, "--memory-budget", "memory.budget_bytes", BytesValue{&memory.budget_bytes},
        "Memory of the whole process (8GiB, 500M); weights that do not fit come from the bundle "
        "file. 0, or not given: what the system has free",
        true},
       {kMemory, "--ffn-memory", "", DoubleValue{&memory.ffn_share, 0.001, 1},
        "Share of the feed-forward weights that may take memory, for measurements; decides "
        "instead of the budget"},
       {kMemory, "--bundle", "memory.bundle", TextValue{&memory.bundle},
        "Bundle file of `pack`; MODEL.tcb if not given"},
       {kMemory, "!--no-read-ahead", "memory.read_ahead", BoolValue{&memory.read_ahead},
        "Do not guess what the next layer needs from flash"},
       {kTrace, "--record-trace", "memory.record_trace", TextValue{&o.record_trace},
        "Write which neurons each decoded token needs to this file, for plan --replay"}});
}

void AddHot(HotOptions& hot, Rows& rows) {
  rows.insert(
      rows.end(),
      {{kHot, "--device", "hot.device", Choice(hot.device, kHotDeviceNames),
        "cpu; cuda: a GPU, or an error; auto: a GPU if one can be used, else the CPU", true},
       {kHot, "--hot-memory", "hot.bytes", BytesValue{&hot.bytes},
        "Memory of the hot tier (8GiB, 500M): of the GPU, all it has free if not given; on the "
        "CPU, of a second partition with kernel threads of its own, none if not given"},
       {kHot, "--hot-threads", "hot.threads", IntValue{&hot.threads, 0, 255},
        "Kernel threads, of all, that a second partition of the CPU has; 0 = half"},
       {kHot, "--placement", "hot.placement", TextValue{&hot.placement},
        "Placement file of `plan --out`; planned while loading if not given. For measurements: "
        "random, as many neurons at random; naive, the first layers"},
       {kHot, "--calibrate", "", BoolValue{&hot.calibrate},
        "Measure the machine though it was measured before"}});
}

void AddSpec(SpecOptions& spec, Rows& rows) {
  rows.insert(
      rows.end(),
      {{kDraft, "--draft", "spec.draft", TextValue{&spec.draft},
        "Draft model: a small model with the same vocabulary, a path or built-in name", true},
       {kDraft, "--spec-source", "spec.source", Choice(spec.source, kSpecSourceNames),
        "Where drafts come from: a draft model; ngram, what followed the same tokens earlier in "
        "the text; self, this model with fewer neurons, also while it verifies where all of it is "
        "in memory. If not given: model with --draft, else ngram"},
       {kDraft, "", "spec.required", BoolValue{&spec.required},
        "false: serve without the draft model if it cannot be loaded"},
       {kDraft, "--draft-tokens", "spec.tokens_max", IntValue{&spec.tokens_max, 0, kDraftTokensMax},
        "Tokens of a draft, at most"},
       {kDraft, "--draft-fixed", "spec.fixed", BoolValue{&spec.fixed},
        "Draft --draft-tokens tokens always, else as many as pay"},
       {kDraft, "--draft-width", "spec.width", IntValue{&spec.width, 1, kDraftWidthMax},
        "Tokens guessed at the end of each branch"},
       {kDraft, "--draft-threads", "spec.threads", IntValue{&spec.threads, 0, 256},
        "Kernel threads of the draft model, or of self beside the model; 0 = by measurement"},
       {kDraft, "--draft-head", "spec.head", IntValue{&spec.head, 0, 1 << 24},
        "Tokens that the draft model chooses from, the first of the vocabulary, rounded up to 16; "
        "0 = all"},
       {kDraft, "--self-shift", "spec.self_shift", DoubleValue{&spec.self_shift, -1e6, 1e6},
        "self: added to what the predictor must reach while drafting; above 0 drafts read less "
        "and miss more"},
       {kDraft, "--spec-acceptance", "spec.acceptance",
        Choice(spec.acceptance, kSpecAcceptanceNames),
        "same-text: a seed gives the text of plain decoding; rejection: accepts more, and the "
        "text of a seed depends on the draft"},
       {kSpec, "--spec", "spec.mode", Choice(spec.mode, kSpecModeNames),
        "Speculative decoding: sync drafts, then verifies; branch drafts on while the target "
        "verifies; exhaustive does so from every outcome; auto: what is fastest. If not given: "
        "auto with --draft or --spec-source, else off"}});
}

void AddAblation(Ablation& ablation, Rows& rows) {
  rows.insert(rows.end(),
              {{kAblation, "!--no-actual-sparsity", "", BoolValue{&ablation.actual_sparsity},
                "Predicted neurons are computed whole, though their gate is zero"},
               {kAblation, "!--no-fusion", "", BoolValue{&ablation.fusion},
                "Predict, gate and multiply in a pass each over all neurons"},
               {kAblation, "!--no-bundling", "", BoolValue{&ablation.bundling},
                "Every row is a read of its own from flash"},
               {kAblation, "--random-predictor", "", BoolValue{&ablation.random_prediction},
                "As many neurons as are predicted, but drawn at random"}});
}

}  // namespace

const char* HeadingOf(OptionGroup group) {
  switch (group) {
    case kModel:
    case kContext:
      return "Model and kernels";
    case kFfn:
      return "Sparsity";
    case kMemory:
      return "Memory and flash";
    case kHot:
      return "GPU and placement";
    case kDraft:
    case kSpec:
      return "Speculative decoding";
    case kTrace:
    case kAblation:
      break;
  }
  return "For measurements";
}

std::vector<ModelOption> OptionsOf(ModelOptions& options) {
  Rows rows;
  AddModel(options, rows);
  AddFfn(options.ffn, rows);
  AddMemory(options, rows);
  AddHot(options.hot, rows);
  AddSpec(options.spec, rows);
  AddAblation(options.ablation, rows);
  return rows;
}

}  // namespace thermocline
