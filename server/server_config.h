// Configuration of the daemon: one table of keys, read from YAML and --set.
#pragma once

#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/status.h"
#include "engine/engine.h"

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
  int prefill_chunk = 64;
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
  std::string host = "127.0.0.1";
  int port = 8080;  // 0 = any free one
  int http_threads = 2;
  int connections_max = 256;
  int body_bytes_max = 4 << 20;
  int read_timeout_s = 30;
  int write_timeout_s = 30;
  int idle_timeout_s = 120;
  int drain_timeout_s = 30;
  int request_timeout_s = 3600;  // 0 = none
  bool admin = false;            // routes below /admin
  // metrics, log
  std::string metrics_prefix = "thermocline_";
  std::string log_level = "info";
  std::string log_format = "text";
};

// Reads `path` (none if ""), then applies each "key=value" of `overrides`.
// InvalidArgument gives file, line, key and what was expected; an unknown key comes with the
// nearest known one.
Result<ServerConfig> LoadServerConfig(const std::string& path,
                                      const std::vector<std::string>& overrides);

// Every key there is, dotted ("server.port"), in order.
std::vector<std::string> ConfigKeys();

}  // namespace thermocline::server
