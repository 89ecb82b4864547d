// A user's options for loading and running a model. The command line and the daemon's configuration
// set them by the table in option_table.cc; the engine reads them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/api/ablation.h"
#include "engine/api/activation.h"
#include "engine/api/ffn_mode.h"
#include "engine/api/hot_tier.h"
#include "engine/api/speculation.h"
#include "engine/base/index.h"
#include "kernels/attention.h"

namespace thermocline {

// The type of the KV cache.
using kernels::KvType;
inline constexpr std::array<std::string_view, 4> kKvTypeNames = {"f16", "q8_0", "f32", "q4_0"};

inline std::string_view KvTypeName(KvType type) {
  return kKvTypeNames[base::Index(type == KvType::kQ8 ? KvType::kQ8_0 : type)];
}

// The way of reading the model's file while it loads. kDirect bypasses the page cache, which then
// holds no second copy of the weights; kAuto does so if a GPU shares the memory or memory is short.
enum class FileReading { kAuto, kCached, kDirect };
inline constexpr std::array<std::string_view, 3> kFileReadingNames = {"auto", "cached", "direct"};

struct MemoryOptions {
  // The memory of the whole process: weights, the KV cache, other caches, buffers. 0 = the memory
  // that the system and the control group allow, less a tenth.
  std::int64_t budget_bytes = 0;
  // The share of the feed-forward weights that may be in memory, together with all buffers for
  // reading the others; used instead of the budget. 0 = the budget applies. For measurements.
  double ffn_share = 0;
  std::string bundle = {};          // path; "" = MODEL.tcb
  std::size_t requests_bytes = 0;   // the part of the budget that the caller uses for requests
  std::size_t resident_before = 0;  // of the process, which others than this model account for
  bool read_ahead = true;  // read the next layer's guessed neurons while the device is idle
};

struct ModelOptions {
  std::string path = {};     // or the name of a built-in model
  int threads = 0;           // kernel threads; 0 = one for each processor this process may use
  int context_length = 0;    // tokens of a sequence; 0 = the model's, as far as memory allows
  std::string cpu_isa = {};  // kernels' name; "" = $THERMOCLINE_CPU_ISA, else the fastest
  std::optional<Activation> activation = {};  // of the feed-forward network; none = the file's
  KvType kv_type = KvType::kF16;
  FileReading reading = FileReading::kAuto;
  // LoRA adapters: "[NAME=]PATH[:SCALE],..."; the scale is that of requests that choose none.
  std::string lora = {};
  bool verify = false;         // refuse NaN and infinite weights
  bool quantize_head = false;  // a float output head as q8_0
  FfnOptions ffn = {};         // the neurons that are computed
  MemoryOptions memory = {};   // the size of memory, and the weights on flash
  HotOptions hot = {};         // the device that computes the most used neurons
  SpecOptions spec = {};       // drafts
  Ablation ablation = {};      // disabled mechanisms, for measurements
  // Path of a trace of the neurons used by decoded tokens (store/trace.h); "" = none.
  std::string record_trace = {};
};

// The defaults above compute on the CPU, draft nothing and audit nothing. The functions below are
// the defaults of the program's interfaces.

// For the subcommands that decode: a GPU if one can be used. A draft or its source without a mode
// implies mode auto there (AddSpecOptions of the tools).
inline ModelOptions CommandLineDefaults() { return {.hot = {.device = HotDevice::kAuto}}; }

// For the daemon: additionally drafts when they are faster, and audits.
inline ModelOptions DaemonDefaults() {
  return {.path = "tidepool",
          .ffn = {.audit_interval = 64, .audit_shadow = AuditShadow::kAuto},
          .hot = {.device = HotDevice::kAuto},
          .spec = {.mode = SpecMode::kAuto}};
}

}  // namespace thermocline
