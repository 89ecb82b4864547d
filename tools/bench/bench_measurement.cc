#include "tools/bench/bench_measurement.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/base/index.h"
#include "engine/load/mode_tuner.h"
#include "tools/bench/instruction_probe.h"

namespace thermocline::tools {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int BenchContext(const BenchSize& size, std::size_t modes) {
  const int decodes = 2 + 2 * static_cast<int>(modes);
  return std::max(size.prefill, size.depth) + decodes * size.decode + 1;
}

Status BenchMeasurement::Prepare() {
  if (size_.depth > 0 && size_.depth < size_.prefill)
    return base::InvalidArgument("--depth ", size_.depth, " must not be below --prefill ",
                                 size_.prefill);
  ASSIGN_OR_RETURN(const std::vector<FfnMode> modes, ParseFfnModeList(size_.modes));
  if (streams() && (!modes.empty() || size_.depth > 0)) {
    return base::InvalidArgument(
        "--ffn-modes and --depth measure what is in memory, and part of this model comes from "
        "flash; give one mode with --ffn-mode");
  }
  for (const FfnMode mode : modes) modes_.push_back({.mode = mode});
  const int context = BenchContext(size_, modes.size());
  if (context > model_.config.max_position_embeddings) {
    return base::OutOfRange("--prefill or --depth, and --decode for each measurement, need ",
                            context, " tokens, the model's context has ",
                            model_.config.max_position_embeddings);
  }
  const base::HugeBuffer& weights = model_.weights->memory;
  // Pages that were returned to the system read as one cached page of zeros, so the weights must be
  // fully in memory.
  const bool whole = weights.held() == weights.size();
  ASSIGN_OR_RETURN(probe_, BandwidthProbe::Create({weights.data(), whole ? weights.size() : 0}));
  transformer_ = model_.MakeTransformer(std::min(size_.prefill, kBenchChunk), context);
  ASSIGN_OR_RETURN(cache_, model_.MakeCache(context));
  for (int i = 0; i < size_.prefill; ++i)
    prompt_.push_back((i * 7919 + 13) % model_.config.vocab_size);
  return OkStatus();
}

Status BenchMeasurement::Run() {
  for (int r = -1; r < size_.repetitions; ++r) {  // the first run warms up
    const double bandwidth = probe_.MeasureGbPerS(*model_.pool);
    const double instructions = MeasureGopPerS(*model_.ops, *model_.pool);
    if (r >= 0) instructions_.values.push_back(instructions);
    cache_->Clear();
    ASSIGN_OR_RETURN(const double prefill_s, MeasurePrefill(r >= 0));
    if (streams()) {
      RETURN_IF_ERROR(RunFromFlash(r >= 0, bandwidth, prefill_s));
      continue;
    }
    if (size_.depth > 0) FillTo(size_.depth);
    const TokenWork before = ffn_work();
    ASSIGN_OR_RETURN(const double decode_s, Decode(Logits::kLast));
    const TokenWork done = (ffn_work() - before) / size_.decode;
    ASSIGN_OR_RETURN(const double headless_s, Decode(Logits::kNone));
    RETURN_IF_ERROR(RunModes(r >= 0));
    double shallow_s = 0;
    if (size_.depth > 0) {
      cache_->Clear();
      FillTo(1);
      ASSIGN_OR_RETURN(shallow_s, Decode(Logits::kNone));
    }
    if (r < 0) continue;
    bandwidth_.values.push_back(bandwidth);
    prefill_.values.push_back(prefill_s / size_.prefill);
    decode_.values.push_back(decode_s / size_.decode);
    ffn_per_token_ = done;
    head_.values.push_back(std::max(1e-9, (decode_s - headless_s) / size_.decode));
    attention_.values.push_back(std::max(1e-9, (headless_s - shallow_s) / size_.decode));
  }
  return OkStatus();
}

Status BenchMeasurement::RunFromFlash(bool keep, double bandwidth, double prefill_s) {
  const FlashCounters before = model_.flash_counters();
  const TokenWork work = ffn_work();
  ASSIGN_OR_RETURN(const double decode_s, Decode(Logits::kLast));
  if (!keep) return OkStatus();
  bandwidth_.values.push_back(bandwidth);
  prefill_.values.push_back(prefill_s / size_.prefill);
  decode_.values.push_back(decode_s / size_.decode);
  ffn_per_token_ = (ffn_work() - work) / size_.decode;
  flash_.Add(before, model_.flash_counters(), decode_s, size_.decode);
  return OkStatus();
}

Status BenchMeasurement::RunModes(bool keep) {
  for (ModeRun& run : modes_) {
    const std::vector<FfnMode> all(model_.ffn_modes.size(), run.mode);
    for (std::size_t l = 0; l < all.size(); ++l) load::UseLayoutsOf(run.mode, l, model_);
    model_.SetModes(*transformer_, {.layers = all});
    const TokenWork before = ffn_work();
    ASSIGN_OR_RETURN(const double seconds, Decode(Logits::kLast));
    run.ffn_work = (ffn_work() - before) / size_.decode;
    ASSIGN_OR_RETURN(const double layers, Decode(Logits::kNone));
    if (!keep) continue;
    run.layers.values.push_back(layers / size_.decode);
    RETURN_IF_ERROR(ProbeNetworks(run));
    run.seconds.values.push_back(seconds / size_.decode);
  }
  if (modes_.empty()) return OkStatus();
  for (std::size_t l = 0; l < model_.ffn_modes.size(); ++l)
    load::UseLayoutsOf(model_.ffn_modes[l], l, model_);
  model_.SetModes(*transformer_, {.layers = model_.ffn_modes});
  return OkStatus();
}

Status BenchMeasurement::ProbeNetworks(ModeRun& run) {
  const bool predicts = run.mode == FfnMode::kSign || run.mode == FfnMode::kLowRank;
  constexpr int kTimes = 4;
  const auto time = [&](const auto& body) -> Result<double> {
    const auto begin = Clock::now();
    for (int i = 0; i < kTimes; ++i) {
      for (int l = 0; l < model_.config.num_hidden_layers; ++l) RETURN_IF_ERROR(body(l));
    }
    return Seconds(begin) / kTimes;
  };
  ASSIGN_OR_RETURN(const double ffn_s, time([&](int l) { return transformer_->ProbeFfn(l); }));
  run.ffn.values.push_back(ffn_s);
  if (!predicts) return OkStatus();
  ASSIGN_OR_RETURN(const double predictor_s, time([&](int l) {
                     transformer_->ProbePredictor(l);
                     return OkStatus();
                   }));
  run.predictor.values.push_back(predictor_s);
  run.predictor_bytes = 0;
  for (const predictor::LayerPredictors& p : model_.predictors->layers) {
    run.predictor_bytes +=
        static_cast<double>(run.mode == FfnMode::kSign ? p.sign->bytes() : p.low_rank->bytes());
  }
  return OkStatus();
}

Result<double> BenchMeasurement::MeasurePrefill(bool keep) {
  const double ghz = ClockGhz();
  const exec::AttentionCounters before = transformer_->attention_counters();
  ASSIGN_OR_RETURN(const double seconds, Prefill());
  const exec::AttentionCounters& after = transformer_->attention_counters();
  const double taken = after.seconds - before.seconds, scores = after.scores - before.scores;
  if (!keep || scores == 0) return seconds;
  attention_share_.values.push_back(taken / seconds);
  attention_gop_.values.push_back((after.operations - before.operations) / taken / 1e9);
  attention_cycles_.values.push_back(taken * ghz * 1e9 * model_.pool->threads() / scores);
  return seconds;
}

PromptAttention BenchMeasurement::prompt_attention() const {
  if (attention_share_.values.empty()) return {};
  return {attention_share_.median(), attention_gop_.median(), attention_cycles_.median()};
}

Result<double> BenchMeasurement::Prefill() {
  const auto begin = Clock::now();
  for (std::size_t at = 0; at < prompt_.size(); at += kBenchChunk) {
    const std::size_t count = std::min<std::size_t>(prompt_.size() - at, kBenchChunk);
    const bool last = at + count == prompt_.size();
    RETURN_IF_ERROR(transformer_
                        ->Forward(std::span(prompt_).subspan(at, count), *cache_,
                                  last ? Logits::kLast : Logits::kNothing,
                                  exec::Transformer::Step::kPrefill)
                        .status());
  }
  return Seconds(begin);
}

Result<double> BenchMeasurement::Decode(Logits wanted) {
  const auto begin = Clock::now();
  int token = prompt_.front();
  for (int i = 0; i < size_.decode; ++i) {
    ASSIGN_OR_RETURN(const auto logits,
                     transformer_->Forward(std::span(&token, 1), *cache_, wanted));
    if (!logits.empty()) token = base::IndexOfLargest(logits);
  }
  return Seconds(begin);
}

void BenchMeasurement::FillTo(int depth) {
  const int missing = depth - cache_->length();
  if (missing <= 0) return;
  const int begin = cache_->length();
  CHECK(cache_->Reserve(missing));
  for (int at = begin; at < depth; at += kernels::kKvBlock)
    std::memset(cache_->block_at(at), 0x11, cache_->pool().block_bytes(nn::KvKind::kWhole));
  cache_->Advance(missing);
}

TokenWork BenchMeasurement::ffn_work() const {
  TokenWork work;
  for (int l = 0; l < model_.config.num_hidden_layers; ++l) {
    const ffn::FfnCounters& counters = transformer_->ffn_counters(l);
    work = work + TokenWork::Of(counters.bytes, counters.operations);
  }
  return work;
}

TokenWork BenchMeasurement::DenseFfnWork() const {
  TokenWork work;
  for (int l = 0; l < model_.config.num_hidden_layers; ++l) {
    work = work + TokenWork::Of(transformer_->ffn().dense_bytes(l),
                                transformer_->ffn().dense_operations(l));
  }
  return work;
}

TokenWork BenchMeasurement::AttentionWork(int depth) const {
  const double bytes = static_cast<double>(model_.weights->bytes_per_step(
                           model_.config.experts.num_experts_per_tok)) -
                       DenseFfnWork().bytes - HeadWork().bytes + KvBytes(depth);
  double operations = 0;
  for (const model::LayerWeights& layer : model_.weights->layers) {
    for (const model::Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attn_output})
      operations += static_cast<double>(linear->weight.rows) * linear->weight.cols;
  }
  return TokenWork{bytes, operations} + LeftOutOfAttention();
}

// The savings of mode inputs in attention's matrices for a decoded token, as negative work.
TokenWork BenchMeasurement::LeftOutOfAttention() const {
  TokenWork work;
  const exec::InputSparsity* inputs = transformer_->inputs();
  for (int l = 0; inputs != nullptr && l < model_.config.num_hidden_layers; ++l) {
    for (const auto kind : {model::InputKind::kAttention, model::InputKind::kAttnOutput}) {
      const nn::InputCounts& counts = inputs->counts(l, kind);
      if (counts.tokens == 0) continue;
      const auto tokens = static_cast<double>(counts.tokens);
      work = work + TokenWork::Of(counts.bytes, counts.operations) / tokens;
      for (const model::Linear* matrix : model::MatricesOf(model_.weights->layers[l], kind)) {
        const kernels::PackedMatrix& w = matrix->weight;
        work = work - TokenWork::Of(w.bytes(), base::Area(w.rows, w.cols));
      }
    }
  }
  return work;
}

TokenWork BenchMeasurement::HeadWork() const {
  const kernels::PackedMatrix& head = model_.weights->output.weight;
  const int times =
      kernels::Traits(head.type).quantized ? 2 : 1;  // the input, and its rounding error
  return TokenWork::Of(head.bytes(), base::Area(head.rows, head.cols) * times);
}

double BenchMeasurement::KvBytes(int depth) const {
  const auto bytes = nn::KvPool::BlockBytesByKind(model_.config, cache_->pool().type());
  const int seen = std::min(depth, model_.config.sliding_window);
  return (static_cast<double>(bytes.whole) * depth + static_cast<double>(bytes.window) * seen) /
         kernels::kKvBlock;
}

double BenchMeasurement::LeftOutOfPrompt() const {
  const int stores = transformer_->LayersBeforeStoring();
  double operations = 0;
  for (int l = stores; l < model_.config.num_hidden_layers; ++l) {
    const model::LayerWeights& w = model_.weights->layers[l];
    operations += static_cast<double>(transformer_->ffn().dense_operations(l));
    for (const model::Linear* linear : {&w.q, &w.attn_output, &w.k, &w.v}) {
      const bool stored = l == stores && (linear == &w.k || linear == &w.v);
      if (!stored) operations += static_cast<double>(linear->weight.rows) * linear->weight.cols;
    }
  }
  return operations * ((size_.prefill - 1) / kBenchChunk * kBenchChunk);
}

std::vector<BenchPhase> BenchMeasurement::Phases() const {
  const TokenWork attention = AttentionWork(std::max(size_.prefill, size_.depth)),
                  head = HeadWork(), dense = DenseFfnWork();
  // A chunk reads the weights once, of the experts as many as its tokens may choose; the last token
  // has the head.
  const int chunk = std::min(size_.prefill, kBenchChunk);
  const model::ExpertConfig& e = model_.config.experts;
  const int experts = std::min(e.num_experts, e.num_experts_per_tok * chunk);
  const TokenWork prompt = {static_cast<double>(model_.weights->bytes_per_step(experts)) / chunk,
                            attention.operations + dense.operations +
                                (head.operations - LeftOutOfPrompt()) / size_.prefill};
  const TokenWork token = attention + head;
  std::vector<BenchPhase> phases = {
      MakePhase("prefill", size_.prefill, prompt, prefill_),
      MakePhase("decode", size_.decode, token + ffn_per_token_, decode_)};
  // These are differences of two measurements; they are omitted if they are lost in noise.
  if (!head_.values.empty() && head_.min() > 1e-9)
    phases.push_back(MakePhase("head", size_.decode, head, head_));
  if (size_.depth > 0 && attention_.min() > 1e-9) {
    phases.push_back(MakePhase("attention", size_.decode, {KvBytes(size_.depth), 0}, attention_));
  }
  for (const ModeRun& run : modes_) {
    phases.push_back(MakePhase(StrCat("decode ", FfnModeName(run.mode)), size_.decode,
                               token + run.ffn_work, run.seconds));
    phases.push_back(MakePhase(StrCat("layers ", FfnModeName(run.mode)), size_.decode,
                               attention + run.ffn_work, run.layers));
    phases.push_back(MakePhase(StrCat("ffn ", FfnModeName(run.mode)), 1, run.ffn_work, run.ffn));
    if (run.predictor.values.empty()) continue;
    phases.push_back(MakePhase(StrCat("predict ", FfnModeName(run.mode)), 1,
                               {run.predictor_bytes, 0}, run.predictor));
  }
  return phases;
}

BenchPhase BenchMeasurement::MakePhase(const std::string& name, int tokens, const TokenWork& work,
                                       const Samples& seconds) const {
  BenchPhase phase{.name = name, .tokens = tokens, .work = work, .tokens_per_s = {}};
  Samples bandwidth, instructions;
  for (std::size_t i = 0; i < seconds.values.size(); ++i) {
    const double rate = 1e-9 / seconds.values[i];
    phase.tokens_per_s.values.push_back(1 / seconds.values[i]);
    bandwidth.values.push_back(work.bytes * rate / bandwidth_.values[i]);
    instructions.values.push_back(work.operations * rate / instructions_.values[i]);
  }
  phase.bandwidth_share = bandwidth.median();
  // Float weights are not multiplied by dot products of bytes.
  const bool quantised =
      kernels::Traits(model_.weights->layers.front().attn_output.weight.type).quantized;
  phase.instruction_share = quantised ? instructions.median() : 0;
  return phase;
}

}  // namespace thermocline::tools
