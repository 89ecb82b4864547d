// The speed of a device as a function of block size and queue depth. The flash tier plans its reads
// by it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/json.h"

namespace thermocline::store {

// Const after construction; thread-safe.
class Curve {
 public:
  static constexpr std::array<std::uint32_t, 9> kChunks = {
      4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20};
  static constexpr std::array<int, 7> kDepths = {1, 4, 16, 32, 64, 128, 256};
  // [chunk][depth] reads a second; 0: not measured.
  using Table = std::array<std::array<double, kDepths.size()>, kChunks.size()>;

  // The device and method of the measurement.
  struct Source {
    std::string device;  // for people: "nvme0n1 (Samsung SSD 980, 259:0)"
    std::string method;  // of the BlockReader
    bool direct = false;
    std::size_t alignment = 0;
    std::uint64_t file_bytes = 0;  // size of the file that the reads were spread over
  };

  // Requires: at least one cell of `table` is above 0.
  Curve(Source source, const Table& table, double sequential_bytes_per_s);

  const Source& source() const { return source_; }
  const Table& reads_per_s() const { return table_; }

  // The least depth that gives 95% of the best rate of the nearest measured size: a larger one
  // would only make each read wait longer.
  int BestDepth(double bytes) const;
  // Bytes per second of random reads of this size at the best depth. Between measured sizes it
  // grows with a power of the bytes, which fits a device limited by both reads and bytes. Reads
  // below 4 KiB take the time of 4 KiB; above 1 MiB the bandwidth is constant.
  double Bandwidth(double bytes) const;
  // Seconds that one more read of this size adds while the queue is full.
  double ReadTime(double bytes) const { return bytes / Bandwidth(bytes); }
  // Bytes per second of one pass through the file in reads of 1 MiB.
  double SequentialBandwidth() const { return sequential_bytes_per_s_; }

  Json ToJson() const;
  // DataLoss if `json` was not written by ToJson.
  static Result<Curve> FromJson(const Json& json);

 private:
  Source source_;
  Table table_;
  double sequential_bytes_per_s_;
};

}  // namespace thermocline::store
