// The measurements of `bench`: prefill, decoding and its parts, interleaved so that a noisy
// neighbor slows all of them alike.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/store/trace.h"
#include "tools/bench/bandwidth_probe.h"
#include "tools/bench/flash_run.h"
#include "tools/common/samples.h"

namespace thermocline::tools {

inline constexpr int kBenchChunk = 128;  // tokens of one prefill step

struct BenchSize {
  int prefill = 128, decode = 0, depth = 0;  // tokens
  int repetitions = 5;
  std::string modes;  // FfnModeNames, separated by commas; decoding is measured in each of them
};

// Tokens of the longest sequence in the measurement, with so many modes.
int BenchContext(const BenchSize& size, std::size_t modes);

// The work of a token: bytes read, and multiply-adds of matrices (without attention's).
struct TokenWork {
  double bytes = 0, operations = 0;

  static TokenWork Of(std::int64_t bytes, std::int64_t operations) {
    return {static_cast<double>(bytes), static_cast<double>(operations)};
  }
  TokenWork operator+(const TokenWork& o) const {
    return {bytes + o.bytes, operations + o.operations};
  }
  TokenWork operator-(const TokenWork& o) const {
    return {bytes - o.bytes, operations - o.operations};
  }
  TokenWork operator/(double n) const { return {bytes / n, operations / n}; }
};

// One line of the report. A phase without tokens/s is a part of decoding, and has bytes and time
// only.
struct BenchPhase {
  std::string name;
  int tokens = 0;
  TokenWork work;
  Samples tokens_per_s;
  // Shares of the read bandwidth and of the dot products' speed, measured in the same repetition;
  // medians. 0: the work is unknown.
  double bandwidth_share = 0, instruction_share = 0;

  // The resource that is closer to its limit.
  const char* bound_by() const {
    return instruction_share > bandwidth_share ? "instructions" : "bytes";
  }
};

// Attention in a prompt, without its projections; medians.
struct PromptAttention {
  double share = 0;           // of the prompt's time
  double gop_per_s = 0;       // billions of multiply-adds per second
  double cycles_a_score = 0;  // of one core
};

// Thread-compatible. Borrows both.
class BenchMeasurement {
 public:
  BenchMeasurement(const BenchSize& size, load::LoadedModel& model) : size_(size), model_(model) {}

  // InvalidArgument, OutOfRange: sizes that are impossible, or impossible with this model. Errors
  // of memory.
  Status Prepare();
  // Requires: Prepare. Stops at the first error of a step (exec::Transformer::Forward).
  Status Run();
  // Traces every decoded token from now on, including those of other measurements.
  void SetTrace(store::TraceWriter* trace) { transformer_->ffn().SetTrace(trace); }

  // True if part of the weights is read from flash.
  bool streams() const { return model_.memory.tier != load::MemoryPlan::Tier::kMemory; }
  // Requires: Run.
  std::vector<BenchPhase> Phases() const;
  const FlashRun& flash() const { return flash_; }
  HotStats hot() const { return model_.hot_stats(*transformer_); }
  const Samples& bandwidth() const { return bandwidth_; }
  // The speed of the dot product alone, in billions of multiply-adds per second.
  const Samples& instructions() const { return instructions_; }
  // Zeros if no layer's attention is computed here.
  PromptAttention prompt_attention() const;
  const char* bandwidth_of() const { return probe_.reads_weights() ? "the weights" : "1 GiB"; }

 private:
  using Logits = exec::Transformer::Logits;

  struct ModeRun {
    FfnMode mode;
    Samples seconds = {};     // per token
    Samples layers = {};      // per token, without the head
    Samples ffn = {};         // all layers' feed-forward networks, per token
    Samples predictor = {};   // their predictors alone
    TokenWork ffn_work = {};  // per token, in the last repetition
    double predictor_bytes = 0;
  };

  // Decodes more tokens of one text, and records flash's part in it.
  Status RunFromFlash(bool keep, double bandwidth, double prefill_s);
  // Decodes in each mode, with every layer in the mode's best layout.
  Status RunModes(bool keep);
  // Runs the networks alone, each on the last token's input, for their shares of a token's time.
  Status ProbeNetworks(ModeRun& run);
  // Both return seconds.
  Result<double> Prefill();
  // As Prefill, and records attention's part if `keep`.
  Result<double> MeasurePrefill(bool keep);
  Result<double> Decode(Logits wanted);
  // Fills the KV cache up to `depth` with small finite numbers, since only the bytes matter.
  void FillTo(int depth);

  // The work of the feed-forward networks so far.
  TokenWork ffn_work() const;
  TokenWork DenseFfnWork() const;
  // The work of all layers without their networks, for a token at `depth`, and that of the head.
  TokenWork AttentionWork(int depth) const;
  TokenWork LeftOutOfAttention() const;
  TokenWork HeadWork() const;
  // Multiply-adds of the layers that a prompt's steps but the last leave out, for all their tokens.
  double LeftOutOfPrompt() const;
  // Bytes of the KV cache that a token at `depth` reads.
  double KvBytes(int depth) const;
  BenchPhase MakePhase(const std::string& name, int tokens, const TokenWork& work,
                       const Samples& seconds) const;

  const BenchSize& size_;
  load::LoadedModel& model_;
  BandwidthProbe probe_;
  std::unique_ptr<exec::Transformer> transformer_;
  std::unique_ptr<nn::KvCache> cache_;
  std::vector<int> prompt_;
  FlashRun flash_;
  std::vector<ModeRun> modes_;
  TokenWork ffn_per_token_;
  Samples bandwidth_, instructions_;             // GB/s; billions of multiply-adds per second
  Samples prefill_, decode_, head_, attention_;  // seconds per token
  Samples attention_share_, attention_gop_, attention_cycles_;  // of prompts
};

}  // namespace thermocline::tools
