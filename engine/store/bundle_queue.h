// Reads of bundles: which neighbours one read takes together, how many reads are under way, what
// happens when one fails, and whether the bytes are those that were packed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/api/flash_stats.h"
#include "engine/base/huge_buffer.h"
#include "engine/store/block_reader.h"
#include "engine/store/bundle_format.h"

namespace thermocline::store {

// Demand reads are started before all others; a read ahead is started only when no demand read
// waits. Decode thread only. Allocates nothing after Create.
class BundleQueue {
 public:
  struct Options {
    bool rest_only = false;                    // read the bundles without their deciding rows
    std::uint32_t read_bytes_max = 128 << 10;  // of one read
    // Bytes that cost as much as a read of their own: smaller gaps between wanted bundles are read
    // with them, as long as a read is at most 1.5 times what is wanted of it.
    std::uint32_t gap_bytes_max = 12 << 10;
    // False: each row of each neuron is a read of its own, for measurements.
    bool bundled = true;
    int ahead_in_flight_max = 96;  // reads ahead under way at a time: a demand read waits for them
  };
  // Borrows `index`. ResourceExhausted: no memory for what is being read.
  static Result<std::unique_ptr<BundleQueue>> Create(const BundleIndex& index,
                                                     std::unique_ptr<BlockReader> reader,
                                                     const Options& options);
  // Waits for what is in flight: its memory goes.
  ~BundleQueue();

  enum class Kind : std::uint8_t { kDemand, kAhead };
  // Queues reads of a layer's neurons, in any order.
  void Add(int layer, std::span<const int> neurons, Kind kind);
  // Reads that are queued ahead for the layer, but not started, are wanted now; or not any more:
  // `dropped` is called with each neuron.
  void Promote(int layer);
  void Drop(int layer, const std::function<void(int neuron)>& dropped);
  // Starts as many reads as fit.
  void Pump();

  struct Arrival {
    int layer, neuron;
    Kind kind;                 // as it was queued
    const std::uint8_t* data;  // the bundle, or its rest; until the sink returns
  };
  using Sink = std::function<void(const Arrival&)>;
  // Takes what has ended, waiting for something up to `timeout`, and starts further reads.
  // A read that failed is tried again; what then fails is the status: Unavailable (the device),
  // DataLoss (truncated, or other bytes than were packed), naming file, layer and neuron. The
  // neurons of a failed read do not arrive.
  Status Poll(std::chrono::milliseconds timeout, const Sink& sink);
  // Forgets everything: what is under way arrives nowhere.
  void Abandon();

  bool idle() const { return queued(Kind::kDemand) + queued(Kind::kAhead) + in_flight_ == 0; }
  std::size_t queued(Kind kind) const { return queues_[static_cast<std::size_t>(kind)].size(); }
  int in_flight() const { return in_flight_; }
  const BlockReader& reader() const { return *reader_; }
  FlashCounters& counters() { return counters_; }
  std::size_t memory_bytes() const { return memory_.size(); }

 private:
  // A read: the bundles at places [first, last] of a layer's order, those marked in `wanted`.
  static constexpr int kBundlesMax = 256;
  struct Read {
    std::int32_t layer = -1;  // -1: abandoned
    std::uint32_t first = 0, last = 0;
    Kind kind = Kind::kDemand;
    std::uint8_t tries = 0;
    std::uint64_t wanted[kBundlesMax / 64] = {};
  };
  // The state of a read whose parts end one by one.
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
  // The offset of the wanted bytes of the bundle at a place of the layer's order.
  std::uint64_t Begin(int layer, std::uint32_t place) const;
  Extent ExtentOf(const Read& read) const;
  // The parts of a read, each of which is read by itself: its rows, where it is not bundled.
  int num_parts() const;
  Extent PartOf(const Read& read, int part) const;
  void StartParts(const Read& read, std::size_t room);
  bool Joins(const Read& read, std::uint32_t place, std::size_t useful) const;
  int NeuronAt(int layer, std::uint32_t place) const {
    return neuron_at_[static_cast<std::size_t>(layer) * neurons_ + place];
  }
  Status Finish(const Completion& completion, const Sink& sink);
  // Tries again, or gives up.
  Status Fail(const Read& read, const Ending& ending);
  Status Deliver(const Read& read, std::size_t room, const Sink& sink);
  bool IsWhole(int layer, int neuron, const std::uint8_t* data) const;
  // Queues it again, in front.
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
  std::vector<Read> queues_[2];           // by kind; taken from the back
  std::vector<Read> under_way_;           // [depth] by room
  std::vector<Ending> endings_;           // [depth] by room
  std::vector<std::size_t> free_rooms_;
  std::vector<BlockReader::Read> starting_;
  std::vector<Completion> ended_;
  int in_flight_ = 0, ahead_in_flight_ = 0;
  FlashCounters counters_;
};

}  // namespace thermocline::store
