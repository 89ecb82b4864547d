// A hot side of experts on a device: experts of any layers, computed there while the CPU computes
// the others.
//
// The host gathers the input of each (expert, token), unit after unit, and all work runs over these
// rows: their 8-bit form, gate and up of each unit, one activation, down of each unit. The rows of
// the result are returned with a flag in mapped memory (device_hand_off.h).
#pragma once

#include <memory>
#include <vector>

#include "engine/base/stopwatch.h"
#include "engine/ffn/expert_partition.h"
#include "engine/ffn/hot_experts.h"
#include "engine/gpu/device_activations.h"
#include "engine/gpu/device_hand_off.h"

namespace thermocline::gpu {

// Decode thread only. Borrows the device and `hot`; owns its memory on the device and its stream.
// Must not be used after its first error.
class DeviceExperts final : public ffn::ExpertPartition {
 public:
  struct Params {
    device::Device& device;
    const model::ModelConfig& config;
    const model::Weights& weights;  // for their types and shapes
    const ffn::HotExperts& hot;
    int tokens_max;  // T of one step
  };
  // Bytes of device memory that it would use; nothing is allocated.
  static std::size_t BytesFor(const Params& params);
  // Upper bound of the bytes of host memory.
  static std::size_t HostBytes(const model::ModelConfig& config, int tokens_max);
  // Allocates, and copies the experts. ResourceExhausted as DeviceArena::Allocate; Unavailable with
  // the device's error; errors of the flash tier.
  static Result<std::unique_ptr<DeviceExperts>> Create(const Params& params);

  std::size_t bytes() const { return weights_.bytes() + work_.bytes(); }
  int tokens_max() const { return p_.tokens_max; }

  bool Has(int layer, int expert) const override { return p_.hot.Has(layer, expert); }
  void Start(const Job& job) override;
  Result<const float*> Await() override;
  double busy_s() const override { return busy_s_; }

 private:
  // A layer's matrices of hot experts, in the order of their ids.
  struct Layer {
    std::uint8_t *gate = nullptr, *up = nullptr, *down = nullptr;
    float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
    std::vector<int> slots;  // [E] index in this order
  };

  explicit DeviceExperts(const Params& params);
  Status Upload();
  Status UploadBiases(DeviceUploader& uploader, int layer, int expert) const;
  // Enqueues the job on the stream.
  Status Put(const Job& job);
  Status PutUnit(int layer, const ffn::ExpertUnit& unit) const;
  Status PutDown(int layer, const ffn::ExpertUnit& unit) const;
  Status Multiply(const model::Linear& matrix, const kernels::DeviceActivations& x, int tokens,
                  float* out) const;
  Status Check(kernels::DeviceError error, const char* what) const {
    return p_.device.Check(error, what);
  }

  const Params p_;
  std::unique_ptr<device::DeviceStream> stream_;
  std::vector<Layer> layers_;  // [L]
  DeviceArena weights_{"experts"}, work_{"rows of experts"};
  kernels::DeviceActivations x_, h_;    // [T K, D], [T K, f]
  float *up_ = nullptr, *y_ = nullptr;  // [T K, f], [T K, D]
  device::MappedBuffer mapped_;         // [2, T K, D] input and result
  DeviceHandOff flags_;
  Status status_;
  base::Stopwatch busy_;
  double busy_s_ = 0;
};

}  // namespace thermocline::gpu
