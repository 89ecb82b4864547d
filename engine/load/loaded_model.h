// A model ready to run: weights in memory, tokenizer, kernels and threads chosen.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "engine/api/model_options.h"
#include "engine/base/worker_pool.h"
#include "engine/exec/transformer.h"
#include "engine/ffn/neuron_split.h"
#include "engine/gpu/device_experts.h"
#include "engine/load/adapters.h"
#include "engine/load/ffn_setup.h"
#include "engine/load/memory_plan.h"
#include "engine/load/request_modes.h"
#include "engine/model/model_file.h"
#include "engine/model/weights/input_major.h"
#include "engine/model/weights/weights.h"
#include "engine/store/block_reader.h"
#include "engine/text/tokenizer.h"

namespace thermocline::load {

struct LoadOptions {
  ModelOptions model = {};
  WorkSizes sizes = {};
  // An accelerator's ops; null: kernels::CudaOps(). Tests pass an emulated one.
  const kernels::DeviceOps* device_ops = nullptr;
  // Opens the bundle file for reading; empty = store::OpenBlockReader. Tests inject faults.
  std::function<Result<std::unique_ptr<store::BlockReader>>(const std::string& path,
                                                            const store::ReaderOptions& options)>
      open_reader = {};
  bool fingerprint = false;  // LoadedModel::fingerprint is needed
  // Receives the loaded share, from one thread at a time; may be empty.
  std::function<void(double)> on_progress = {};
  const std::atomic<bool>* cancelled = nullptr;  // true: the load ends as Cancelled
};

// The sizes that determine a device's memory, beside the weights: the maxima of every later
// transformer and cache.
struct DeviceSizes {
  int tokens_max = 64;     // T of one step
  int context_length = 0;  // tokens of a sequence
  int kv_blocks = 0;       // of the pool of the KV cache; 0: one sequence's
  // Scratch of attention: enough tokens at once to fill a device, but not a long context's whole
  // prompt.
  std::size_t attention_bytes = std::size_t{64} << 20;
  int logits_max = 1;   // tokens of one step whose logits may be requested
  int parts_max = 1;    // sequences that may share a step
  bool audits = false;  // there will be audits, although no predictor is loaded yet
};

// Const after Load except for the pool, which the decode thread uses.
struct LoadedModel {
  std::string path;
  std::string format;
  model::ModelConfig config;
  int context = 0;            // tokens of a sequence, from the options or ChooseContext
  bool kv_whole = false;      // as WorkSizes
  SamplingDefaults sampling;  // the makers' recommendation
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<base::WorkerPool> pool;
  std::unique_ptr<model::Weights> weights;
  std::unique_ptr<Adapters> adapters;  // null: none
  MemoryPlan memory;
  // The part of the model on flash; null: all of it is in memory. Modified only by the decode
  // thread.
  std::unique_ptr<store::NeuronStore> flash;
  std::unique_ptr<store::LayerStream> stream;
  std::unique_ptr<predictor::Predictors> predictors;  // of the cold side, if there are two sides
  std::unique_ptr<model::InputMajor> input_major;     // for mode inputs; null: none
  // The neurons that a hot side computes; null: there is no hot side.
  std::unique_ptr<ffn::NeuronSplit> split;
  std::unique_ptr<predictor::Predictors> hot_predictors;
  std::unique_ptr<ffn::HotExperts> hot_experts;          // of a mixture, instead of neurons
  std::unique_ptr<ffn::ExpertNetworks> expert_networks;  // null: experts are computed whole
  int hot_threads = 0;                                   // of a hot side on the CPU
  HotStats hot;                                          // as planned: no counts
  // The part of the model computed on a device; null: none. Only the decode thread uses the device.
  std::unique_ptr<device::Device> gpu;
  std::unique_ptr<gpu::DeviceModel> device;
  std::unique_ptr<gpu::DeviceForward> device_forward;
  std::unique_ptr<gpu::DeviceExperts> device_experts;  // of a mixture, instead of these two
  // The model file, kept open while a device holds weights that the host does not, so that they can
  // be uploaded again after the device fails, even if the file was replaced. Null otherwise.
  std::unique_ptr<model::ModelFile> file;
  std::optional<predictor::SideCar> side_car;
  std::string side_car_path;                   // "" = none was read
  std::vector<FfnMode> ffn_modes;              // [L] the modes of requests that do not choose any
  bool ffn_automatic = false;                  // they were chosen by measurement
  bool quantize_head = false, verify = false;  // as ModelOptions
  std::string weights_read;                    // how the file was read, as ConfigureFileReading
  FfnMode audit_shadow = FfnMode::kDense;      // as FfnPlan::shadow
  bool shadow_alone = false;                   // as FfnPlan's
  Ablation ablation = {};
  const kernels::OpTable* ops = nullptr;
  kernels::KvType kv_type = kernels::KvType::kF16;
  int prefetch_bytes = kernels::kPrefetchBytes;  // while decoding (FastestPrefetch)
  double load_s = 0;
  int step_tokens_max = 64;  // T of one call: from WorkSizes, or chosen
  std::string hash;          // model::Fingerprint; "" if it was not needed
  // The same with the sizes and times of the files, which a changed weight changes; "" likewise.
  std::string fingerprint;

  // The shape of a trace of neurons, or of experts.
  store::TraceWriter::Shape trace_shape() const {
    return {config.num_hidden_layers, config.units_per_layer(), hash};
  }
  // Figures of the flash tier; zeros without one. Decode thread only.
  FlashCounters flash_counters() const;

  // True if predictions may be audited.
  bool audits() const;
  // Drops the predictor of a shadow. Requires: shadow_alone.
  void DropShadow();
  // Switches gate and up to row layout, which split neurons need.
  void SetRows();
  // Moves the neurons of `hot` to a second partition of the CPU with its own kernel threads. Errors
  // as NeuronSplit::Move. Requires: no transformer is in use.
  Status SplitNeurons(ffn::NeuronIds hot_ids, int threads);
  // Keeps the predictors of the cold neurons only, and the norms of all, which audits of both sides
  // need. Requires: split.
  Status KeepColdPredictors();

  // The counters of the hot tier. Decode thread only. The second function allocates nothing:
  // `stats` is the result of an earlier call.
  HotStats hot_stats(const exec::Transformer& transformer) const;
  void UpdateHotStats(const exec::Transformer& transformer, HotStats& stats) const;

  // Puts layers, neurons and the head on a device, as the placement says, and frees the host's
  // memory of all matrices that only the device needs. Weights that the host does not have are read
  // from the file, a layer at a time. InvalidArgument for an impossible placement;
  // ResourceExhausted with a table of the device's memory, and then the model is unchanged;
  // Unavailable with the device's error; FailedPrecondition if whole layers are streamed from
  // flash; errors of the flash tier. Requires: no transformer is in use.
  //
  // `on_progress`: as LoadOptions.
  Status PlaceOnDevice(std::unique_ptr<device::Device> on, gpu::DevicePlacement placement,
                       const DeviceSizes& sizes,
                       const std::function<void(double)>& on_progress = {});

  // Bytes of the device's memory that such a placement needs, for planning; nothing is allocated
  // there. InvalidArgument for an impossible placement.
  struct DeviceBytes {
    std::size_t weights, work;  // work: KV cache and scratch
  };
  Result<DeviceBytes> MeasureOnDevice(device::Device& on, gpu::DevicePlacement placement,
                                      const DeviceSizes& sizes) const;

  // Only one at a time if there is a flash tier or a hot side. `workers`: separate kernel threads,
  // to run beside another transformer; null: `pool`.
  std::unique_ptr<exec::Transformer> MakeTransformer(int tokens_max, int context_length,
                                                     int logits_max = 1,
                                                     base::WorkerPool* workers = nullptr) const;
  // The modes that a request may choose for all layers.
  std::vector<FfnMode> OfferedModes() const;
  // The modes for a request with mode string `text` (as FfnModes; "" or "auto": ffn_modes), and for
  // mode inputs the maximum divergence `kl_max`; below 0: as loaded. InvalidArgument, or
  // FailedPrecondition for a mode that is not loaded or unavailable; the field is ffn_mode or
  // kl_max.
  // With an adapter that is applied all layers are in mode dense, and `text` may name no other one.
  // Requires: `adapter_scales` are as many as the adapters, or none.
  Result<RequestModes> ModesFor(const std::string& text, double kl_max = -1,
                                std::span<const float> adapter_scales = {}) const;
  Result<std::vector<FfnMode>> LayerModesFor(const std::string& text) const;
  // Sets these modes in the transformer's layers.
  void SetModes(exec::Transformer& transformer, const RequestModes& modes) const;

  // Makes a cache with its own pool.
  Result<std::unique_ptr<nn::KvCache>> MakeCache(int context_length) const {
    return nn::KvCache::Create(config, context_length, kv_type);
  }
};

// NotFound, InvalidArgument, DataLoss or Unimplemented, naming the file and its fault.
Result<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options);

// The kernels for `isa`, as ModelOptions::cpu_isa. InvalidArgument if the processor lacks it.
Result<const kernels::OpTable*> ChooseOps(const std::string& isa);

// Tokens of a prefill step: 64; for a mixture enough that each expert has 16 of them, at most 256,
// because each step reads the experts again.
int PrefillChunk(const model::ModelConfig& config);
// The type of the KV cache: floats for an encoder, whose cache lives for one step.
kernels::KvType KvTypeOf(const ModelOptions& options, const model::ModelConfig& config);

}  // namespace thermocline::load
