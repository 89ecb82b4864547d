#include "engine/store/device_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/index.h"
#include "engine/base/json_cache.h"
#include "engine/base/log.h"
#include "engine/base/stopwatch.h"
#include "engine/store/device_name.h"

namespace thermocline::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLargeFile = 256 << 20;
// Many reads may go to the same memory, because their data is not used.
constexpr std::size_t kMemory = 32 << 20;
// A queue that takes longer to drain measures only the same bandwidth again.
constexpr double kDrainSecondsMax = 0.1;
constexpr auto kAnswerMax = std::chrono::seconds(30);

enum class Order { kRandom, kSequential };

class Probe {
 public:
  Probe(BlockReader& reader, std::span<std::byte> memory) : reader_(reader), memory_(memory) {
    // Different places in each run, so that no cache holds them.
    random_.seed(Clock::now().time_since_epoch().count());
  }

  // Reads per second with `depth` in flight, from the first one's start to the last one's end.
  Result<double> Rate(std::uint32_t chunk, int depth, double seconds, Order order) {
    std::vector<BlockReader::Read> batch;
    std::vector<Completion> ended(depth);
    std::int64_t done = 0;
    const base::Stopwatch watch;
    for (bool more = true; more || reader_.in_flight() > 0;) {
      batch.clear();
      more = done == 0 || watch.Seconds() < seconds;
      while (more && reader_.in_flight() + base::IntSize(batch) < depth)
        batch.push_back(NextRead(chunk, order));
      reader_.Submit(batch);
      if (reader_.in_flight() == 0) break;
      const int n = reader_.Wait(ended, kAnswerMax);
      if (n == 0)
        return base::Unavailable(reader_.path(), ": the device has not answered for 30 s");
      for (const Completion& c : std::span(ended).first(n)) {
        const BlockReader::Read read = {c.tag * unit(), memory_.data(), chunk, c.tag};
        RETURN_IF_ERROR(ReadStatus(reader_, read, c));
      }
      done += n;
    }
    return static_cast<double>(done) / watch.Seconds();
  }

 private:
  std::uint64_t unit() const { return std::max<std::uint64_t>(reader_.alignment(), 4096); }

  BlockReader::Read NextRead(std::uint32_t chunk, Order order) {
    const std::uint64_t places = (reader_.size() - chunk) / unit() + 1;
    if (order == Order::kSequential) place_ += chunk / unit();
    const std::uint64_t place = order == Order::kRandom ? random_() % places : place_ % places;
    memory_at_ = memory_at_ + 2 * chunk <= memory_.size() ? memory_at_ + chunk : 0;
    return {place * unit(), memory_.data() + memory_at_, chunk, place};
  }

  BlockReader& reader_;
  const std::span<std::byte> memory_;
  std::mt19937_64 random_;
  std::uint64_t place_ = 0;  // of the last sequential read, in units
  std::size_t memory_at_ = 0;
};

// Fills one row, from the shallowest queue to the deepest.
Status MeasureRow(Probe& probe, std::uint32_t chunk, int depth_max, double seconds,
                  std::array<double, Curve::kDepths.size()>& row) {
  double best = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const int depth = Curve::kDepths[i];
    if (depth > depth_max || (best > 0 && depth / best > kDrainSecondsMax)) break;
    ASSIGN_OR_RETURN(row[i], probe.Rate(chunk, depth, seconds, Order::kRandom));
    best = std::max(best, row[i]);
  }
  return OkStatus();
}

// The cached curve, if it is valid for a file of this size.
std::optional<Curve> Remembered(const base::JsonCache& cache, std::uint64_t file_bytes) {
  const auto json = cache.Read();
  if (!json.has_value()) return std::nullopt;
  auto curve = Curve::FromJson(*json);
  if (!curve.ok()) {
    base::LogWarning(cache.path(), ": ", curve.status().message(), "; it is measured anew");
    return std::nullopt;
  }
  if (curve->source().file_bytes < std::min(file_bytes, kLargeFile)) return std::nullopt;
  return *std::move(curve);
}

}  // namespace

Result<Curve> MeasureCurve(BlockReader& reader, const std::string& device, double seconds) {
  if (reader.size() < std::max<std::uint64_t>(Curve::kChunks.front(), reader.alignment()))
    return base::FailedPrecondition(reader.path(), ": ", reader.size(),
                                    " bytes are too few to measure the device by");
  ASSIGN_OR_RETURN(auto memory, base::HugeBuffer::Allocate(kMemory));
  RETURN_IF_ERROR(reader.SetMemory({memory.data(), memory.size()}));
  Probe probe(reader, {memory.data(), memory.size()});
  constexpr std::size_t kCells = Curve::kChunks.size() * Curve::kDepths.size();
  const double cell_s = 0.92 * seconds / kCells, sequential_s = 0.04 * seconds;
  Curve::Table table{};
  std::uint32_t largest = 0;
  // An idle device or processor takes a while to wake.
  Status status =
      probe.Rate(Curve::kChunks.front(), std::min(16, reader.depth()), 0.5 * cell_s, Order::kRandom)
          .status();
  for (std::size_t i = 0; i < Curve::kChunks.size() && status.ok(); ++i) {
    const std::uint32_t chunk = Curve::kChunks[i];
    if (chunk > reader.size() || chunk % reader.alignment() != 0) continue;
    largest = chunk;
    status = MeasureRow(probe, chunk, reader.depth(), cell_s, table[i]);
  }
  double sequential = 0;
  for (const int depth : {4, 16}) {
    if (!status.ok()) break;
    const auto rate =
        probe.Rate(largest, std::min(depth, reader.depth()), sequential_s, Order::kSequential);
    status = rate.status();
    if (rate.ok()) sequential = std::max(sequential, *rate * largest);
  }
  // After an error reads may be in flight, and the memory is about to be freed.
  std::vector<Completion> rest(reader.depth());
  while (reader.in_flight() > 0) reader.Wait(rest, kAnswerMax);
  RETURN_IF_ERROR(reader.SetMemory({}));
  RETURN_IF_ERROR(status);
  return Curve({.device = device,
                .method = reader.method(),
                .direct = reader.direct(),
                .alignment = reader.alignment(),
                .file_bytes = reader.size()},
               table, sequential);
}

Result<Curve> DeviceCurve(const std::string& path, const ProbeOptions& options) {
  ASSIGN_OR_RETURN(const auto reader, OpenBlockReader(path, {.depth = Curve::kDepths.back()}));
  ASSIGN_OR_RETURN(const DeviceName device, DeviceOf(path));
  const std::string key =
      StrCat(device.key, "|", reader->method(), reader->direct() ? "|direct" : "|cached");
  const base::JsonCache cache("flash", key);
  if (!options.measure_anew) {
    if (auto curve = Remembered(cache, reader->size())) return *std::move(curve);
  }
  ASSIGN_OR_RETURN(Curve curve, MeasureCurve(*reader, device.readable, options.seconds));
  const Status kept = cache.Write(curve.ToJson());
  if (!kept.ok())
    base::LogWarning("the speed of ", device.readable, " is not remembered: ", kept.message());
  return curve;
}

}  // namespace thermocline::store
