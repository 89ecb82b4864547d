#include "engine/load/device_calibration.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_hand_off.h"
#include "engine/predictor/subset.h"

namespace thermocline::load {
namespace {

using placement::Machine;

constexpr float kNonePredicted = 1e9F;
constexpr std::size_t kDeviceBytesMax = std::size_t{1} << 30;  // beyond every cache
constexpr std::size_t kLinkBytes = gpu::DeviceUploader::kPieceBytes;
constexpr int kExchanges = 50;  // per graph

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Work recorded as a graph, and the time of one run.
class Timed {
 public:
  static Result<Timed> Record(device::DeviceStream& stream, const std::function<Status()>& put) {
    RETURN_IF_ERROR(stream.BeginGraph());
    const Status done = put();
    auto graph = stream.EndGraph();
    RETURN_IF_ERROR(done);
    Timed timed(stream);
    ASSIGN_OR_RETURN(timed.graph_, std::move(graph));
    ASSIGN_OR_RETURN(timed.begin_, device::DeviceEvent::Create(stream.device()));
    ASSIGN_OR_RETURN(timed.end_, device::DeviceEvent::Create(stream.device()));
    return timed;
  }
  // Median seconds of a run, over `seconds`; `meanwhile` runs on this thread during each.
  Result<double> Measure(double seconds, const std::function<Status()>& meanwhile = {}) {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration<double>(seconds);
    std::vector<double> runs;
    do {
      RETURN_IF_ERROR(begin_->Record(stream_));
      RETURN_IF_ERROR(stream_.Launch(*graph_));
      RETURN_IF_ERROR(end_->Record(stream_));
      if (meanwhile) RETURN_IF_ERROR(meanwhile());
      RETURN_IF_ERROR(end_->Wait());
      ASSIGN_OR_RETURN(const float ms, end_->MillisecondsSince(*begin_));
      runs.push_back(ms / 1e3);
    } while (Clock::now() < until || runs.size() < 3);
    return Median(std::move(runs));
  }

 private:
  explicit Timed(device::DeviceStream& stream) : stream_(stream) {}

  device::DeviceStream& stream_;
  std::unique_ptr<device::DeviceGraph> graph_;
  std::unique_ptr<device::DeviceEvent> begin_, end_;
};

// A synthetic network on the device, all its layers in one graph.
class DeviceRig {
 public:
  // Places the first `neurons` neurons of each layer on the device.
  static Result<std::unique_ptr<DeviceRig>> Create(device::Device& device,
                                                   const SyntheticNetwork& network, int neurons) {
    gpu::DevicePlacement placement;
    placement.home_layers = network.config.num_hidden_layers;
    std::vector<int> ids(neurons);
    std::iota(ids.begin(), ids.end(), 0);
    placement.hot.assign(network.weights.layers.size(), ids);
    ASSIGN_OR_RETURN(auto predictors, predictor::SubsetOf(network.predictors, placement.hot));
    ASSIGN_OR_RETURN(auto model, gpu::DeviceModel::Create({.device = device,
                                                           .config = network.config,
                                                           .weights = network.weights,
                                                           .predictors = std::move(predictors),
                                                           .placement = std::move(placement)}));
    for (int l = 0; l < network.config.num_hidden_layers; ++l) {
      RETURN_IF_ERROR(model->UploadDense(l, network.weights.layers[l]));
      RETURN_IF_ERROR(model->UploadNeurons(l, network.weights.layers[l]));
    }
    model->Uploaded();
    auto rig = std::unique_ptr<DeviceRig>(new DeviceRig(std::move(model), network.dense));
    RETURN_IF_ERROR(rig->Allocate());
    return rig;
  }

  // Median seconds of a layer.
  Result<double> Layer(ffn::FfnPolicy policy, double seconds) {
    RETURN_IF_ERROR(SetPolicy(policy));
    ASSIGN_OR_RETURN(
        Timed timed, Timed::Record(stream(), [&]() -> Status {
          for (int l = 0; l < layers(); ++l)
            RETURN_IF_ERROR(ffn_.Run(l, policy.mode, {hidden_, hidden_.x, 1}, {out_, false}));
          return OkStatus();
        }));
    ASSIGN_OR_RETURN(const double all, timed.Measure(seconds));
    return all / layers();
  }
  // The live neurons of the first layer.
  Result<int> Live(ffn::FfnPolicy policy) {
    RETURN_IF_ERROR(SetPolicy(policy));
    RETURN_IF_ERROR(ffn_.Find(0, policy.mode, {hidden_, hidden_.x, 1}));
    RETURN_IF_ERROR(ffn_.ReadCounts(0, 1));
    RETURN_IF_ERROR(stream().Synchronize());
    return ffn_.counts(0).live;
  }
  // Bytes a second of matrices in panels.
  Result<double> DenseRate(double seconds) {
    double bytes = 0;
    ASSIGN_OR_RETURN(
        Timed timed, Timed::Record(stream(), [&]() -> Status {
          for (int l = 0; l < layers(); ++l) {
            const kernels::PackedMatrix& w = dense_[l];
            bytes += static_cast<double>(w.bytes());
            RETURN_IF_ERROR(model_->device().Check(
                model_->ops().dense.gemm({.gemm = {.weights = w,
                                                   .activations = hidden_.view(),
                                                   .tokens = 1,
                                                   .out = dense_out_,
                                                   .out_stride = w.rows,
                                                   .panel_begin = 0,
                                                   .panel_end = kernels::NumPanels(w.rows)}},
                                         stream().handle()),
                "a product"));
          }
          return OkStatus();
        }));
    ASSIGN_OR_RETURN(const double all, timed.Measure(seconds));
    return bytes / std::max(1e-9, all);
  }

 private:
  DeviceRig(std::unique_ptr<gpu::DeviceModel> model,
            const std::vector<kernels::PackedMatrix>& dense)
      : model_(std::move(model)), ffn_({.model = *model_, .tokens_max = 1}), dense_(dense) {
    for (kernels::PackedMatrix& matrix : dense_)
      work_.Add(&matrix.data, matrix.bytes(), std::exchange(matrix.data, nullptr));
    work_.Add(&dense_out_, dense_[0].rows);
    gpu::AddActivations(work_, 1, model_->config().hidden_size, &hidden_);
    work_.Add(&out_, model_->config().hidden_size);
  }
  Status Allocate() {
    RETURN_IF_ERROR(ffn_.Allocate());
    RETURN_IF_ERROR(work_.Allocate(model_->device()));
    ASSIGN_OR_RETURN(gpu::DeviceUploader uploader, gpu::DeviceUploader::Create(stream()));
    RETURN_IF_ERROR(work_.Upload(uploader, stream()));
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> x(model_->config().hidden_size);
    for (float& value : x) value = normal(random);
    RETURN_IF_ERROR(uploader.Copy(hidden_.x, x.data(), x.size() * sizeof(float)));
    if (hidden_.q == nullptr) return OkStatus();
    return model_->device().Check(
        model_->ops().dense.quantize({.x = hidden_, .tokens = 1}, stream().handle()),
        "rounding the input");
  }
  Status SetPolicy(const ffn::FfnPolicy& policy) {
    for (int l = 0; l < layers(); ++l) RETURN_IF_ERROR(ffn_.SetShift(l, policy));
    return OkStatus();
  }
  int layers() const { return model_->config().num_hidden_layers; }
  device::DeviceStream& stream() { return model_->stream(); }

  std::unique_ptr<gpu::DeviceModel> model_;
  gpu::DeviceFfn ffn_;
  gpu::DeviceArena work_{"dense matrices, input and output"};
  kernels::DeviceActivations hidden_;  // [1, D]
  float* out_ = nullptr;               // [1, D]
  std::vector<kernels::PackedMatrix> dense_;
  float* dense_out_ = nullptr;
};

// A layer with about `share` of the neurons live.
Result<Side> WithLive(DeviceRig& rig, double share, int neurons, double seconds) {
  ffn::FfnPolicy policy{.mode = FfnMode::kThreshold, .shift = 0};
  float low = 0, high = 16;
  for (int i = 0; i < 14; ++i) {
    policy.shift = (low + high) / 2;
    ASSIGN_OR_RETURN(const int live, rig.Live(policy));
    (live > share * neurons ? low : high) = policy.shift;
  }
  ASSIGN_OR_RETURN(const double took, rig.Layer(policy, seconds));
  ASSIGN_OR_RETURN(const int live, rig.Live(policy));
  return Side{took, static_cast<double>(live)};
}

// Seconds until the device has the CPU's answer to data that it published.
Result<double> RoundTrip(device::Device& device, double seconds) {
  gpu::DeviceHandOff hand_off(device);
  RETURN_IF_ERROR(hand_off.Allocate());
  ASSIGN_OR_RETURN(const auto stream, device::DeviceStream::Create(device));
  ASSIGN_OR_RETURN(Timed timed, Timed::Record(*stream, [&]() -> Status {
                     for (int i = 0; i < kExchanges; ++i) {
                       RETURN_IF_ERROR(hand_off.Begin(*stream));
                       RETURN_IF_ERROR(hand_off.Publish(*stream, gpu::DeviceHandOff::kDeviceMaxima,
                                                        nullptr, nullptr, nullptr, 0));
                       RETURN_IF_ERROR(hand_off.Await(*stream, gpu::DeviceHandOff::kHostMaxima));
                     }
                     return OkStatus();
                   }));
  ASSIGN_OR_RETURN(const double all, timed.Measure(seconds, [&]() -> Status {
    for (int i = 0; i < kExchanges; ++i) {
      hand_off.Begin();
      RETURN_IF_ERROR(hand_off.Wait(gpu::DeviceHandOff::kDeviceMaxima));
      hand_off.Raise(gpu::DeviceHandOff::kHostMaxima);
    }
    return OkStatus();
  }));
  return all / kExchanges;
}

Result<double> LinkRate(device::Device& device, double seconds) {
  ASSIGN_OR_RETURN(const auto stream, device::DeviceStream::Create(device));
  ASSIGN_OR_RETURN(const auto pinned, device::MappedBuffer::Allocate(device, "copies", kLinkBytes));
  ASSIGN_OR_RETURN(const auto memory, device::DeviceBuffer::Allocate(device, "copies", kLinkBytes));
  ASSIGN_OR_RETURN(Timed timed, Timed::Record(*stream, [&] {
                     return stream->CopyToDevice(memory.data(), pinned.host<std::byte>(),
                                                 kLinkBytes);
                   }));
  ASSIGN_OR_RETURN(const double took, timed.Measure(seconds));
  return static_cast<double>(kLinkBytes) / std::max(1e-9, took);
}

}  // namespace

Result<Machine> WithDevice(Machine machine, device::Device& device, const model::ModelConfig& model,
                           const DeviceCalibrationOptions& options) {
  ASSIGN_OR_RETURN(const auto memory, device.FreeMemory());
  const std::size_t bytes = std::min({kDeviceBytesMax, options.network_bytes, memory.free / 2});
  ASSIGN_OR_RETURN(const auto network, MakeSyntheticNetwork(model, options.types, bytes));
  const ffn::FfnPolicy nothing{.mode = FfnMode::kThreshold, .shift = kNothingLive},
      none_predicted{.mode = FfnMode::kSign, .shift = kNonePredicted};
  const double part = options.seconds / 9;
  Passes passes{};
  {
    ASSIGN_OR_RETURN(
        const auto few,
        DeviceRig::Create(device, *network, std::min(kFewNeurons, model.intermediate_size)));
    ASSIGN_OR_RETURN(passes.few.seconds, few->Layer(nothing, part));
  }
  const int neurons = model.intermediate_size;
  ASSIGN_OR_RETURN(const auto rig, DeviceRig::Create(device, *network, neurons));
  ASSIGN_OR_RETURN(passes.decided.seconds, rig->Layer(nothing, part));
  ASSIGN_OR_RETURN(passes.predicting.seconds, rig->Layer(none_predicted, part));
  ASSIGN_OR_RETURN(passes.some, WithLive(*rig, kLiveFew, neurons, part));
  ASSIGN_OR_RETURN(passes.many, WithLive(*rig, kLiveMany, neurons, part));
  // Mode dense reads the same bytes as exact on a device.
  ASSIGN_OR_RETURN(passes.whole.seconds, rig->Layer({.mode = FfnMode::kExact}, part));
  placement::Processor hot = Derive(network->weights.layers[0], passes, neurons);
  ASSIGN_OR_RETURN(hot.dense_bytes_per_s, rig->DenseRate(part));
  // A shared layer sends its input, exchanges maxima both ways at once, and fetches the sums: one
  // and a half round trips, which placement counts as two waits.
  ASSIGN_OR_RETURN(const double round_trip, RoundTrip(device, part));
  machine.sync_s = 0.75 * round_trip;
  ASSIGN_OR_RETURN(machine.link_bytes_per_s, LinkRate(device, part));
  machine.hot = hot;
  machine.hot_homes = true;
  machine.hot_bytes = memory.free;
  machine.unified = device.properties().unified;
  machine.name = StrCat(device.Describe(), "; ", machine.name);
  return machine;
}

}  // namespace thermocline::load
