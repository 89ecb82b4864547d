// Configuration of the daemon: what server/daemon/config_file reads from YAML and --set.
#pragma once

#include <string>
#include <vector>

#include "engine/api/model_options.h"
#include "engine/api/sampling_params.h"
#include "engine/api/serving_options.h"
#include "engine/base/log.h"
#include "engine/base/status.h"
#include "server/metrics/table.h"

namespace thermocline::server {

struct ServerConfig {
  ModelOptions model = DaemonDefaults();
  ServingOptions serving = DaemonServingDefaults();
  std::string model_name;     // what clients call it; "" = the file's name without its ending
  std::string model_aliases;  // comma list of further names; "*" = any
  // sampling: what a request leaves out; empty = what the model recommends, or kCommonSampling
  SamplingDefaults sampling;
  int max_tokens = 4096;
  // server
  std::string host = "127.0.0.1";  // "" = no TCP
  int port = 8080;                 // 0 = any free one
  std::string unix_socket;         // path; "" = none
  std::string unix_socket_mode = "0660";
  std::string admin_socket;  // path; "" = none
  std::string tls_certificate, tls_key;
  std::string api_keys_file;                   // api_keys.h; "" = no keys
  bool insecure = false;                       // other hosts may come in without a key
  std::string allowed_hosts, allowed_origins;  // comma lists
  int http_threads = 2;
  int connections_max = 256;
  int connections_per_address_max = -1;  // -1 = 64, any number on loopback; 0 = any number
  int body_bytes_max = 4 << 20;
  std::int64_t request_memory_bytes = 256 << 20;  // RequestSizesOf
  int read_timeout_s = 30;
  int write_timeout_s = 30;
  int write_bytes_per_s_min = 16 << 10;  // 0 = any rate
  int idle_timeout_s = 120;
  int drain_timeout_s = 30;
  int request_timeout_s = 3600;               // 0 = none
  int sse_keepalive_s = 15;                   // 0 = none
  bool strict_fields = false;                 // refuse fields that a route does not know
  std::string prefix_cache_share = "tenant";  // whose prefixes a request finds: tenant, all
  // chat
  bool lenient_calls = true;  // accept calls of tools in other forms than the template's
  // grpc
  std::string grpc_address;  // "host:port", port 0 = any free one; "unix:/path"; "" = none
  int grpc_threads = 2;
  int grpc_streams_max = 128;  // concurrent calls of one connection
  bool grpc_reflection = true;
  bool grpc_insecure_http2 = false;  // other hosts may come without a proxy that bounds frames
  // metrics, log
  std::string metrics_prefix = "thermocline_";
  MetricBuckets metrics_buckets;
  bool metrics_require_key = true;
  std::string log_level = "info";
  std::string log_format = "text";
  bool log_access = true;

  // Connections that a client at `address` may have; 0 = any number.
  int ConnectionsMaxOf(const std::string& address) const;
  // Connections that one key may have, so that there is room for others.
  int ConnectionsMaxOfKey() const { return connections_max - connections_max / 4; }
};

// "a, b" -> {"a", "b"}.
std::vector<std::string> SplitList(const std::string& list);
bool IsLoopbackAddress(const std::string& host);
// Returns the name of a client's address in limits and shares: of IPv6 its network of 64 bits
// ("2001:db8::/64"), all of which one client may have; any other text as it is.
std::string NetworkOf(const std::string& address);

}  // namespace thermocline::server
