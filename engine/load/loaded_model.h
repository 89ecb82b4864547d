// A model ready to run: weights in memory, tokenizer, kernels and threads chosen.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/api/model_options.h"
#include "engine/base/worker_pool.h"
#include "engine/exec/transformer.h"
#include "engine/ffn/neuron_split.h"
#include "engine/gpu/device_experts.h"
#include "engine/load/ffn_setup.h"
#include "engine/load/memory_plan.h"
#include "engine/load/request_modes.h"
#include "engine/model/input_major.h"
#include "engine/model/model_file.h"
#include "engine/model/weights.h"
#include "engine/store/block_reader.h"
#include "engine/text/tokenizer.h"

namespace thermocline::load {

struct LoadOptions {
  ModelOptions model = {};
  WorkSizes sizes = {};
  // An accelerator's ops; null: kernels::CudaOps(). Tests have an emulated one.
  const kernels::DeviceOps* device_ops = nullptr;
  // Opens the bundle file for reading; empty = store::OpenBlockReader. Tests put faults behind it.
  std::function<Result<std::unique_ptr<store::BlockReader>>(const std::string& path,
                                                            const store::ReaderOptions& options)>
      open_reader = {};
  // Share loaded, from one thread at a time; may be empty.
  std::function<void(double)> on_progress = {};
};

// The sizes that a device's memory is shared out for, beside weights: those of every later
// transformer and cache.
struct DeviceSizes {
  int tokens_max = 64;     // T of one step
  int context_length = 0;  // tokens of a sequence
  int kv_blocks = 0;       // of the pool of K and V; 0: one sequence's
  // Scratch of attention: for enough tokens at once to fill a device, not for all of a long
  // context's prompt.
  std::size_t attention_bytes = std::size_t{64} << 20;
  int logits_max = 1;   // tokens of one step whose logits may be asked for
  int parts_max = 1;    // sequences that may share a step
  bool audits = false;  // there will be any, though no predictor is loaded yet
};

// Const after Load but for the pool, which the decode thread uses.
struct LoadedModel {
  std::string path;
  std::string format;
  model::ModelConfig config;
  int context = 0;            // tokens of a sequence, as asked or as ChooseContext
  bool kv_whole = false;      // as WorkSizes
  SamplingDefaults sampling;  // what its makers recommend
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<base::WorkerPool> pool;
  std::unique_ptr<model::Weights> weights;
  MemoryPlan memory;
  // The part of the model that memory does not hold; null: it holds all. Changed by the decode
  // thread alone.
  std::unique_ptr<store::NeuronStore> flash;
  std::unique_ptr<store::LayerStream> stream;
  std::unique_ptr<predictor::Predictors> predictors;  // of the cold side, where there are two
  std::unique_ptr<model::InputMajor> input_major;     // of mode inputs; null: none
  // The neurons that a hot side computes; null: there is none.
  std::unique_ptr<ffn::NeuronSplit> split;
  std::unique_ptr<predictor::Predictors> hot_predictors;
  std::unique_ptr<ffn::HotExperts> hot_experts;          // of a mixture, instead of neurons
  std::unique_ptr<ffn::ExpertNetworks> expert_networks;  // null: experts are computed whole
  int hot_threads = 0;                                   // of a hot side on the CPU
  HotStats hot;                                          // as planned: no counts
  // The part of the model at home on a device; null: nothing. The device is used by the decode
  // thread alone.
  std::unique_ptr<device::Device> gpu;
  std::unique_ptr<gpu::DeviceModel> device;
  std::unique_ptr<gpu::DeviceForward> device_forward;
  std::unique_ptr<gpu::DeviceExperts> device_experts;  // of a mixture, instead of these two
  // Stays open where a device holds weights that the host does not, for a device that lost them:
  // the file that was loaded, though another may have its name now. Else null.
  std::unique_ptr<model::ModelFile> file;
  std::optional<predictor::SideCar> side_car;
  std::string side_car_path;       // "" = none was read
  std::vector<FfnMode> ffn_modes;  // [L] what a token is decoded with unless it asks otherwise
  bool ffn_automatic = false;      // they were chosen by measurement
  bool quantize_head = false, verify = false;  // as ModelOptions
  std::string weights_read;                    // how the file was, as SetReading
  FfnMode audit_shadow = FfnMode::kDense;      // as FfnPlan::shadow
  bool shadow_alone = false;                   // as FfnPlan's
  Ablation ablation = {};
  const kernels::OpTable* ops = nullptr;
  kernels::KvType kv_type = kernels::KvType::kF16;
  int prefetch_bytes = kernels::kPrefetchBytes;  // while decoding (FastestPrefetch)
  double load_s = 0;
  int step_tokens_max = 64;  // T of one call: WorkSizes', or what was chosen
  std::string hash;          // model::Fingerprint; "" if nothing needed it

  // The shape of a trace of neurons, or of experts.
  store::TraceWriter::Shape trace_shape() const {
    return {config.num_hidden_layers, config.units_per_layer(), hash};
  }
  // Figures of the flash tier; zeros without one. Decode thread only.
  FlashCounters flash_counters() const;

  // True if predictions may be audited.
  bool audits() const;
  // Gives up the predictor of a shadow. Requires: shadow_alone.
  void DropShadow();
  // Gate and up in rows: neurons that are shared out lie so.
  void SetRows();
  // Gives the neurons of `hot` to a second partition of the CPU with kernel threads of its own.
  // Errors as NeuronSplit::Move. Requires: no transformer is in use.
  Status SplitNeurons(ffn::NeuronIds hot_ids, int threads);
  // Leaves the predictors of the cold neurons, and the norms of all, which audits of both sides
  // need. Requires: split.
  Status KeepColdPredictors();

  // The counters of the hot tier. Decode thread only. The second allocates nothing: `stats` is the
  // result of an earlier call.
  HotStats hot_stats(const exec::Transformer& transformer) const;
  void UpdateHotStats(const exec::Transformer& transformer, HotStats& stats) const;

  // Puts layers, neurons and the head on a device, as the placement says, and gives back the host's
  // memory of all matrices that only the device needs. What the host was not given to hold is read
  // from the file, a layer at a time. InvalidArgument for a placement that cannot be;
  // ResourceExhausted with a table of what the device's memory was needed for, then the model is as
  // it was; Unavailable with the device's error; FailedPrecondition where whole layers are streamed
  // from flash; errors of the flash tier. Requires: no transformer is in use.
  //
  // `on_progress`: as LoadOptions.
  Status PlaceOnDevice(std::unique_ptr<device::Device> on, gpu::DevicePlacement placement,
                       const DeviceSizes& sizes,
                       const std::function<void(double)>& on_progress = {});

  // Bytes of the device's memory that such a placement takes, so that it can be planned; nothing is
  // allocated there. InvalidArgument for a placement that cannot be.
  struct DeviceBytes {
    std::size_t weights, work;  // work: K and V, and scratch
  };
  Result<DeviceBytes> MeasureOnDevice(device::Device& on, gpu::DevicePlacement placement,
                                      const DeviceSizes& sizes) const;

  // One at a time, where there is a flash tier or a hot side. `workers`: kernel threads of its own,
  // to run beside another one; null: `pool`.
  std::unique_ptr<exec::Transformer> MakeTransformer(int tokens_max, int context_length,
                                                     int logits_max = 1,
                                                     base::WorkerPool* workers = nullptr) const;
  // The modes that a request may ask for in all layers.
  std::vector<FfnMode> OfferedModes() const;
  // The modes for a request that asks for `text` (as FfnModes; "" or "auto": ffn_modes), and in
  // mode inputs for at most `kl_max` of divergence; below 0: as loaded. InvalidArgument, or
  // FailedPrecondition for a mode that was not loaded or cannot be; the field is ffn_mode or
  // kl_max.
  Result<RequestModes> ModesFor(const std::string& text, double kl_max = -1) const;
  Result<std::vector<FfnMode>> LayerModesFor(const std::string& text) const;
  // Gives the transformer's layers these modes.
  void SetModes(exec::Transformer& transformer, const RequestModes& modes) const;

  // A cache with a pool of its own.
  Result<std::unique_ptr<nn::KvCache>> MakeCache(int context_length) const {
    return nn::KvCache::Create(config, context_length, kv_type);
  }
};

// NotFound, InvalidArgument, DataLoss or Unimplemented with the file and what is wrong in it.
Result<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options);

// The kernels for `isa`, as ModelOptions::cpu_isa. InvalidArgument if the processor lacks it.
Result<const kernels::OpTable*> ChooseOps(const std::string& isa);

// Tokens of a prefill step: 64; of a mixture so many that its experts have 16 of them each, at most
// 256, since each step reads the experts anew.
int PrefillChunk(const model::ModelConfig& config);

}  // namespace thermocline::load
