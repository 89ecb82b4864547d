#include "engine/load/this_machine.h"

#include <algorithm>

#include "engine/base/json_cache.h"
#include "engine/base/log.h"
#include "engine/base/system_memory.h"
#include "engine/load/calibration.h"
#include "engine/load/device_calibration.h"
#include "engine/model/weights/weight_plan.h"
#include "engine/store/device_probe.h"

namespace thermocline::load {
namespace {

constexpr double kReadBytes = 8 << 10;  // about a neuron at four bits

// Describes the experts of the first layer that has some.
Status DescribeExperts(const model::Weights& weights, int hidden_size, CalibrationOptions& out) {
  for (const model::LayerWeights& l : weights.layers) {
    const model::ExpertWeights& e = l.experts;
    if (!e.any()) continue;
    out.network_bytes += e.bytes();
    const kernels::DType up = e.up.weight.type;
    out.types = {.gate = e.gate.weight.rows > 0 ? e.gate.weight.type : up,
                 .up = up,
                 .down = kernels::SummableType(e.down.weight.type, hidden_size),
                 .dense = l.attn_output.weight.type,
                 .dense_bytes = std::max<std::size_t>(1, l.attn_output.weight.bytes())};
  }
  return OkStatus();
}

// A dense network as large as the weights a token reads of a mixture's layer; dense models are
// unchanged.
model::ModelConfig DenseLike(const model::ModelConfig& config) {
  model::ModelConfig out = config;
  if (!config.experts.any()) return out;
  out.intermediate_size = config.experts.num_experts_per_tok * config.experts.intermediate_size;
  out.experts = {};
  return out;
}

// Describes the model's matrices with their types in memory, and the bytes of its networks.
Status Describe(const model::ModelFile& file, CalibrationOptions& out) {
  model::Weights weights;
  const model::LoadWeightsOptions load;
  model::WeightPlan plan(file, load, weights);
  RETURN_IF_ERROR(plan.Make());
  if (file.config.experts.any()) return DescribeExperts(weights, file.config.hidden_size, out);
  const model::LayerWeights& w = weights.FirstNetwork();
  const bool gated = w.gate.linear.weight.rows > 0, rows = w.down_rows.rows > 0;
  const kernels::DType up = w.up.linear.weight.type;
  out.types = {.gate = gated ? w.gate.linear.weight.type : up,
               .up = up,
               .down = rows ? w.down_rows.type
                            : kernels::SummableType(w.down.weight.type, file.config.hidden_size),
               .dense = w.q.weight.type,
               .dense_bytes = w.q.weight.bytes() + w.k.weight.bytes() + w.v.weight.bytes() +
                              w.attn_output.weight.bytes()};
  for (const model::LayerWeights& l : weights.layers) {
    out.network_bytes += l.gate.linear.weight.bytes() + l.up.linear.weight.bytes() +
                         l.down.weight.bytes() + l.down_rows.bytes();
  }
  return OkStatus();
}

}  // namespace

Result<SideThreads> ShareThreads(int all, int asked) {
  if (all < 2 || asked >= all) {
    return base::InvalidArgument("a second partition of the CPU needs threads of its own: ", asked,
                                 " were asked for it, of ", all,
                                 " for both sides; give more threads");
  }
  const int hot = asked > 0 ? asked : all / 2;
  return SideThreads{all - hot, hot};
}

namespace {

// The CPU's figures beside the device's, both cached.
Result<placement::Machine> DeviceMachine(const model::ModelFile& file,
                                         const std::string& model_hash, CalibrationOptions cpu,
                                         const ThisMachineOptions& o) {
  cpu.cold_threads = o.threads;
  cpu.hot_threads = 0;
  ASSIGN_OR_RETURN(placement::Machine machine,
                   CpuMachine(DenseLike(file.config), model_hash, cpu, o.hot.calibrate));
  ASSIGN_OR_RETURN(const auto memory, o.device->FreeMemory());
  const std::string key = StrCat(machine.key, "|", o.device->Describe());
  const base::JsonCache cache("machine", key);
  const auto json = o.hot.calibrate ? std::nullopt : cache.Read();
  auto known = json.has_value() ? placement::Machine::FromJson(*json)
                                : Result<placement::Machine>(base::NotFound("not measured"));
  if (known.ok()) {
    machine = *std::move(known);
  } else {
    ASSIGN_OR_RETURN(machine, WithDevice(std::move(machine), *o.device, DenseLike(file.config),
                                         {.types = cpu.types, .network_bytes = cpu.network_bytes}));
    machine.key = key;
    const Status kept = cache.Write(machine.ToJson());
    if (!kept.ok()) base::LogWarning("what the GPU can do is not remembered: ", kept.message());
  }
  const std::int64_t free = memory.free;
  machine.hot_bytes = o.hot.bytes > 0 ? std::min(o.hot.bytes, free) : free;
  return machine;
}

Result<placement::Machine> PartitionMachine(const model::ModelFile& file,
                                            const std::string& model_hash, CalibrationOptions cpu,
                                            const ThisMachineOptions& o) {
  ASSIGN_OR_RETURN(const SideThreads threads, ShareThreads(o.threads, o.hot.threads));
  cpu.cold_threads = threads.cold;
  cpu.hot_threads = threads.hot;
  ASSIGN_OR_RETURN(placement::Machine machine,
                   CpuMachine(DenseLike(file.config), model_hash, cpu, o.hot.calibrate));
  machine.hot_bytes = o.hot.bytes;
  return machine;
}

}  // namespace

void ScaleToExperts(placement::Machine& machine) {
  machine.hot_homes = false;
  if (!machine.unified) return;
  machine.hot.reset();
  machine.unified = false;
}

Result<placement::Machine> ThisMachine(const model::ModelFile& file, const std::string& model_hash,
                                       const ThisMachineOptions& o) {
  CalibrationOptions cpu{.ops = o.ops};
  RETURN_IF_ERROR(Describe(file, cpu));
  cpu.network_bytes = std::min(cpu.network_bytes, o.measuring_bytes_max);
  ASSIGN_OR_RETURN(placement::Machine machine, o.device != nullptr
                                                   ? DeviceMachine(file, model_hash, cpu, o)
                                                   : PartitionMachine(file, model_hash, cpu, o));
  machine.memory_bytes = base::MemoryBudget();
  if (o.flash) {
    ASSIGN_OR_RETURN(const store::Curve curve, store::DeviceCurve(file.path, {}));
    machine.flash_reads_per_s = curve.Bandwidth(kReadBytes) / kReadBytes;
    machine.flash_bytes_per_s = curve.SequentialBandwidth();
  }
  return machine;
}

}  // namespace thermocline::load
