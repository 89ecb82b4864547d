#include "engine/engine.h"

#include <utility>

#include "engine/base/out_of_memory.h"
#include "engine/engine_impl.h"
#include "engine/engine_parts.h"

namespace thermocline {

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineConfig& config) {
  return base::OrNoMemory("the model", [&]() -> Result<std::unique_ptr<Engine>> {
    ASSIGN_OR_RETURN(EngineParts parts, LoadParts(config));
    auto impl = std::make_unique<Impl>(parts, config);
    RETURN_IF_ERROR(impl->Start(config, std::move(parts.draft)));
    return std::unique_ptr<Engine>(new Engine(std::move(impl)));
  });
}

Result<std::shared_ptr<TokenChannel>> Engine::Submit(Request request,
                                                     std::function<void()> on_ready,
                                                     Admission* admission) {
  const bool reserved = admission != nullptr && admission->requests_ > 0;
  auto channel = impl_->Submit(std::move(request), std::move(on_ready),
                               reserved ? std::optional(admission->tokens_) : std::nullopt);
  if (channel.ok() && reserved) --admission->requests_;
  return channel;
}

Result<Engine::Admission> Engine::Admit(const Arrival& arrival) {
  const std::int64_t tokens = impl_->EstimateTokens(arrival);
  RETURN_IF_ERROR(impl_->Admit(arrival, tokens));
  Admission admission;
  admission.engine_ = this;
  admission.requests_ = arrival.requests;
  admission.tokens_ = tokens;
  admission.tenant_ = arrival.tenant;
  return admission;
}

void Engine::Admission::Release() {
  if (engine_ != nullptr && requests_ > 0) engine_->impl_->Unreserve(requests_, tokens_, tenant_);
  requests_ = 0;
}

Engine::Admission& Engine::Admission::operator=(Admission&& other) noexcept {
  if (this == &other) return *this;
  Release();
  engine_ = std::exchange(other.engine_, nullptr);
  requests_ = std::exchange(other.requests_, 0);
  tokens_ = other.tokens_;
  tenant_ = std::move(other.tenant_);
  return *this;
}

Result<std::shared_ptr<const grammar::CompiledGrammar>> Engine::Compile(const GrammarSpec& spec) {
  return impl_->Compile(spec);
}

std::shared_ptr<const grammar::CompiledGrammar> Engine::FindCompiled(const GrammarSpec& spec) {
  return impl_->FindCompiled(spec);
}

void Engine::SetQueueLimits(int requests, std::int64_t prefill_tokens) {
  impl_->SetQueueLimits(requests, prefill_tokens);
}
double Engine::RetryAfterS() const { return impl_->RetryAfterS(); }
double Engine::WaitS() const { return impl_->WaitS(); }
void Engine::FreezeController(bool frozen) { impl_->FreezeController(frozen); }
void Engine::StopAccepting() { impl_->StopAccepting(); }
void Engine::CancelAll(CancelCause cause) { impl_->CancelAll(cause); }
std::vector<AdapterChoice> Engine::adapters() const { return impl_->adapters(); }
const SamplingDefaults& Engine::sampling() const { return impl_->sampling(); }
bool Engine::writes() const { return impl_->writes(); }
Pooling Engine::pooling() const { return impl_->pooling(); }
const text::Tokenizer& Engine::tokenizer() const { return impl_->tokenizer(); }
std::shared_ptr<const EngineMeasurements> Engine::measurements() const {
  return impl_->measurements();
}
EngineStats Engine::Stats() const { return impl_->Stats(); }

}  // namespace thermocline
