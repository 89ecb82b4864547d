#include "engine/gpu/device_home_layers.h"

#include <algorithm>
#include <cstring>

#include "engine/nn/offset.h"

namespace thermocline::gpu {
namespace {

constexpr int kGraphTokensMax = 16;  // the maximum of a verification

}  // namespace

DeviceHomeLayers::DeviceHomeLayers(const Params& p)
    : model_(p.model),
      ffn_(p.ffn),
      health_(p.health),
      layers_(p.model.placement().home_layers),
      kv_({.config = p.model.config(),
           .layers = layers_,
           .blocks = p.kv_blocks,
           .type = p.kv_type}),
      step_({.hidden_size = p.model.config().hidden_size,
             .tokens_max = p.tokens_max,
             .context_length = p.context_length,
             .parts_max = p.parts_max,
             .returns_residual = !p.model.placement().head},
            work_),
      taps_(p.model, p.audits),
      shared_(MakeShared(p)),
      layer_({.attention = {.model = p.model,
                            .kv = kv_,
                            .tokens_max = p.tokens_max,
                            .context_length = p.context_length,
                            .scratch_bytes = p.attention_bytes},
              .step = step_,
              .taps = taps_,
              .ffn = p.ffn,
              .shared = shared_ != nullptr ? &shared_->device : nullptr},
             work_),
      modes_(layers_),
      graphs_(2 * 3 * kGraphTokensMax),
      ffn_counters_(modes_.size()) {
  if (p.model.placement().head) head_.emplace(p.model, p.logits_max, work_);
}

std::unique_ptr<DeviceHomeLayers::Shared> DeviceHomeLayers::MakeShared(const Params& p) {
  const std::vector<DeviceLayer>& all = model_.layers();
  if (std::none_of(all.begin(), all.end(), [](const auto& l) { return l.shared; })) return nullptr;
  return std::make_unique<Shared>(p, work_);
}

DeviceHomeLayers::Shared::Shared(const Params& p, DeviceArena& arena)
    : exchange({.device = p.model.device(),
                .tokens_max = p.tokens_max,
                .hidden_size = p.model.config().hidden_size,
                .runs = p.ffn.runs()}),
      device({.model = p.model, .ffn = p.ffn, .exchange = exchange, .tokens_max = p.tokens_max},
             arena),
      host({.model = p.model, .ops = p.cpu, .exchange = exchange, .tokens_max = p.tokens_max}) {}

Status DeviceHomeLayers::Allocate() {
  device::DeviceStream& stream = model_.stream();
  RETURN_IF_ERROR(kv_.Allocate(stream));
  RETURN_IF_ERROR(work_.Allocate(model_.device()));
  ASSIGN_OR_RETURN(DeviceUploader uploader, DeviceUploader::Create(stream));
  RETURN_IF_ERROR(work_.Upload(uploader, stream));
  RETURN_IF_ERROR(step_.Allocate(model_.device()));
  RETURN_IF_ERROR(taps_.Allocate());
  if (head_.has_value()) RETURN_IF_ERROR(head_->Allocate());
  return shared_ != nullptr ? shared_->exchange.Allocate() : OkStatus();
}

void DeviceHomeLayers::DropGraphs() {
  for (auto& graph : graphs_) graph.Drop();
}

void DeviceHomeLayers::Release() {
  if (shared_ != nullptr) shared_->exchange.Release();
}

Result<std::span<const float>> DeviceHomeLayers::Run(const Step& step, ffn::SparseFfn& cold) {
  const Status status = RunStep(step, cold);
  if (!status.ok()) health_.Fail(status);
  RETURN_IF_ERROR(status);
  if (shared_ != nullptr) RETURN_IF_ERROR(shared_->host.EndStep());
  return head_.has_value() ? head_->logits(step.logits) : std::span<const float>();
}

Status DeviceHomeLayers::RunStep(const Step& step, ffn::SparseFfn& cold) {
  device::DeviceStream& stream = model_.stream();
  if (shared_ != nullptr) {
    shared_->device.BeginStep();
    shared_->host.BeginStep();
  }
  for (const DevicePart& part : step.parts) RETURN_IF_ERROR(kv_.Follow(*part.cache, stream));
  RETURN_IF_ERROR(step_.Send(step.parts, kv_, step.residual, stream));
  RETURN_IF_ERROR(SetModes(step, cold));
  taps_.Open(step.auditor, cold);
  RETURN_IF_ERROR(IsReplayed(step) ? Replay(step, cold) : Prefill(step, cold));
  RETURN_IF_ERROR(stream.Synchronize());
  if (shared_ != nullptr) RETURN_IF_ERROR(shared_->exchange.flags().CheckWaits());
  taps_.Keep(cold);
  if (step.decoded) Count(step);
  if (head_.has_value()) return OkStatus();
  std::memcpy(step.residual, step_.result().data(),
              Area(step.tokens, model_.config().hidden_size) * sizeof(float));
  return OkStatus();
}

Status DeviceHomeLayers::SetModes(const Step& step, const ffn::SparseFfn& cold) {
  for (int l = 0; l < layers_; ++l) {
    const ffn::FfnPolicy policy = cold.PolicyFor(l, step.lossless);
    // As in SparseFfn, larger steps are computed without loss. Exact gives the bits of dense.
    const bool whole = policy.mode == FfnMode::kDense || step.tokens > ffn::kSparseTokensMax;
    modes_[l] = whole ? FfnMode::kExact : policy.mode;
    if (!whole) RETURN_IF_ERROR(ffn_.SetShift(l, policy));
  }
  return OkStatus();
}

// Index of the graph: by number of tokens, and by logits of no token, of the last, or of all; and
// once more with open taps.
int DeviceHomeLayers::GraphOf(const Step& step) const {
  const int logits = head_.has_value() ? step.logits : 0;
  const int end = logits == 0 ? 0 : logits == step.tokens ? 1 : 2;
  return 3 * (kGraphTokensMax * (taps_.open() ? 1 : 0) + step.tokens - 1) + end;
}

bool DeviceHomeLayers::IsReplayed(const Step& step) const {
  const bool last = step.logits == 0 || (step.logits == 1 && step.parts.size() == 1);
  const bool ends = !head_.has_value() || last || step.logits == step.tokens;
  return step.tokens <= kGraphTokensMax && ends;
}

Status DeviceHomeLayers::Replay(const Step& step, ffn::SparseFfn& cold) {
  const auto put = [&]() -> Status {
    for (int l = 0; l < layers_; ++l) RETURN_IF_ERROR(layer_.Put(l, step.tokens, modes_[l], {}));
    return PutEnd(step);
  };
  auto& graph = graphs_[GraphOf(step)];
  RETURN_IF_ERROR(graph.Launch(model_.stream(), modes_, put));
  for (int l = 0; l < layers_; ++l) {
    if (model_.layer(l).shared)
      RETURN_IF_ERROR(shared_->host.Serve({l, step.tokens, step.lossless, step.decoded, cold}));
  }
  return OkStatus();
}

Status DeviceHomeLayers::Prefill(const Step& step, ffn::SparseFfn& cold) {
  int layer = 0;
  const DeviceSharedFfn::OnStream serve = [&](int first) {
    return shared_->host.ServeFrom({layer, step.tokens, step.lossless, step.decoded, cold}, first);
  };
  for (; layer < layers_; ++layer)
    RETURN_IF_ERROR(layer_.Put(layer, step.tokens, modes_[layer], serve));
  return PutEnd(step);
}

Status DeviceHomeLayers::PutEnd(const Step& step) {
  if (step.tokens <= kGraphTokensMax) RETURN_IF_ERROR(ffn_.ReadCounts(0, layers_));
  if (!head_.has_value()) return step_.Return(step.tokens, model_.stream());
  if (step.logits == 0) return OkStatus();
  const bool together = step.parts.size() == 1 || step.logits == step.tokens;
  if (!together) RETURN_IF_ERROR(GatherRows(step));
  const int first = together ? step.tokens - step.logits : 0;
  return head_->Put(step_.residual() + nn::Offset(first, model_.config().hidden_size), step.logits);
}

// Moves the residuals whose logits are needed to the front.
Status DeviceHomeLayers::GatherRows(const Step& step) {
  const int d = model_.config().hidden_size;
  int to = 0, end = 0;
  for (const DevicePart& part : step.parts) {
    end += part.tokens;
    for (int from = end - part.rows; from < end; ++from, ++to) {
      if (from == to) continue;
      RETURN_IF_ERROR(model_.stream().CopyOnDevice(step_.residual() + nn::Offset(to, d),
                                                   step_.residual() + nn::Offset(from, d),
                                                   static_cast<std::size_t>(d) * sizeof(float)));
    }
  }
  return OkStatus();
}

ffn::HybridCounters DeviceHomeLayers::counters() const {
  ffn::HybridCounters all;
  if (shared_ != nullptr) all = shared_->host.counters();
  all.hot = hot_;
  return all;
}

void DeviceHomeLayers::Count(const Step& step) {
  for (int l = 0; l < layers_; ++l) {
    const DeviceLayer& w = model_.layer(l);
    ffn::FfnCounters& c = ffn_counters_[l];
    ++c.steps;
    if (!w.has_rows()) {
      c.computed += step.tokens;
      CountWhole(l, c);
      continue;
    }
    // Several batches of a step's tokens overwrite one another's counts, so all neurons are
    // counted.
    const int batch = w.shared ? ffn::kShareTokens : kGraphTokensMax;
    const DeviceFfn::Counts found = step.tokens > batch ? ffn_.all(l) : ffn_.counts(l);
    ffn_.AddCounts(l, modes_[l], found, step.tokens, c);
    if (!w.shared) continue;
    ++hot_.steps;
    hot_.active += found.live;
  }
}

// Counts a layer without down rows, which is computed densely.
void DeviceHomeLayers::CountWhole(int layer, ffn::FfnCounters& to) const {
  const std::int64_t f = model_.config().intermediate_size;
  const model::LayerWeights& dense = model_.layer(layer).dense;
  to.gate_rows += f;
  to.up_rows += dense.gate.linear.weight.rows > 0 ? f : 0;
  to.down_rows += f;
  to.bytes +=
      dense.gate.linear.weight.bytes() + dense.up.linear.weight.bytes() + dense.down.weight.bytes();
}

}  // namespace thermocline::gpu
