#include "server/service.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>

namespace thermocline::server {

Service::Service(const ServerConfig& config)
    : config_(config),
      model_name_(config.model_name),
      started_at_(std::time(nullptr)),
      metrics_(config.metrics_prefix) {
  if (model_name_.empty()) model_name_ = std::filesystem::path(config.model_path).stem().string();
  if (model_name_.empty())
    model_name_ = std::filesystem::path(config.model_path).parent_path().filename().string();
}

Status Service::Load() {
  const auto fail = [this](Status status) {
    state_ = ServiceState::kFailed;
    return status;
  };
  EngineConfig engine_config;
  engine_config.model = config_.model_path;
  engine_config.threads = config_.threads;
  engine_config.context_length = config_.context_length;
  engine_config.queue_capacity = config_.queue_capacity;
  engine_config.prefill_chunk = config_.prefill_chunk;
  engine_config.cpu_isa = config_.cpu_isa;
  engine_config.activation = config_.activation;
  engine_config.kv_type = config_.kv_type;
  if (config_.prefix_cache_mib >= 0)
    engine_config.prefix_cache_bytes = std::int64_t{config_.prefix_cache_mib} << 20;
  engine_config.verify = config_.verify;
  engine_config.quantize_head = config_.quantize_head;
  engine_config.ffn = config_.ffn;
  engine_config.memory_budget_bytes = config_.memory_budget_bytes;
  engine_config.bundle = config_.bundle;
  engine_config.read_ahead = config_.read_ahead;
  engine_config.hot = config_.hot;
  engine_config.spec = config_.spec;
  engine_config.record_trace = config_.record_trace;
  engine_config.on_progress = [this](double share) { load_progress_ = share; };
  engine_config.on_fatal = [this] {
    base::LogError("the GPU cannot be used any more; the daemon ends, to be started anew");
    failed_ = true;
    ::kill(::getpid(), SIGTERM);  // drains
  };
  auto engine = Engine::Load(engine_config);
  if (!engine.ok()) return fail(engine.status());
  engine_ = *std::move(engine);
  auto chat = ChatFormatter::Create(engine_->tokenizer());
  if (chat.ok()) {
    chat_ = *std::move(chat);
  } else if (chat.status().code() == StatusCode::kFailedPrecondition) {
    base::LogWarning("the model has no chat template; /v1/chat/completions will refuse requests");
  } else {
    return fail(chat.status());
  }
  published_ = true;
  ServiceState loading = ServiceState::kLoading;
  state_.compare_exchange_strong(loading, ServiceState::kReady);
  return OkStatus();
}

void Service::BeginDrain() {
  state_ = ServiceState::kDraining;
  if (Engine* loaded = engine()) loaded->StopAccepting();
}

void Service::CutOff() {
  if (Engine* loaded = engine()) loaded->CancelAll();
}

void Service::StopEngine() {
  published_ = false;
  engine_.reset();
}

int Service::RetryAfterSeconds() const {
  const Engine* loaded = engine();
  if (loaded == nullptr) return 2;
  const EngineStats stats = loaded->Stats();
  return static_cast<int>(
      std::clamp(std::ceil(request_s_ * (stats.running + stats.waiting)), 1.0, 120.0));
}

void Service::RequestTook(double seconds) { request_s_ = 0.8 * request_s_ + 0.2 * seconds; }

}  // namespace thermocline::server
