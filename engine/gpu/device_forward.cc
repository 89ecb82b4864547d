#include "engine/gpu/device_forward.h"

#include <algorithm>

namespace thermocline::gpu {

DeviceForward::DeviceForward(Params p)
    : model_(p.model),
      tokens_max_(p.tokens_max),
      logits_max_(p.logits_max),
      context_length_(p.context_length),
      parts_max_(p.parts_max),
      reload_(std::move(p.reload)),
      health_([this] { Release(); }, [this] { return model_.device().process_lost(); }),
      ffn_({.model = p.model, .tokens_max = p.tokens_max}) {
  const std::vector<DeviceLayer>& layers = model_.layers();
  if (std::any_of(layers.begin(), layers.end(),
                  [](const auto& l) { return !l.home && l.neurons > 0; }))
    partition_ = std::make_unique<DevicePartition>(
        DevicePartition::Params{model_, ffn_, health_, tokens_max_});
  if (p.audits)
    audited_ = std::make_unique<DeviceAuditedSide>(
        DeviceAuditedSide::Params{.model = model_, .ffn = ffn_, .health = health_});
  if (home_layers() == 0) return;
  home_ = std::make_unique<DeviceHomeLayers>(
      DeviceHomeLayers::Params{.model = model_,
                               .cpu = p.cpu,
                               .ffn = ffn_,
                               .health = health_,
                               .tokens_max = p.tokens_max,
                               .logits_max = p.logits_max,
                               .context_length = p.context_length,
                               .parts_max = p.parts_max,
                               .kv_blocks = p.kv_blocks,
                               .kv_type = p.kv_type,
                               .attention_bytes = p.attention_bytes,
                               .audits = p.audits});
}

Result<std::unique_ptr<DeviceForward>> DeviceForward::Create(Params params) {
  auto forward = std::unique_ptr<DeviceForward>(new DeviceForward(std::move(params)));
  RETURN_IF_ERROR(forward->Allocate());
  return forward;
}

std::size_t DeviceForward::BytesFor(Params params) {
  return DeviceForward(std::move(params)).bytes();
}

std::size_t DeviceForward::HostBytesMax(const HostSizes& s) {
  return 2 * DeviceExchange::Bytes(s.config, s.tokens_max) +
         HostSharedFfn::Bytes(s.config, s.tokens_max) +
         DeviceStep::HostBytes({.hidden_size = s.config.hidden_size,
                                .tokens_max = s.tokens_max,
                                .context_length = s.context_length,
                                .parts_max = s.parts_max,
                                .returns_residual = true}) +
         DeviceHead::HostBytes(s.config, s.logits_max) + DeviceUploader::kPieceBytes +
         (s.audits ? DeviceTaps::HostBytes(s.config) + DeviceAuditedSide::HostBytes(s.config) : 0);
}

std::size_t DeviceForward::bytes() const {
  return ffn_.bytes() + (partition_ != nullptr ? partition_->bytes() : 0) +
         (home_ != nullptr ? home_->bytes() : 0) + (audited_ != nullptr ? audited_->bytes() : 0);
}

Status DeviceForward::Allocate() {
  RETURN_IF_ERROR(ffn_.Allocate());
  if (partition_ != nullptr) RETURN_IF_ERROR(partition_->Allocate());
  if (audited_ != nullptr) RETURN_IF_ERROR(audited_->Allocate());
  return home_ != nullptr ? home_->Allocate() : OkStatus();
}

Result<std::span<const float>> DeviceForward::Run(const Step& step, ffn::SparseFfn& cold) {
  int cached = 0;
  for (const DevicePart& part : step.parts) cached = std::max(cached, part.cache->length());
  RETURN_IF_ERROR(Ready(cached));
  if (home_ == nullptr) return std::span<const float>();
  return home_->Run(step, cold);
}

Status DeviceForward::Ready(int cached) {
  const auto self = std::this_thread::get_id();
  const bool known = std::exchange(user_, self) == self;
  if (failed()) {
    RETURN_IF_ERROR(health_.MayRebuild(cached));
    return health_.Rebuilt(Rebuild());
  }
  if (known) return OkStatus();
  Status usable = model_.device().Use();
  if (!usable.ok()) health_.Fail(usable);
  return usable;
}

Status DeviceForward::Rebuild() {
  if (home_ != nullptr) home_->DropGraphs();
  if (partition_ != nullptr) partition_->DropGraphs();
  if (audited_ != nullptr) audited_->DropGraphs();
  RETURN_IF_ERROR(model_.device().Reset());
  RETURN_IF_ERROR(model_.Rebuild());
  if (reload_) RETURN_IF_ERROR(reload_());
  return Allocate();
}

void DeviceForward::Release() {
  if (home_ != nullptr) home_->Release();
  if (partition_ != nullptr) partition_->Release();
}

}  // namespace thermocline::gpu
