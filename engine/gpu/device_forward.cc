// Steps, graphs and faults; what is put on the stream is in device_forward_layers.cc, layers shared
// with the CPU in device_forward_shared.cc.
#include "engine/gpu/device_forward.h"

#include <algorithm>
#include <cstring>

#include "engine/base/log.h"
#include "engine/gpu/device_partition.h"

namespace thermocline::gpu {
namespace {

std::size_t Area(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

std::size_t Aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t HomeBlockBytes(const DeviceModel& model, kernels::KvType type) {
  const model::ModelConfig& c = model.config();
  return Area(model.placement().home_layers, c.num_key_value_heads) *
         (kernels::KeyBlockBytes(type, c.head_dim) + kernels::ValueBlockBytes(type, c.head_dim));
}

}  // namespace

DeviceForward::DeviceForward(Params p)
    : model_(p.model),
      config_(p.model.config()),
      ops_(p.model.ops()),
      cpu_(p.cpu),
      tokens_max_(p.tokens_max),
      logits_max_(p.logits_max),
      context_length_(p.context_length),
      kv_blocks_(p.kv_blocks),
      kv_type_(p.kv_type),
      attention_bytes_(p.attention_bytes),
      reload_(std::move(p.reload)),
      runs_(kernels::NumSumRuns(config_.intermediate_size)),
      block_bytes_(HomeBlockBytes(p.model, p.kv_type)),
      table_at_(Aligned(Area(tokens_max_, sizeof(std::int32_t)))),
      residual_at_(table_at_ + Aligned(Area(nn::BlocksFor(context_length_), sizeof(void*)))),
      ffn_({.model = p.model, .tokens_max = p.tokens_max}),
      hand_off_(p.model.device()),
      modes_(static_cast<std::size_t>(p.model.placement().home_layers)),
      ffn_counters_(p.model.layers().size()) {
  for (TokenGraph& each : graphs_) each.modes.reserve(modes_.size());
  const std::vector<DeviceLayer>& layers = model_.layers();
  shares_ = std::any_of(layers.begin(), layers.end(), [](const auto& l) { return l.shared; });
  if (std::any_of(layers.begin(), layers.end(),
                  [](const auto& l) { return !l.home && l.neurons > 0; }))
    partition_ = std::make_unique<DevicePartition>(
        DevicePartition::Params{model_, ffn_, *this, tokens_max_});
  if (home_layers() > 0) Plan();
}

std::size_t DeviceForward::BytesFor(Params params) {
  const DeviceForward planned(std::move(params));
  return planned.ffn_.bytes() + planned.work_.bytes() +
         (planned.partition_ != nullptr ? planned.partition_->bytes() : 0) +
         planned.block_bytes_ * static_cast<std::size_t>(planned.kv_blocks_);
}

DeviceForward::~DeviceForward() = default;

Result<std::unique_ptr<DeviceForward>> DeviceForward::Create(Params params) {
  auto forward = std::unique_ptr<DeviceForward>(new DeviceForward(std::move(params)));
  RETURN_IF_ERROR(forward->Allocate());
  return forward;
}

void DeviceForward::Plan() {
  const model::ModelConfig& c = config_;
  const int t = tokens_max_, d = c.hidden_size, q_dim = c.num_attention_heads * c.head_dim,
            kv_dim = c.num_key_value_heads * c.head_dim;
  work_.Add(&step_, residual_at_ + Area(t, d) * sizeof(float));
  AddActivations(work_, t, d, &hidden_);
  AddActivations(work_, t, q_dim, &q_);
  AddActivations(work_, t, q_dim, &attention_);
  work_.Add(&k_, Area(t, kv_dim));
  work_.Add(&v_, Area(t, kv_dim));
  if (c.architecture->parallel_block) {
    work_.Add(&attention_out_, Area(t, d));
    work_.Add(&ffn_out_, Area(t, d));
  }
  const std::size_t per_token =
      kernels::AttentionScratchFloats(1, context_length_, c.num_attention_heads, c.head_dim);
  attention_tokens_ = static_cast<int>(std::clamp<std::size_t>(
      attention_bytes_ / sizeof(float) / per_token, 1, static_cast<std::size_t>(t)));
  work_.Add(&attention_scratch_, per_token * static_cast<std::size_t>(attention_tokens_));
  if (c.rotary()) {
    nn::FillRope(c.rope, context_length_, host_cos_, host_sin_);
    work_.Add(&cos_, host_cos_.size(), host_cos_.data());
    work_.Add(&sin_, host_sin_.size(), host_sin_.data());
  }
  if (head()) {
    AddActivations(work_, 2 * logits_max_, d, &head_x_);
    work_.Add(&logits_, Area(2 * logits_max_, c.vocab_size));
  }
  if (!shares_) return;
  const std::size_t sums = Area(ffn::kShareTokens * runs_, d);
  work_.Add(&other_limits_, sums / 32);
  work_.Add(&other_minimums_, sums / 32);
  work_.Add(&other_high_, sums);
  work_.Add(&other_low_, sums);
  work_.Add(&other_out_, Area(t, d));
  cold_hidden_.Resize(t, d);
  limits_.resize(sums / 32);
}

Status DeviceForward::Allocate() {
  device::Device& device = model_.device();
  device::DeviceStream& stream = model_.stream();
  const std::size_t d = static_cast<std::size_t>(config_.hidden_size);
  RETURN_IF_ERROR(ffn_.Allocate());
  if (partition_ != nullptr) RETURN_IF_ERROR(partition_->Allocate());
  if (home_layers() == 0) return OkStatus();
  ASSIGN_OR_RETURN(
      kv_, device::DeviceBuffer::Allocate(device, "keys and values",
                                          block_bytes_ * static_cast<std::size_t>(kv_blocks_)));
  RETURN_IF_ERROR(stream.Fill(kv_.data(), 0, kv_.bytes()));
  RETURN_IF_ERROR(work_.Allocate(device));
  ASSIGN_OR_RETURN(DeviceUploader uploader, DeviceUploader::Create(stream));
  RETURN_IF_ERROR(work_.Upload(uploader, stream));
  const std::size_t residual = Area(tokens_max_, config_.hidden_size) * sizeof(float);
  ASSIGN_OR_RETURN(pinned_step_,
                   device::MappedBuffer::Allocate(device, "input", residual_at_ + residual));
  const std::size_t logits = Area(logits_max_, config_.vocab_size) * sizeof(float);
  ASSIGN_OR_RETURN(pinned_result_,
                   device::MappedBuffer::Allocate(device, "results", head() ? logits : residual));
  if (!shares_) return OkStatus();
  RETURN_IF_ERROR(hand_off_.Allocate());
  const std::size_t cells = static_cast<std::size_t>(ffn::kShareTokens * runs_) * d;
  const std::size_t bytes = 3 * residual + 2 * cells * sizeof(std::int32_t) + 4 * cells / 8 + 4096;
  ASSIGN_OR_RETURN(mapped_, device::MappedBuffer::Allocate(device, "hand-off", bytes));
  const auto layout = [&](std::byte* at, Exchange& e) {
    const auto take = [&]<typename T>(T*& out, std::size_t count) {
      out = reinterpret_cast<T*>(at);
      at += Aligned(count * sizeof(T));
    };
    for (float** out : {&e.x, &e.residual, &e.out}) take(*out, residual / sizeof(float));
    for (float** out : {&e.maxima, &e.host_maxima[0], &e.host_maxima[1], &e.minimums})
      take(*out, cells / 32);
    take(e.high, cells);
    take(e.low, cells);
  };
  layout(mapped_.host<std::byte>(), host_);
  layout(mapped_.on_device<std::byte>(), device_);
  return OkStatus();
}

Status DeviceForward::Check(kernels::DeviceError error, const char* what) const {
  return error == 0 ? OkStatus() : model_.device().Check(error, what);
}

ffn::FfnPartition* DeviceForward::partition() const { return partition_.get(); }

Result<std::span<const float>> DeviceForward::Run(const Step& step, ffn::SparseFfn& cold) {
  RETURN_IF_ERROR(Ready(step));
  if (home_layers() == 0) return std::span<const float>();
  cold_error_ = OkStatus();
  const Status status = RunStep(step, cold);
  if (!status.ok()) Fail(status);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(cold_error_);
  return std::span<const float>(pinned_result_.host<float>(),
                                head() ? Area(step.logits, config_.vocab_size) : 0);
}

void DeviceForward::Fail(const Status& error) {
  if (failed()) return;
  error_ = error;
  dead_ = rebuilt_;
  base::LogError(error.message(), dead_ ? "; its context was rebuilt before"
                                        : "; its context is rebuilt for the next request");
  if (shares_ && mapped_.bytes() > 0) hand_off_.Release();
  if (partition_ != nullptr) partition_->Release();
}

Status DeviceForward::Ready(const Step& step) {
  if (!failed() && user_ == std::this_thread::get_id()) return OkStatus();
  user_ = std::this_thread::get_id();
  if (!failed()) {
    const Status usable = model_.device().Use();
    if (!usable.ok()) Fail(usable);
    return usable;
  }
  if (dead_) {
    return base::Unavailable(error_.message(),
                             " (the context was rebuilt once before): restart the program");
  }
  if (step.cache.length() > 0) {
    return base::Unavailable(error_.message(),
                             " (what it held of this sequence is lost: begin the sequence anew)");
  }
  const Status built = Rebuild();
  dead_ = !built.ok();
  rebuilt_ = true;
  if (dead_) return built.Annotate("the GPU's context cannot be rebuilt, restart the program");
  error_ = OkStatus();
  base::LogInfo("the GPU's context is rebuilt");
  return OkStatus();
}

Status DeviceForward::Rebuild() {
  for (TokenGraph& each : graphs_) each.graph.reset();
  if (partition_ != nullptr) partition_->DropGraphs();
  RETURN_IF_ERROR(model_.device().Reset());
  RETURN_IF_ERROR(model_.Rebuild());
  if (reload_) RETURN_IF_ERROR(reload_());
  return Allocate();
}

Status DeviceForward::RunStep(const Step& step, ffn::SparseFfn& cold) {
  exchanges_put_ = exchanges_served_ = 0;
  RETURN_IF_ERROR(Send(step, cold));
  RETURN_IF_ERROR(step.tokens == 1 ? Decode(step, cold) : Prefill(step, cold));
  RETURN_IF_ERROR(model_.stream().Synchronize());
  if (shares_) RETURN_IF_ERROR(hand_off_.CheckWaits());
  if (step.tokens == 1) Count();
  if (head()) return OkStatus();
  std::memcpy(step.residual, pinned_result_.host<float>(),
              Area(step.tokens, config_.hidden_size) * sizeof(float));
  return OkStatus();
}

Status DeviceForward::Send(const Step& step, ffn::SparseFfn& cold) {
  const nn::KvPool& pool = step.cache.pool();
  CHECK_LE(pool.blocks(), kv_blocks_);
  CHECK(pool.type() == kv_type_);
  CHECK_LE(step.tokens, tokens_max_);
  auto* kv = kv_.as<std::uint8_t>();
  if (const auto copy = step.cache.TakeCopy(); copy.has_value()) {
    RETURN_IF_ERROR(model_.stream().CopyOnDevice(
        kv + block_bytes_ * static_cast<std::size_t>(copy->to),
        kv + block_bytes_ * static_cast<std::size_t>(copy->from), block_bytes_));
  }
  auto* bytes = pinned_step_.host<std::uint8_t>();
  auto* positions = reinterpret_cast<std::int32_t*>(bytes);
  for (int t = 0; t < step.tokens; ++t) positions[t] = step.cache.length() + t;
  auto** table = reinterpret_cast<std::uint8_t**>(bytes + table_at_);
  for (const int block : step.cache.blocks())
    *table++ = kv + block_bytes_ * static_cast<std::size_t>(block);
  const std::size_t residual = Area(step.tokens, config_.hidden_size) * sizeof(float);
  std::memcpy(bytes + residual_at_, step.residual, residual);
  RETURN_IF_ERROR(model_.stream().CopyToDevice(step_, bytes, residual_at_ + residual));
  for (int l = 0; l < home_layers(); ++l) {
    const ffn::FfnPolicy policy = cold.PolicyFor(l, step.lossless);
    // As SparseFfn: more tokens are computed without loss. Dense gives the bits of exact.
    const bool whole = policy.mode == FfnMode::kDense || step.tokens > ffn::kSparseTokensMax;
    modes_[static_cast<std::size_t>(l)] = whole ? FfnMode::kExact : policy.mode;
    if (!whole) RETURN_IF_ERROR(ffn_.SetShift(l, policy));
  }
  return OkStatus();
}

Status DeviceForward::Decode(const Step& step, ffn::SparseFfn& cold) {
  device::DeviceStream& stream = model_.stream();
  TokenGraph& recorded = graphs_[head() ? step.logits : 0];
  if (recorded.graph == nullptr || recorded.modes != modes_) {
    recorded.graph.reset();
    RETURN_IF_ERROR(stream.BeginGraph());
    Status put;
    for (int l = 0; l < home_layers() && put.ok(); ++l) put = Layer(l, 1);
    if (put.ok()) put = End(1, step.logits);
    auto graph = stream.EndGraph();
    RETURN_IF_ERROR(put);
    ASSIGN_OR_RETURN(recorded.graph, std::move(graph));
    recorded.modes.assign(modes_.begin(), modes_.end());
  }
  RETURN_IF_ERROR(stream.Launch(*recorded.graph));
  for (int l = 0; l < home_layers(); ++l) {
    if (model_.layer(l).shared) RETURN_IF_ERROR(Serve(l, step, cold));
  }
  return OkStatus();
}

// Layer by layer, because a stream holds a limited number of launches: those of a shared layer
// would wait for the CPU's part while the CPU waits to launch more.
Status DeviceForward::Prefill(const Step& step, ffn::SparseFfn& cold) {
  for (int l = 0; l < home_layers(); ++l) {
    RETURN_IF_ERROR(Layer(l, step.tokens));
    if (model_.layer(l).shared) RETURN_IF_ERROR(Serve(l, step, cold));
  }
  return End(step.tokens, step.logits);
}

void DeviceForward::Count() {
  for (int l = 0; l < home_layers(); ++l) {
    const DeviceLayer& w = model_.layer(l);
    ffn::FfnCounters& c = ffn_counters_[static_cast<std::size_t>(l)];
    ++c.tokens;
    if (!w.has_rows()) {
      const std::int64_t f = config_.intermediate_size;
      const model::LayerWeights& dense = w.dense;
      c.gate_rows += f;
      c.up_rows += dense.gate.linear.weight.rows > 0 ? f : 0;
      c.down_rows += f;
      c.bytes +=
          static_cast<std::int64_t>(dense.gate.linear.weight.bytes() +
                                    dense.up.linear.weight.bytes() + dense.down.weight.bytes());
      continue;
    }
    ffn_.AddCounts(l, modes_[static_cast<std::size_t>(l)], c);
    if (!w.shared) continue;
    ++counters_.hot.tokens;
    counters_.hot.active += ffn_.counts(l).live;
  }
}

}  // namespace thermocline::gpu
