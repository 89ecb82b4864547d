// What `bench` measures: prefill, decoding and their parts, in turn, so that a noisy neighbour hits
// all alike.
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
  std::string modes;  // as FfnModeNames, separated by commas: each is decoded in, too
};

// Tokens of the longest sequence that is measured with so many modes.
int BenchContext(const BenchSize& size, std::size_t modes);

// What a token takes: bytes read, and multiply-adds of matrices (attention's are not counted).
struct TokenWork {
  double bytes = 0, operations = 0;

  TokenWork operator+(const TokenWork& o) const {
    return {bytes + o.bytes, operations + o.operations};
  }
  TokenWork operator-(const TokenWork& o) const {
    return {bytes - o.bytes, operations - o.operations};
  }
  TokenWork operator/(double n) const { return {bytes / n, operations / n}; }
};

// One line of the report. A phase without tokens/s is a part of decoding, known by its bytes and
// time alone.
struct BenchPhase {
  std::string name;
  int tokens = 0;
  TokenWork work;
  Samples tokens_per_s;
  // Of the read bandwidth, and of the dot products, measured in the same repetition; medians. 0:
  // nothing is known of the work.
  double bandwidth_share = 0, instruction_share = 0;

  // What is nearer to its limit.
  const char* bound_by() const {
    return instruction_share > bandwidth_share ? "instructions" : "bytes";
  }
};

// Thread-compatible. Borrows both.
class BenchMeasurement {
 public:
  BenchMeasurement(const BenchSize& size, load::LoadedModel& model) : size_(size), model_(model) {}

  // InvalidArgument, OutOfRange: sizes that cannot be, or not with this model. Errors of memory.
  Status Prepare();
  // Requires: Prepare. Any step's error ends it (exec::Transformer::Forward).
  Status Run();
  // Every token decoded from now on; the others of a measurement too.
  void SetTrace(store::TraceWriter* trace) { transformer_->ffn().SetTrace(trace); }

  // Whether part of the weights comes from flash.
  bool streams() const { return model_.memory.tier != load::MemoryPlan::Tier::kMemory; }
  // Requires: Run.
  std::vector<BenchPhase> Phases() const;
  const FlashRun& flash() const { return flash_; }
  HotStats hot() const { return model_.hot_stats(*transformer_); }
  const Samples& bandwidth() const { return bandwidth_; }
  // Billions of multiply-adds a second that the dot product alone makes.
  const Samples& instructions() const { return instructions_; }
  const char* bandwidth_of() const { return probe_.reads_weights() ? "the weights" : "1 GiB"; }

 private:
  using Logits = exec::Transformer::Logits;

  struct ModeRun {
    FfnMode mode;
    Samples seconds = {};     // per token
    Samples layers = {};      // per token, without the head
    Samples ffn = {};         // all layers' feed-forward networks of one token
    Samples predictor = {};   // their predictors alone
    TokenWork ffn_work = {};  // per token, of the last repetition
    double predictor_bytes = 0;
  };

  // Decodes further tokens of one text, and what flash had to do with it.
  Status RunFromFlash(bool keep, double bandwidth, double prefill_s);
  // Decodes in each mode, every layer in the layout the mode likes best.
  Status RunModes(bool keep);
  // The networks alone, each on the last token's input: for the shares of a token's time.
  Status ProbeNetworks(ModeRun& run);
  // Seconds.
  Result<double> Prefill();
  Result<double> Decode(Logits wanted);
  // Positions up to `depth` get small finite keys and values: their bytes count, not their worth.
  void FillTo(int depth);

  // Of the feed-forward networks so far.
  TokenWork ffn_work() const;
  TokenWork DenseFfnWork() const;
  // Of all layers but their networks, of a token at `depth`; and of the head.
  TokenWork AttentionWork(int depth) const;
  TokenWork LeftOutOfAttention() const;
  TokenWork HeadWork() const;
  // Keys and values that a token at `depth` reads.
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
  Samples bandwidth_, instructions_;             // GB/s; billions of multiply-adds a second
  Samples prefill_, decode_, head_, attention_;  // seconds per token
};

}  // namespace thermocline::tools
