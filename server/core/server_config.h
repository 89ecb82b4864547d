// Configuration of the daemon: what server/daemon/config_file reads from YAML and --set.
#pragma once

#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "server/metrics/table.h"

namespace thermocline::server {

struct ServerConfig {
  // model
  std::string model_path = "tidepool";  // path, or the name of a built-in model
  std::string model_name;  // what clients call it; "" = the file's name without its ending
  std::string activation;  // of the feed-forward network; "" = what the file says
  bool verify = false;     // refuse NaN and infinite weights
  // engine.ffn_*, .sign_*, .ignore_calibration, .audit_interval, .controller_recall and
  // model.predictor
  FfnOptions ffn = {.audit_interval = 64};
  // engine
  int threads = 0;
  int context_length = 0;
  std::string cpu_isa;
  std::string kv_type = "f16";
  int prefix_cache_mib = -1;  // -1 = as much as one context
  bool quantize_head = false;
  int queue_capacity = 64;
  int queue_prefill_tokens = 65'536;  // 0 = any number
  int prefill_chunk = 64;
  int quantum_tokens = 32;  // 0 = a request runs to its end
  int sequences_max = 16;
  int reader_buffer_tokens = 1024;
  int reader_timeout_s = 30;  // 0 = any time
  // memory
  std::int64_t memory_budget_bytes = 0;  // of the whole process; 0 = what the system allows
  std::string bundle;                    // path; "" = MODEL.tcb
  bool read_ahead = true;
  std::string record_trace;             // path; "" = none
  HotOptions hot = {.device = "auto"};  // hot.*
  SpecOptions spec = {.mode = "auto"};  // spec.*
  // sampling: what a request leaves out
  SamplingParams sampling;
  int max_tokens = 0;
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
  int connections_per_address_max = 64;  // 0 = any number
  int body_bytes_max = 4 << 20;
  int read_timeout_s = 30;
  int write_timeout_s = 30;
  int idle_timeout_s = 120;
  int drain_timeout_s = 30;
  int request_timeout_s = 3600;  // 0 = none
  int sse_keepalive_s = 15;      // 0 = none
  // grpc
  std::string grpc_address;  // "host:port", port 0 = any free one; "unix:/path"; "" = none
  int grpc_threads = 2;
  int grpc_streams_max = 128;  // concurrent calls of one connection
  bool grpc_reflection = true;
  // metrics, log
  std::string metrics_prefix = "thermocline_";
  MetricBuckets metrics_buckets;
  bool metrics_require_key = true;
  std::string log_level = "info";
  std::string log_format = "text";
  bool log_access = true;
};

// "a, b" -> {"a", "b"}.
std::vector<std::string> SplitList(const std::string& list);
bool IsLoopbackAddress(const std::string& host);

}  // namespace thermocline::server
