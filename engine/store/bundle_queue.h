// Queue of bundle reads: merges neighbouring bundles into one read, limits the reads in flight,
// retries failed reads, and checks the CRCs of the data.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/api/flash_stats.h"
#include "engine/base/huge_buffer.h"
#include "engine/base/index.h"
#include "engine/store/block_reader.h"
#include "engine/store/bundle_format.h"

namespace thermocline::store {

// Demand reads are started before all others; reads ahead start only when no demand read waits.
// Decode thread only. Allocates nothing after Create.
class BundleQueue {
 public:
  struct Options {
    bool rest_only = false;                    // read the bundles without their deciding rows
    std::uint32_t read_bytes_max = 128 << 10;  // of one read
    // Bytes that take as long as a separate read: a smaller gap between wanted bundles is read
    // along with them, as long as the read is at most 1.5 times its wanted bytes.
    std::uint32_t gap_bytes_max = 12 << 10;
    // False: each row of each neuron is a separate read, for measurements.
    bool bundled = true;
    int ahead_in_flight_max = 96;  // reads ahead in flight at a time: a demand read waits for them
  };
  // Borrows `index`. ResourceExhausted: no memory for the buffers of reads in flight.
  static Result<std::unique_ptr<BundleQueue>> Create(const BundleIndex& index,
                                                     std::unique_ptr<BlockReader> reader,
                                                     const Options& options);
  // Waits for reads in flight, because their memory is freed.
  ~BundleQueue();

  enum class Kind : std::uint8_t { kDemand, kAhead };
  // Queues reads of a layer's neurons, in any order.
  void Add(int layer, std::span<const int> neurons, Kind kind);
  // Promote turns the layer's queued reads ahead that have not started into demand reads; Drop
  // removes them and calls `dropped` with each neuron.
  void Promote(int layer);
  void Drop(int layer, const std::function<void(int neuron)>& dropped);
  // Starts as many reads as possible.
  void Pump();

  struct Arrival {
    int layer, neuron;
    Kind kind;                 // the kind it was queued with
    const std::uint8_t* data;  // the bundle, or its rest; valid until the sink returns
  };
  using Sink = std::function<void(const Arrival&)>;
  // Takes the reads that have ended, waiting up to `timeout` for one, and starts further reads. A
  // failed read is retried; if it fails again, the status is Unavailable (device error) or DataLoss
  // (truncated, or a CRC mismatch), naming file, layer and neuron. The neurons of a failed read do
  // not arrive.
  Status Poll(std::chrono::milliseconds timeout, const Sink& sink);
  // Drops all queued reads; data of reads in flight is ignored.
  void Abandon();

  bool idle() const { return queued(Kind::kDemand) + queued(Kind::kAhead) + in_flight_ == 0; }
  std::size_t queued(Kind kind) const { return queues_[base::Index(kind)].size(); }
  int in_flight() const { return in_flight_; }
  const BlockReader& reader() const { return *reader_; }
  FlashCounters& counters() { return counters_; }
  std::size_t memory_bytes() const { return memory_.size(); }

 private:
  // A read: the bundles at places [first, last] of a layer's order, of which those marked in
  // `wanted` are delivered.
  static constexpr int kBundlesMax = 256;
  struct Read {
    std::int32_t layer = -1;  // -1: abandoned
    std::uint32_t first = 0, last = 0;
    Kind kind = Kind::kDemand;
    std::uint8_t tries = 0;
    std::uint64_t wanted[kBundlesMax / 64] = {};
  };
  // The state of a read whose parts end at different times.
  struct Ending {
    int parts_left = 0;
    int failed = -1;          // a part; -1: none
    std::int64_t result = 0;  // of that part
  };
  struct Extent {
    std::uint64_t begin, end;  // of the file, aligned
  };

  BundleQueue(const BundleIndex& index, std::unique_ptr<BlockReader> reader,
              const Options& options);
  Status Allocate();
  std::size_t skipped_bytes() const {
    return options_.rest_only ? index_.layout.deciding_bytes() : 0;
  }
  // The file offset of the wanted bytes of the bundle at a place of the layer's order.
  std::uint64_t Begin(int layer, std::uint32_t place) const;
  Extent ExtentOf(const Read& read) const;
  // The parts of a read, each of which is a separate read: its rows, if it is not bundled.
  int num_parts() const;
  Extent PartOf(const Read& read, int part) const;
  void StartParts(const Read& read, std::size_t room);
  bool Joins(const Read& read, std::uint32_t place, std::size_t useful) const;
  int NeuronAt(int layer, std::uint32_t place) const {
    return neuron_at_[layer * neurons_ + place];
  }
  Status Finish(const Completion& completion, const Sink& sink);
  // Retries the read, or gives it up.
  Status Fail(const Read& read, const Ending& ending);
  Status Deliver(const Read& read, std::size_t room, const Sink& sink);
  bool IsWhole(int layer, int neuron, const std::uint8_t* data) const;
  // Queues it again, at the front.
  void Retry(Read read);
  std::byte* RoomAt(std::size_t room) { return memory_.data() + room * room_bytes_; }

  const BundleIndex& index_;
  const std::unique_ptr<BlockReader> reader_;
  const Options options_;
  const std::size_t neurons_;  // F
  std::size_t room_bytes_ = 0;
  base::HugeBuffer memory_;               // [depth, room_bytes_]
  std::vector<std::uint32_t> neuron_at_;  // [L, F] by place
  std::vector<std::uint32_t> places_;     // scratch of Add
  std::vector<Read> queues_[2];           // by kind; the back is taken first
  std::vector<Read> under_way_;           // [depth] by buffer
  std::vector<Ending> endings_;           // [depth] by buffer
  std::vector<std::size_t> free_rooms_;
  std::vector<BlockReader::Read> starting_;
  std::vector<Completion> ended_;
  int in_flight_ = 0, ahead_in_flight_ = 0;
  FlashCounters counters_;
};

}  // namespace thermocline::store
