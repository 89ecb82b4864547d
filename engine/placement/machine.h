// The speeds and memory of a machine, as needed by placement: measured (load/calibration.h) or read
// from a file (config/machines/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::placement {

// The speeds at which one side multiplies weights for one token; bytes of weights.
struct Processor {
  double dense_bytes_per_s = 0;      // matrices that are read whole
  double rows_bytes_per_s = 0;       // selected rows
  double predictor_bytes_per_s = 0;  // sign planes and low-rank matrices
  double row_s = 0;                  // per selected row, in addition to its bytes
  double layer_s = 0;                // per layer with work on this side, beside its bytes
  double decide_bytes_per_s = 0;     // deciding rows in the order of neurons; 0: as dense
  double whole_bytes_per_s = 0;      // all rows of all neurons; 0: as dense

  double deciding_rate() const {
    return decide_bytes_per_s > 0 ? decide_bytes_per_s : dense_bytes_per_s;
  }
  double whole_rate() const {
    return whole_bytes_per_s > 0 ? whole_bytes_per_s : dense_bytes_per_s;
  }
  bool operator==(const Processor&) const = default;
};

struct Machine {
  std::string name;               // for people
  std::string key;                // device names and driver; "" in files for other machines
  Processor cold;                 // the CPU
  std::optional<Processor> hot;   // the GPU, or a second CPU partition
  std::int64_t hot_bytes = 0;     // GPU memory that may be used
  std::int64_t memory_bytes = 0;  // RAM that may be used
  bool unified = false;           // both sides share one memory
  bool hot_homes = true;          // the hot side can be a layer's home, and compute the head
  double sync_s = 0;              // seconds for both sides to wait for each other once
  double link_bytes_per_s = 0;    // between the two memories
  double flash_reads_per_s = 0;   // 0: no flash
  double flash_bytes_per_s = 0;

  // Seconds to read one bundle of `bytes` from flash while its queue is full.
  double FlashReadTime(double bytes) const;
  Json ToJson() const;
  // InvalidArgument names the field.
  static Result<Machine> FromJson(const Json& json);
};

}  // namespace thermocline::placement
