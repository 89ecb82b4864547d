// The daemon's configuration, which server/daemon/config_file reads from YAML and --set.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/model_options.h"
#include "engine/api/sampling_params.h"
#include "engine/api/serving_options.h"
#include "engine/base/log.h"
#include "engine/base/status.h"
#include "server/metrics/table.h"

namespace thermocline::server {

struct ServerConfig;

// One of several models: an entry of `models`.
struct ModelEntry {
  std::shared_ptr<const ServerConfig> config;  // the daemon's, with the keys of this model
  bool pinned = false;                         // loaded at the start, and never put to sleep
  int keep_alive_s = -1;  // after its last request it sleeps; -1 = when memory is wanted
  bool found = false;     // in server.models_dir: nobody has named it
};

struct ServerConfig {
  ModelOptions model = DaemonDefaults();
  ServingOptions serving = DaemonServingDefaults();
  std::string model_name;          // clients' name for it; "" = the file's name without extension
  std::string model_aliases;       // comma list of more names; "*" = any
  std::vector<ModelEntry> models;  // empty: `model` alone
  // /sampling: defaults for requests; empty = the model's recommendation, or kCommonSampling
  SamplingDefaults sampling;
  int max_tokens = 4096;
  // server
  std::string models_dir;          // a folder whose models are served, too; "" = none
  bool pull = false;               // clients may add models to models_dir, and delete those
  std::string host = "127.0.0.1";  // "" = no TCP
  int port = 8080;                 // 0 = any free one
  std::string unix_socket;         // path; "" = none
  std::string unix_socket_mode = "0660";
  std::string admin_socket;  // path; "" = none
  std::string tls_certificate, tls_key;
  std::string api_keys_file;                   // api_keys.h; "" = no keys
  bool insecure = false;                       // allows other hosts to connect without a key
  std::string allowed_hosts, allowed_origins;  // comma lists
  int http_threads = 2;
  int connections_max = 256;
  int connections_per_address_max = -1;  // -1 = 64, any number on loopback; 0 = any number
  int body_bytes_max = 4 << 20;
  std::int64_t request_memory_bytes = 256 << 20;  // RequestSizesOf
  int read_timeout_s = 30;
  int write_timeout_s = 30;
  int write_bytes_per_s_min = 16 << 10;  // 0 = no minimum
  int idle_timeout_s = 120;
  int drain_timeout_s = 30;
  int request_timeout_s = 3600;  // 0 = no timeout
  int sse_keepalive_s = 15;      // 0 = none
  bool strict_fields = false;    // rejects fields that a route does not know
  // Owner of the prefixes that a request may reuse: tenant, all.
  std::string prefix_cache_share = "tenant";
  // chat
  bool lenient_calls = true;   // accepts tool calls in other formats than the template's
  bool token_memory = true;    // earlier answers keep the tokens that the model sampled
  bool keep_reasoning = true;  // templates that can keep the reasoning of earlier answers do
  int reasoning_budget = -1;   // the most tokens of an answer's reasoning; -1 = any number
  std::string reasoning_budget_message;  // ends reasoning that reaches it, before the closing mark
  // grpc
  std::string grpc_address;  // "host:port", port 0 = any free one; "unix:/path"; "" = off
  int grpc_threads = 2;
  int grpc_streams_max = 128;  // concurrent calls per connection
  bool grpc_reflection = true;
  // Allows other hosts to connect without a proxy that limits frames.
  bool grpc_insecure_http2 = false;
  // metrics, log
  std::string metrics_prefix = "thermocline_";
  MetricBuckets metrics_buckets;
  bool metrics_require_key = true;
  std::string log_level = "info";
  std::string log_format = "text";
  bool log_access = true;

  // Returns how many connections a client at `address` may have; 0 = any number.
  int ConnectionsMaxOf(const std::string& address) const;
  // Returns how many connections one key may have; the rest is for other clients.
  int ConnectionsMaxOfKey() const { return connections_max - connections_max / 4; }
};

// Splits "a, b" into {"a", "b"}.
std::vector<std::string> SplitList(const std::string& list);
// Seconds of a duration such as "300", "5m", "1h30m", "250ms" or "-1"; nullopt: it is none.
std::optional<double> SecondsOf(std::string_view text);
// Returns a model's name in lower case and without ":latest", which Ollama's clients append.
std::string PlainName(std::string name);
bool IsLoopbackAddress(const std::string& host);
// Returns the name of a client's address for limits and fair shares: for IPv6 the /64 network
// ("2001:db8::/64"), which a single client may own; any other text unchanged.
std::string NetworkOf(const std::string& address);

}  // namespace thermocline::server
