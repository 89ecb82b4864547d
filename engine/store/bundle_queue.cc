#include "engine/store/bundle_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/check.h"
#include "engine/base/index.h"
#include "engine/base/log.h"
#include "kernels/crc32c.h"

namespace thermocline::store {
namespace {

constexpr int kTriesMax = 3;
constexpr int kBatchMax = 16;  // reads that Wait waits for at once
// A device serves queued reads in any order: reads ahead start only when demand reads are nearly
// done, because they could be served first.
constexpr int kDemandWhileAheadMax = 4;
constexpr int kPartsMax = 4;          // tag of a read: its buffer times this, plus the part
constexpr double kOverReadMax = 1.5;  // bytes read over bytes wanted

std::uint64_t RoundDown(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }
}  // namespace

BundleQueue::BundleQueue(const BundleIndex& index, std::unique_ptr<BlockReader> reader,
                         const Options& options)
    : index_(index),
      reader_(std::move(reader)),
      options_(options),
      neurons_(static_cast<std::size_t>(index.intermediate_size)) {}

Result<std::unique_ptr<BundleQueue>> BundleQueue::Create(const BundleIndex& index,
                                                         std::unique_ptr<BlockReader> reader,
                                                         const Options& options) {
  std::unique_ptr<BundleQueue> queue(new BundleQueue(index, std::move(reader), options));
  RETURN_IF_ERROR(queue->Allocate());
  return queue;
}

Status BundleQueue::Allocate() {
  const std::size_t depth = reader_->depth();
  const std::size_t alignment = reader_->alignment();
  room_bytes_ = base::RoundUp(
      std::max<std::size_t>(options_.read_bytes_max, index_.layout.bundle_bytes()) + 2 * alignment,
      std::max(alignment, kBundleAlignment));
  ASSIGN_OR_RETURN(memory_, base::HugeBuffer::Allocate(depth * room_bytes_));
  RETURN_IF_ERROR(reader_->SetMemory({memory_.data(), memory_.size()}));
  neuron_at_.resize(index_.layers.size() * neurons_);
  for (std::size_t l = 0; l < index_.layers.size(); ++l) {
    for (std::size_t n = 0; n < neurons_; ++n)
      neuron_at_[l * neurons_ + index_.layers[l].position[n]] = static_cast<std::uint32_t>(n);
  }
  places_.reserve(neurons_);
  for (auto& queue : queues_) queue.reserve(2 * neurons_ + depth);
  under_way_.resize(depth);
  endings_.resize(depth);
  starting_.reserve(depth);
  ended_.resize(depth);
  for (std::size_t room = std::max<std::size_t>(1, depth / num_parts()); room-- > 0;)
    free_rooms_.push_back(room);
  return OkStatus();
}

BundleQueue::~BundleQueue() {
  Abandon();
  while (in_flight_ > 0) {
    const int ended = reader_->Wait(ended_, std::chrono::milliseconds(100));
    in_flight_ -= ended;
  }
}

std::uint64_t BundleQueue::Begin(int layer, std::uint32_t place) const {
  const std::uint64_t n = index_.layout.neurons_per_group;
  return index_.data_offset +
         (layer * index_.groups_per_layer() + place / n) * index_.layout.group_stride +
         place % n * index_.layout.bundle_bytes() + skipped_bytes();
}

BundleQueue::Extent BundleQueue::ExtentOf(const Read& read) const {
  const std::uint64_t useful = index_.layout.bundle_bytes() - skipped_bytes();
  return {RoundDown(Begin(read.layer, read.first), reader_->alignment()),
          base::RoundUp(Begin(read.layer, read.last) + useful, reader_->alignment())};
}

int BundleQueue::num_parts() const {
  const int rows = index_.layout.gated ? 3 : 2;
  return options_.bundled ? 1 : rows - (options_.rest_only ? 1 : 0);
}

BundleQueue::Extent BundleQueue::PartOf(const Read& read, int part) const {
  if (options_.bundled) return ExtentOf(read);
  const NeuronLayout& l = index_.layout;
  const std::size_t rows[] = {l.gate_bytes, l.up_bytes, l.down_bytes};
  int row = l.gated ? 0 : 1;
  if (options_.rest_only) ++row;
  std::uint64_t begin = Begin(read.layer, read.first);
  for (; part > 0; --part) begin += rows[row++];
  return {RoundDown(begin, reader_->alignment()),
          base::RoundUp(begin + rows[row], reader_->alignment())};
}

void BundleQueue::StartParts(const Read& read, std::size_t room) {
  const std::uint64_t begin = ExtentOf(read).begin;
  endings_[room] = {.parts_left = num_parts()};
  ahead_in_flight_ += read.kind == Kind::kAhead ? num_parts() : 0;
  for (int part = 0; part < num_parts(); ++part) {
    const Extent extent = PartOf(read, part);
    starting_.push_back({.offset = extent.begin,
                         .out = RoomAt(room) + (extent.begin - begin),
                         .bytes = static_cast<std::uint32_t>(extent.end - extent.begin),
                         .tag = room * kPartsMax + part});
    ++counters_.reads;
    counters_.bytes += extent.end - extent.begin;
  }
}

bool BundleQueue::Joins(const Read& read, std::uint32_t place, std::size_t useful) const {
  if (place - read.first >= kBundlesMax || !options_.bundled) return false;
  const std::size_t each = index_.layout.bundle_bytes() - skipped_bytes();
  const std::uint64_t gap = Begin(read.layer, place) - Begin(read.layer, read.last) - each;
  const std::uint64_t span = Begin(read.layer, place) + each - Begin(read.layer, read.first);
  return gap <= options_.gap_bytes_max && span <= options_.read_bytes_max &&
         static_cast<double>(span) <= kOverReadMax * static_cast<double>(useful + each);
}

void BundleQueue::Add(int layer, std::span<const int> neurons, Kind kind) {
  if (neurons.empty()) return;
  places_.clear();
  for (const int neuron : neurons) places_.push_back(index_.layers[layer].position[neuron]);
  std::sort(places_.begin(), places_.end());
  const std::size_t each = index_.layout.bundle_bytes() - skipped_bytes();
  auto& queue = queues_[base::Index(kind)];
  const std::size_t begin = queue.size();
  for (std::size_t i = 0; i < places_.size();) {
    Read read{.layer = layer, .first = places_[i], .last = places_[i], .kind = kind};
    std::size_t useful = 0;
    for (; i < places_.size() && (useful == 0 || Joins(read, places_[i], useful)); ++i) {
      const std::uint32_t at = places_[i] - read.first;
      read.wanted[at / 64] |= std::uint64_t{1} << at % 64;
      read.last = places_[i];
      useful += each;
    }
    queue.push_back(read);
  }
  counters_.wanted_bytes += each * places_.size();
  // The back is taken first: so reads go in file order, and earlier calls go first.
  std::reverse(queue.begin() + begin, queue.end());
  std::rotate(queue.begin(), queue.begin() + begin, queue.end());
}

void BundleQueue::Promote(int layer) {
  auto& ahead = queues_[base::Index(Kind::kAhead)];
  auto& demand = queues_[base::Index(Kind::kDemand)];
  std::erase_if(ahead, [&](const Read& read) {
    if (read.layer != layer) return false;
    demand.push_back(read);
    demand.back().kind = Kind::kDemand;
    return true;
  });
}

void BundleQueue::Drop(int layer, const std::function<void(int neuron)>& dropped) {
  auto& ahead = queues_[base::Index(Kind::kAhead)];
  const std::size_t each = index_.layout.bundle_bytes() - skipped_bytes();
  std::erase_if(ahead, [&](const Read& read) {
    if (read.layer != layer) return false;
    for (std::uint32_t place = read.first; place <= read.last; ++place) {
      const std::uint32_t at = place - read.first;
      if ((read.wanted[at / 64] >> at % 64 & 1) == 0) continue;
      counters_.wanted_bytes -= each;
      dropped(NeuronAt(layer, place));
    }
    return true;
  });
}

void BundleQueue::Pump() {
  // While the device has plenty of reads, finished ones are not replaced one by one.
  if (4 * in_flight_ > 3 * reader_->depth()) return;
  starting_.clear();
  while (!free_rooms_.empty()) {
    auto& demand = queues_[base::Index(Kind::kDemand)];
    auto& ahead = queues_[base::Index(Kind::kAhead)];
    const int demand_in_flight = in_flight_ + base::IntSize(starting_) - ahead_in_flight_;
    const bool may_ahead = !ahead.empty() && demand_in_flight <= kDemandWhileAheadMax &&
                           ahead_in_flight_ < options_.ahead_in_flight_max;
    if (demand.empty() && !may_ahead) break;
    auto& queue = demand.empty() ? ahead : demand;
    const std::size_t room = free_rooms_.back();
    free_rooms_.pop_back();
    const Read& read = under_way_[room] = queue.back();
    queue.pop_back();
    StartParts(read, room);
  }
  if (starting_.empty()) return;
  in_flight_ += base::IntSize(starting_);
  reader_->Submit(starting_);
}

Status BundleQueue::Poll(std::chrono::milliseconds timeout, const Sink& sink) {
  Pump();
  const auto begin = std::chrono::steady_clock::now();
  reader_->SetBatch(std::min(in_flight_ / 4, kBatchMax));
  const int ended = reader_->Wait(ended_, timeout);
  const auto arrived = std::chrono::steady_clock::now();
  Status first_error;
  for (int i = 0; i < ended; ++i) {
    Status status = Finish(ended_[i], sink);
    if (first_error.ok()) first_error = std::move(status);
  }
  Pump();
  const auto end = std::chrono::steady_clock::now();
  counters_.wait_s += std::chrono::duration<double>(arrived - begin).count();
  counters_.arrive_s += std::chrono::duration<double>(end - arrived).count();
  return first_error;
}

Status BundleQueue::Finish(const Completion& completion, const Sink& sink) {
  const std::size_t room = completion.tag / kPartsMax;
  const Read read = under_way_[room];
  Ending& ending = endings_[room];
  --in_flight_;
  ahead_in_flight_ -= read.kind == Kind::kAhead ? 1 : 0;
  if (read.layer >= 0) {
    const int part = static_cast<int>(completion.tag % kPartsMax);
    const Extent extent = PartOf(read, part);
    // A file that ends within the last block returns fewer bytes than the aligned read requests.
    const std::uint64_t end = std::min(extent.end, index_.file_bytes);
    const bool whole = completion.result >= 0 && extent.begin + completion.result >= end;
    if (!whole)
      ending = {.parts_left = ending.parts_left, .failed = part, .result = completion.result};
  }
  if (--ending.parts_left > 0) return OkStatus();
  free_rooms_.push_back(room);
  if (read.layer < 0) return OkStatus();
  return ending.failed < 0 ? Deliver(read, room, sink) : Fail(read, ending);
}

Status BundleQueue::Fail(const Read& read, const Ending& ending) {
  ++counters_.io_errors;
  if (read.tries + 1 < kTriesMax) return Retry(read), OkStatus();
  const Extent extent = PartOf(read, ending.failed);
  const auto what = StrCat(reader_->path(), ": layer ", read.layer, ", bytes ", extent.begin,
                           " to ", extent.end, " (neuron ", NeuronAt(read.layer, read.first),
                           read.first == read.last ? "" : " and its neighbours", "): ");
  if (ending.result < 0) {
    return base::Unavailable(what, "the device failed ", kTriesMax,
                             " times: ", std::strerror(static_cast<int>(-ending.result)));
  }
  return base::DataLoss(what, "only ", ending.result,
                        " bytes came; the file was truncated while open: pack it again");
}

Status BundleQueue::Deliver(const Read& read, std::size_t room, const Sink& sink) {
  const Extent extent = ExtentOf(read);
  for (std::uint32_t place = read.first; place <= read.last; ++place) {
    const std::uint32_t at = place - read.first;
    if ((read.wanted[at / 64] >> at % 64 & 1) == 0) continue;
    const int neuron = NeuronAt(read.layer, place);
    const auto* data = base::Octets(RoomAt(room)) + (Begin(read.layer, place) - extent.begin);
    if (!IsWhole(read.layer, neuron, data)) {
      ++counters_.crc_errors;
      if (read.tries + 1 < 2) {
        Read again = read;  // bundles that are intact have already arrived
        for (std::uint32_t p = 0; p < at; ++p)
          again.wanted[p / 64] &= ~(std::uint64_t{1} << p % 64);
        return Retry(again), OkStatus();
      }
      return base::DataLoss(reader_->path(), ": layer ", read.layer, ", neuron ", neuron,
                            ": the bundle's CRC32C is not the one that was packed, twice; the file "
                            "is damaged: pack it again");
    }
    sink({read.layer, neuron, read.kind, data});
  }
  return OkStatus();
}

bool BundleQueue::IsWhole(int layer, int neuron, const std::uint8_t* data) const {
  const BundleIndex::Layer& l = index_.layers[layer];
  const std::size_t n = neuron;
  const std::size_t deciding = index_.layout.deciding_bytes(), all = index_.layout.bundle_bytes();
  if (!options_.rest_only) {
    if (kernels::Crc32c(data, deciding) != l.deciding_crc[n]) return false;
    data += deciding;
  }
  return kernels::Crc32c(data, all - deciding) == l.rest_crc[n];
}

void BundleQueue::Retry(Read read) {
  ++read.tries;
  ++counters_.retries;
  queues_[base::Index(read.kind)].push_back(read);
}

void BundleQueue::Abandon() {
  for (auto& queue : queues_) queue.clear();
  for (Read& read : under_way_) read.layer = -1;
}

}  // namespace thermocline::store
