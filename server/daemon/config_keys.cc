#include "server/daemon/config_keys.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "engine/api/option_table.h"
#include "engine/base/strings.h"

namespace thermocline::server {
namespace {

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

Status SetModelsOwn(const ModelsOwnKey& key, const std::string& name, const std::string& text) {
  const SamplingField& field = *key.field;
  if (text == "model") {
    field.Prefer(*key.target, std::nullopt);
    return OkStatus();
  }
  const auto number = base::ParseNumber<double>(text);
  const bool any = field.whole == nullptr;
  if (!number.has_value() || !(any || *number == std::floor(*number))) {
    return base::InvalidArgument(name, ": '", text, "' is neither a ",
                                 any ? "number" : "whole number", " nor 'model'");
  }
  if (!(*number >= field.range.min && *number <= field.range.max)) {
    return base::InvalidArgument(name, ": ", *number, " is outside [", field.range.min, ", ",
                                 field.range.max, "]");
  }
  field.Prefer(*key.target, *number);
  return OkStatus();
}

// True if both values of a key are equal; with `take`, also copies the value of `from`.
bool SameKey(const Key& to, const Key& from, bool take) {
  if (const auto* value = std::get_if<OptionValue>(&to.kind))
    return SameValue(*value, std::get<OptionValue>(from.kind), take);
  if (const auto* own = std::get_if<ModelsOwnKey>(&to.kind)) {
    const auto& other = std::get<ModelsOwnKey>(from.kind);
    const auto value = other.field->Preferred(*other.target);
    const bool same = own->field->Preferred(*own->target) == value;
    if (take) own->field->Prefer(*own->target, value);
    return same;
  }
  std::vector<double>& target = *std::get<BordersKey>(to.kind).target;
  const std::vector<double>& source = *std::get<BordersKey>(from.kind).target;
  const bool same = target == source;
  if (take) target = source;
  return same;
}

std::vector<Key> ModelKeysOf(ModelOptions& options) {
  std::vector<Key> keys;
  for (const ModelOption& option : OptionsOf(options)) {
    if (*option.key != '\0') keys.push_back({option.key, option.value});
  }
  return keys;
}

std::vector<Key> ServingKeysOf(ServingOptions& o) {
  constexpr int kMillion = 1'000'000;
  return {
      {"engine.queue_capacity", IntValue{&o.queue_capacity, 1, 10'000}, kReloadable},
      {"engine.queue_prefill_tokens", IntValue{&o.queue_prefill_tokens, 0, 1 << 30}, kReloadable},
      {"engine.prefill_chunk", IntValue{&o.prefill_chunk, 0, 4096}},
      {"engine.step_tokens", IntValue{&o.step_tokens, 1, 64}},
      {"engine.itl_target_ms", DoubleValue{&o.itl_target_ms, 0, 60'000}},
      {"engine.quantum_tokens", IntValue{&o.quantum_tokens, 0, kMillion}},
      {"engine.sequences_max", IntValue{&o.sequences_max, 1, 1024}},
      {"engine.reader_buffer_tokens", IntValue{&o.reader_buffer_tokens, 16, kMillion}},
      {"engine.reader_timeout_s", DoubleValue{&o.reader_timeout_s, 0, 86'400}},
      {"prefix_cache.memory", BytesValue{&o.prefix_cache_bytes, -1}},
      {"prefix_cache.path", TextValue{&o.prefix_path}},
      {"prefix_cache.bytes", BytesValue{&o.prefix_path_bytes}},
      {"prefix_cache.log_differences", BoolValue{&o.log_prefix_differences}},
      {"grammar.bytes_max", IntValue{&o.grammar.bytes_max, 1, 1 << 24}},
      {"grammar.states_max", IntValue{&o.grammar.states_max, 100, 10'000'000}},
      {"grammar.compile_ms_max", IntValue{&o.grammar.compile_ms_max, 10, 60'000}},
      {"grammar.cache_mib", MebibytesValue{&o.grammar.cache_bytes, 0}},
      {"grammar.memory_mib", MebibytesValue{&o.grammar.memory_bytes, 1}},
  };
}

std::vector<Key> SamplingKeysOf(SamplingDefaults& target) {
  std::vector<Key> keys;
  for (const SamplingField& field : SamplingFields())
    if (field.has_preference())
      keys.push_back({StrCat("sampling.", field.name), ModelsOwnKey{&field, &target}});
  return keys;
}

std::vector<Key> DaemonKeysOf(ServerConfig& c) {
  return {
      {"model.name", TextValue{&c.model_name}},
      {"model.aliases", TextValue{&c.model_aliases}, kReloadable},
      {"sampling.max_tokens", IntValue{&c.max_tokens, 0, 1 << 24}},
      {"server.models_dir", TextValue{&c.models_dir}},
      {"server.pull", BoolValue{&c.pull}, kReloadable},
      {"server.host", TextValue{&c.host}},
      {"server.port", IntValue{&c.port, 0, 65535}},
      {"server.unix_socket", TextValue{&c.unix_socket}},
      {"server.unix_socket_mode", TextValue{&c.unix_socket_mode, {"0600", "0660", "0666"}}},
      {"server.admin_socket", TextValue{&c.admin_socket}},
      {"server.tls_certificate", TextValue{&c.tls_certificate}, kReloadable},
      {"server.tls_key", TextValue{&c.tls_key}, kReloadable},
      {"server.api_keys_file", TextValue{&c.api_keys_file}, kReloadable},
      {"server.insecure", BoolValue{&c.insecure}, kReloadable},
      {"server.allowed_hosts", TextValue{&c.allowed_hosts}, kReloadable},
      {"server.allowed_origins", TextValue{&c.allowed_origins}, kReloadable},
      {"server.threads", IntValue{&c.http_threads, 1, 64}},
      {"server.connections_max", IntValue{&c.connections_max, 1, 100'000}, kReloadable},
      {"server.connections_per_address_max", IntValue{&c.connections_per_address_max, -1, 100'000},
       kReloadable},
      {"server.body_bytes_max", IntValue{&c.body_bytes_max, 1024, 1 << 30}, kReloadable},
      {"server.request_memory_mib", MebibytesValue{&c.request_memory_bytes, 1}},
      {"server.read_timeout_s", IntValue{&c.read_timeout_s, 1, 3600}, kReloadable},
      {"server.write_timeout_s", IntValue{&c.write_timeout_s, 1, 3600}, kReloadable},
      {"server.write_bytes_per_s_min", IntValue{&c.write_bytes_per_s_min, 0, 1 << 30}, kReloadable},
      {"server.idle_timeout_s", IntValue{&c.idle_timeout_s, 1, 86'400}, kReloadable},
      {"server.drain_timeout_s", IntValue{&c.drain_timeout_s, 0, 3600}, kReloadable},
      {"server.request_timeout_s", IntValue{&c.request_timeout_s, 0, 86'400}, kReloadable},
      {"server.sse_keepalive_s", IntValue{&c.sse_keepalive_s, 0, 3600}, kReloadable},
      {"server.strict_fields", BoolValue{&c.strict_fields}, kReloadable},
      {"prefix_cache.share", TextValue{&c.prefix_cache_share, {"tenant", "all"}}},
      {"chat.lenient_calls", BoolValue{&c.lenient_calls}, kReloadable},
      {"chat.token_memory", BoolValue{&c.token_memory}, kReloadable},
      {"chat.keep_reasoning", BoolValue{&c.keep_reasoning}, kReloadable},
      {"chat.reasoning_budget", IntValue{&c.reasoning_budget, -1, INT32_MAX}, kReloadable},
      {"chat.reasoning_budget_message", TextValue{&c.reasoning_budget_message}, kReloadable},
      {"grpc.address", TextValue{&c.grpc_address}},
      {"grpc.threads", IntValue{&c.grpc_threads, 1, 64}},
      {"grpc.streams_max", IntValue{&c.grpc_streams_max, 1, 10'000}},
      {"grpc.reflection", BoolValue{&c.grpc_reflection}},
      {"grpc.insecure_http2", BoolValue{&c.grpc_insecure_http2}},
      {"metrics.prefix", TextValue{&c.metrics_prefix}},
      {"metrics.buckets_first_token", BordersKey{&c.metrics_buckets.first_token}},
      {"metrics.buckets_inter_token", BordersKey{&c.metrics_buckets.inter_token}},
      {"metrics.buckets_request", BordersKey{&c.metrics_buckets.request}},
      {"metrics.buckets_tokens", BordersKey{&c.metrics_buckets.tokens}},
      {"metrics.buckets_tokenize", BordersKey{&c.metrics_buckets.tokenize}},
      {"metrics.require_key", BoolValue{&c.metrics_require_key}, kReloadable},
      {"log.level", TextValue{&c.log_level, {"debug", "info", "warning", "error", "off"}},
       kReloadable},
      {"log.format", TextValue{&c.log_format, {"text", "json"}}, kReloadable},
      {"log.access", BoolValue{&c.log_access}, kReloadable},
  };
}

}  // namespace

std::vector<Key> KeysOf(ServerConfig& config) {
  std::vector<Key> keys = ModelKeysOf(config.model);
  for (const auto& more :
       {ServingKeysOf(config.serving), SamplingKeysOf(config.sampling), DaemonKeysOf(config)})
    keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

Status SetKey(const std::vector<Key>& keys, const std::string& name, const std::string& text) {
  for (const Key& key : keys) {
    if (key.name != name) continue;
    if (const auto* borders = std::get_if<BordersKey>(&key.kind))
      return SetBorders(*borders, name, text);
    if (const auto* own = std::get_if<ModelsOwnKey>(&key.kind))
      return SetModelsOwn(*own, name, text);
    return SetValue(std::get<OptionValue>(key.kind), name, text);
  }
  if (name == "engine.prefix_cache_mib") {
    base::LogWarning(
        "engine.prefix_cache_mib is called prefix_cache.memory now, in bytes or as 2GiB");
    return SetKey(keys, "prefix_cache.memory", text == "-1" ? text : text + "MiB");
  }
  if (name == "hot.rebalance") {  // a key of older configurations, false by default
    base::LogWarning("hot.rebalance is not there any more: neurons stay where they were placed");
    return OkStatus();
  }
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const Key& key : keys) names.push_back(key.name);
  const std::string nearest = base::NearestName(name, names);
  return base::InvalidArgument("unknown key '", name, "'",
                               nearest.empty() ? "" : "; did you mean '", nearest,
                               nearest.empty() ? "" : "'?")
      .WithReason(Reason::kNotFound);
}

bool TakesList(const std::vector<Key>& keys, std::string_view name) {
  constexpr std::string_view kLists[] = {"model.aliases", "server.allowed_hosts",
                                         "server.allowed_origins", "engine.ffn_also"};
  if (std::find(std::begin(kLists), std::end(kLists), name) != std::end(kLists)) return true;
  return std::any_of(keys.begin(), keys.end(), [&](const Key& key) {
    return key.name == name && std::holds_alternative<BordersKey>(key.kind);
  });
}

Status SetKeyList(const std::vector<Key>& keys, const std::string& name,
                  const std::vector<std::string>& items) {
  if (!TakesList(keys, name)) {
    Status unknown = SetKey(keys, name, "");
    if (unknown.reason() == Reason::kNotFound) return unknown;
    return base::InvalidArgument(name, ": expected a single value, found a list");
  }
  std::string text;
  for (const std::string& item : items) {
    if (item.find(',') != std::string::npos)
      return base::InvalidArgument(name, ": '", item, "' has a comma, which separates items");
    text += (text.empty() ? "" : ",") + item;
  }
  return SetKey(keys, name, text);
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
    const bool same = SameKey(to[i], from[i], to[i].reloadable);
    if (!same && !to[i].reloadable) fixed.push_back(to[i].name);
  }
  return fixed;
}

}  // namespace thermocline::server
