#include "server/daemon/config_keys.h"

#include <cmath>
#include <optional>
#include <sstream>

namespace thermocline::server {
namespace {

Status SetInt(const IntKey& key, const std::string& name, const std::string& text) {
  const auto value = base::ParseNumber<int>(text);
  if (!value.has_value()) return base::InvalidArgument(name, ": '", text, "' is no whole number");
  if (*value < key.min || *value > key.max)
    return base::InvalidArgument(name, ": ", *value, " is outside [", key.min, ", ", key.max, "]");
  *key.target = *value;
  return OkStatus();
}

Status SetDouble(const DoubleKey& key, const std::string& name, const std::string& text) {
  const auto value = base::ParseNumber<double>(text);
  if (!value.has_value()) return base::InvalidArgument(name, ": '", text, "' is no number");
  if (!(*value >= key.min && *value <= key.max))
    return base::InvalidArgument(name, ": ", *value, " is outside [", key.min, ", ", key.max, "]");
  *key.target = *value;
  return OkStatus();
}

Status SetText(const TextKey& key, const std::string& name, const std::string& text) {
  bool allowed = key.choices.empty();
  std::string list;
  for (const std::string& choice : key.choices) {
    allowed = allowed || choice == text;
    list += (list.empty() ? "'" : ", '") + choice + "'";
  }
  if (!allowed) return base::InvalidArgument(name, ": '", text, "' is none of ", list);
  *key.target = text;
  return OkStatus();
}

Status SetBool(const BoolKey& key, const std::string& name, const std::string& text) {
  if (text != "true" && text != "false")
    return base::InvalidArgument(name, ": '", text, "' is neither true nor false");
  *key.target = text == "true";
  return OkStatus();
}

Status SetBytes(const BytesKey& key, const std::string& name, const std::string& text) {
  const auto value = base::ParseBytes(text);
  if (!value.has_value()) {
    return base::InvalidArgument(name, ": '", text,
                                 "' is no number of bytes, as 8GiB, 500MB or 1073741824");
  }
  *key.target = *value;
  return OkStatus();
}

Status SetBorders(const BordersKey& key, const std::string& name, const std::string& text) {
  constexpr std::size_t kBordersMax = 100;
  std::vector<double> borders;
  std::string packed = text;
  std::erase(packed, ' ');
  std::istringstream list(packed);
  for (std::string entry; std::getline(list, entry, ',');) {
    const auto value = base::ParseNumber<double>(entry);
    if (!value.has_value()) return base::InvalidArgument(name, ": '", entry, "' is no number");
    if (!(*value > (borders.empty() ? 0 : borders.back())) || !std::isfinite(*value))
      return base::InvalidArgument(name, ": ", *value, ": the borders must be above 0 and ascend");
    borders.push_back(*value);
  }
  if (borders.size() > kBordersMax)
    return base::InvalidArgument(name, ": ", borders.size(), " borders; ", kBordersMax,
                                 " are the most");
  *key.target = std::move(borders);
  return OkStatus();
}

// Whether two values of one key are the same; `take` copies that of `from`.
bool SameValue(const Key& to, const Key& from, bool take) {
  return std::visit(
      [&](const auto& target) {
        const auto& source = std::get<std::decay_t<decltype(target)>>(from.kind);
        const bool same = *target.target == *source.target;
        if (take) *target.target = *source.target;
        return same;
      },
      to.kind);
}

}  // namespace

std::vector<Key> KeysOf(ServerConfig& c) {
  constexpr int kMillion = 1'000'000;
  return {
      {"model.path", TextKey{&c.model_path, {}}},
      {"model.name", TextKey{&c.model_name, {}}},
      {"model.activation",
       TextKey{&c.activation,
               {"", "silu", "relu", "fatrelu", "drelu", "relu2", "gelu", "gelu_tanh"}}},
      {"model.verify", BoolKey{&c.verify}},
      {"model.side_car", TextKey{&c.ffn.side_car, {}}},
      {"engine.threads", IntKey{&c.threads, 0, 256}},
      {"engine.context_length", IntKey{&c.context_length, 0, 1 << 24}},
      {"engine.cpu_isa",
       TextKey{&c.cpu_isa, {"", "amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "reference"}}},
      {"engine.kv_type", TextKey{&c.kv_type, {"f16", "q8_0", "f32"}}},
      {"engine.prefix_cache_mib", IntKey{&c.prefix_cache_mib, -1, 1 << 24}},
      {"engine.quantize_head", BoolKey{&c.quantize_head}},
      {"engine.ffn_mode", TextKey{&c.ffn.modes, {}}},
      {"engine.ffn_also", TextKey{&c.ffn.also, {}}},
      {"engine.ffn_recall", DoubleKey{&c.ffn.recall, 0, 1}},
      {"engine.sign_alpha", DoubleKey{&c.ffn.sign_alpha, 0, 10}},
      {"engine.sign_alpha_layers", IntKey{&c.ffn.sign_alpha_layers, 0, 10'000}},
      {"engine.sign_slices", IntKey{&c.ffn.sign_slices, 1, 5}},
      {"engine.sign_planes", IntKey{&c.ffn.sign_planes, 1, 2}},
      {"engine.ignore_calibration", BoolKey{&c.ffn.ignore_calibration}},
      {"engine.audit_interval", IntKey{&c.ffn.audit_interval, 0, kMillion}},
      {"engine.controller_recall", DoubleKey{&c.ffn.controller_recall, 0, 1}},
      {"engine.queue_capacity", IntKey{&c.queue_capacity, 1, 10'000}, kReloadable},
      {"engine.queue_prefill_tokens", IntKey{&c.queue_prefill_tokens, 0, 1 << 30}, kReloadable},
      {"engine.prefill_chunk", IntKey{&c.prefill_chunk, 1, 4096}},
      {"engine.quantum_tokens", IntKey{&c.quantum_tokens, 0, kMillion}},
      {"engine.sequences_max", IntKey{&c.sequences_max, 1, 1024}},
      {"engine.reader_buffer_tokens", IntKey{&c.reader_buffer_tokens, 16, kMillion}},
      {"engine.reader_timeout_s", IntKey{&c.reader_timeout_s, 0, 86'400}},
      {"memory.budget_bytes", BytesKey{&c.memory_budget_bytes}},
      {"memory.bundle", TextKey{&c.bundle, {}}},
      {"memory.read_ahead", BoolKey{&c.read_ahead}},
      {"memory.record_trace", TextKey{&c.record_trace, {}}},
      {"hot.device", TextKey{&c.hot.device, {"auto", "cpu", "cuda"}}},
      {"hot.bytes", BytesKey{&c.hot.bytes}},
      {"hot.threads", IntKey{&c.hot.threads, 0, 255}},
      {"hot.placement", TextKey{&c.hot.placement, {}}},
      {"hot.rebalance", BoolKey{&c.hot.rebalance}},
      {"spec.mode", TextKey{&c.spec.mode, {"off", "sync", "branch", "exhaustive", "auto"}}},
      {"spec.source", TextKey{&c.spec.source, {"", "model", "ngram", "self"}}},
      {"spec.draft", TextKey{&c.spec.draft, {}}},
      {"spec.required", BoolKey{&c.spec.required}},
      {"spec.tokens_max", IntKey{&c.spec.tokens_max, 0, kDraftTokensMax}},
      {"spec.fixed", BoolKey{&c.spec.fixed}},
      {"spec.width", IntKey{&c.spec.width, 1, 4}},
      {"spec.threads", IntKey{&c.spec.threads, 0, 256}},
      {"spec.acceptance", TextKey{&c.spec.acceptance, {"same-text", "rejection"}}},
      {"spec.head", IntKey{&c.spec.head, 0, 1 << 24}},
      {"spec.self_shift", DoubleKey{&c.spec.self_shift, -1e6, 1e6}},
      {"sampling.temperature", DoubleKey{&c.sampling.temperature, 0, 2}},
      {"sampling.top_k", IntKey{&c.sampling.top_k, 0, kMillion}},
      {"sampling.top_p", DoubleKey{&c.sampling.top_p, 0, 1}},
      {"sampling.min_p", DoubleKey{&c.sampling.min_p, 0, 1}},
      {"sampling.repetition_penalty", DoubleKey{&c.sampling.repetition_penalty, 0.01, 100}},
      {"sampling.max_tokens", IntKey{&c.max_tokens, 0, 1 << 24}},
      {"server.host", TextKey{&c.host, {}}},
      {"server.port", IntKey{&c.port, 0, 65535}},
      {"server.unix_socket", TextKey{&c.unix_socket, {}}},
      {"server.unix_socket_mode", TextKey{&c.unix_socket_mode, {"0600", "0660", "0666"}}},
      {"server.admin_socket", TextKey{&c.admin_socket, {}}},
      {"server.tls_certificate", TextKey{&c.tls_certificate, {}}, kReloadable},
      {"server.tls_key", TextKey{&c.tls_key, {}}, kReloadable},
      {"server.api_keys_file", TextKey{&c.api_keys_file, {}}, kReloadable},
      {"server.insecure", BoolKey{&c.insecure}, kReloadable},
      {"server.allowed_hosts", TextKey{&c.allowed_hosts, {}}, kReloadable},
      {"server.allowed_origins", TextKey{&c.allowed_origins, {}}, kReloadable},
      {"server.threads", IntKey{&c.http_threads, 1, 64}},
      {"server.connections_max", IntKey{&c.connections_max, 1, 100'000}, kReloadable},
      {"server.connections_per_address_max", IntKey{&c.connections_per_address_max, 0, 100'000},
       kReloadable},
      {"server.body_bytes_max", IntKey{&c.body_bytes_max, 1024, 1 << 30}, kReloadable},
      {"server.read_timeout_s", IntKey{&c.read_timeout_s, 1, 3600}, kReloadable},
      {"server.write_timeout_s", IntKey{&c.write_timeout_s, 1, 3600}, kReloadable},
      {"server.idle_timeout_s", IntKey{&c.idle_timeout_s, 1, 86'400}, kReloadable},
      {"server.drain_timeout_s", IntKey{&c.drain_timeout_s, 0, 3600}, kReloadable},
      {"server.request_timeout_s", IntKey{&c.request_timeout_s, 0, 86'400}, kReloadable},
      {"server.sse_keepalive_s", IntKey{&c.sse_keepalive_s, 0, 3600}, kReloadable},
      {"grpc.address", TextKey{&c.grpc_address, {}}},
      {"grpc.threads", IntKey{&c.grpc_threads, 1, 64}},
      {"grpc.streams_max", IntKey{&c.grpc_streams_max, 1, 10'000}},
      {"grpc.reflection", BoolKey{&c.grpc_reflection}},
      {"metrics.prefix", TextKey{&c.metrics_prefix, {}}},
      {"metrics.buckets_first_token", BordersKey{&c.metrics_buckets.first_token}},
      {"metrics.buckets_inter_token", BordersKey{&c.metrics_buckets.inter_token}},
      {"metrics.buckets_request", BordersKey{&c.metrics_buckets.request}},
      {"metrics.buckets_tokens", BordersKey{&c.metrics_buckets.tokens}},
      {"metrics.buckets_tokenize", BordersKey{&c.metrics_buckets.tokenize}},
      {"metrics.require_key", BoolKey{&c.metrics_require_key}, kReloadable},
      {"log.level", TextKey{&c.log_level, {"debug", "info", "warning", "error", "off"}},
       kReloadable},
      {"log.format", TextKey{&c.log_format, {"text", "json"}}, kReloadable},
      {"log.access", BoolKey{&c.log_access}, kReloadable},
  };
}

Status SetKey(const std::vector<Key>& keys, const std::string& name, const std::string& text) {
  for (const Key& key : keys) {
    if (key.name != name) continue;
    if (const auto* number = std::get_if<IntKey>(&key.kind)) return SetInt(*number, name, text);
    if (const auto* number = std::get_if<DoubleKey>(&key.kind))
      return SetDouble(*number, name, text);
    if (const auto* flag = std::get_if<BoolKey>(&key.kind)) return SetBool(*flag, name, text);
    if (const auto* bytes = std::get_if<BytesKey>(&key.kind)) return SetBytes(*bytes, name, text);
    if (const auto* borders = std::get_if<BordersKey>(&key.kind))
      return SetBorders(*borders, name, text);
    return SetText(std::get<TextKey>(key.kind), name, text);
  }
  std::vector<std::string> names;
  for (const Key& key : keys) names.push_back(key.name);
  const std::string nearest = base::NearestName(name, names);
  return base::InvalidArgument("unknown key '", name, "'",
                               nearest.empty() ? "" : "; did you mean '", nearest,
                               nearest.empty() ? "" : "'?")
      .WithReason(Reason::kNotFound);
}

std::vector<std::string> ConfigKeys() {
  ServerConfig config;
  std::vector<std::string> names;
  for (const Key& key : KeysOf(config)) names.push_back(key.name);
  return names;
}

std::vector<std::string> TakeReloadable(const ServerConfig& fresh, ServerConfig& running) {
  ServerConfig source = fresh;
  const std::vector<Key> from = KeysOf(source), to = KeysOf(running);
  std::vector<std::string> fixed;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool same = SameValue(to[i], from[i], to[i].reloadable);
    if (!same && !to[i].reloadable) fixed.push_back(to[i].name);
  }
  return fixed;
}

}  // namespace thermocline::server
