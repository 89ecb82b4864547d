// A model ready to run: weights in memory, tokenizer, kernels and threads chosen.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/base/worker_pool.h"
#include "engine/exec/ffn_setup.h"
#include "engine/exec/memory_plan.h"
#include "engine/exec/transformer.h"
#include "engine/model/model_file.h"
#include "engine/model/weights.h"
#include "engine/text/tokenizer.h"

namespace thermocline::exec {

struct LoadOptions {
  std::string model;            // path, or the name of a built-in model
  int threads = 0;              // kernel threads; 0 = one for each processor this process may use
  std::string cpu_isa;          // kernels' name; "" = $THERMOCLINE_CPU_ISA, else the fastest
  std::string activation = {};  // of the feed-forward network; "" = what the file says
  kernels::KvType kv_type = kernels::KvType::kF16;
  bool verify = false;                      // refuse NaN and infinite weights
  bool quantize_head = false;               // a float head as q8_0
  FfnOptions ffn = {};                      // of the feed-forward networks
  MemoryOptions memory = {};                // how much, and what comes from flash
  bool fingerprint = false;                 // compute LoadedModel::hash
  std::function<void(double)> on_progress;  // share loaded, from one thread at a time; may be empty
};

// Const after Load but for the pool, which the decode thread uses.
struct LoadedModel {
  std::string path;
  std::string format;
  model::ModelConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<base::WorkerPool> pool;
  std::unique_ptr<model::Weights> weights;
  MemoryPlan memory;
  // What memory does not hold; null: it holds all. Changed by the decode thread alone.
  std::unique_ptr<store::NeuronStore> flash;
  std::unique_ptr<store::LayerStream> stream;
  std::unique_ptr<predictor::Predictors> predictors;
  std::optional<predictor::SideCar> side_car;
  std::string side_car_path;       // "" = none was read
  std::vector<FfnMode> ffn_modes;  // [L] what a token is decoded with unless it asks otherwise
  bool ffn_automatic = false;      // they were chosen by measurement
  const kernels::OpTable* ops = nullptr;
  kernels::KvType kv_type = kernels::KvType::kF16;
  double load_s = 0;
  std::string hash;  // model::Fingerprint; "" if nothing needed it

  store::TraceWriter::Shape trace_shape() const {
    return {config.num_hidden_layers, config.intermediate_size, hash};
  }
  // Figures of the flash tier; zeros without one. Decode thread only.
  FlashCounters flash_counters() const;

  // One at a time, where there is a flash tier.
  std::unique_ptr<Transformer> MakeTransformer(int tokens_max, int context_length,
                                               bool all_logits = false) const;
  // The modes for a request that asks for `text` (as FfnModes; "" or "auto": ffn_modes).
  // InvalidArgument, or FailedPrecondition for a mode that was not loaded or cannot be.
  Result<std::vector<FfnMode>> ModesFor(const std::string& text) const;
  // Gives the transformer's layers these modes.
  void SetModes(Transformer& transformer, const std::vector<FfnMode>& modes) const;

  // A cache with a pool of its own.
  Result<std::unique_ptr<KvCache>> MakeCache(int context_length) const {
    return KvCache::Create(config, context_length, kv_type);
  }
};

// NotFound, InvalidArgument, DataLoss or Unimplemented with the file and what is wrong in it.
Result<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options);

// f16, q8_0, f32.
Result<kernels::KvType> ParseKvType(const std::string& name);
const char* KvTypeName(kernels::KvType type);

// The kernels for `isa`, as LoadOptions::cpu_isa. InvalidArgument if the processor lacks it.
Result<const kernels::OpTable*> ChooseOps(const std::string& isa);

// Processors this process may run on.
int NumProcessors();

}  // namespace thermocline::exec
