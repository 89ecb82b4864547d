// The neurons of a model that is larger than memory: frequently used neurons are in a cache of
// fixed size, the others are read from the bundle file when a token needs them.
//
// A slot holds a neuron's bundle (or its rest, if the deciding rows are kept elsewhere), and a
// table gives the address of each neuron's slot: kernels multiply the rows in place, and nothing is
// moved to close gaps. Neurons without a slot pass through a stage, as large as a layer: the
// neurons of a whole layer, for prefill, and those that do not fit the cache.
// *Source:* Alizadeh et al., LLM in a flash, sections 3.1 and 3.3, without its compaction;
// speculation: section 5.2.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/store/bundle_queue.h"
#include "engine/store/heat.h"

namespace thermocline::store {

// Decode thread only. Allocates nothing after Create. More than 25 fields: the slot table, the
// step's uses and the reads under way change together, at every arrival.
class NeuronStore {
 public:
  struct Options {
    BundleQueue::Options queue = {};
    std::size_t slots = 0;         // neurons that the cache holds
    int stages = 2;                // 2: one layer is read while another is computed
    double half_life = kHalfLife;  // tokens; of HeatOrder
  };
  // Reads the neurons that were most active in the profile into the cache. Errors as
  // BundleQueue::Poll; ResourceExhausted: no memory.
  static Result<std::unique_ptr<NeuronStore>> Create(BundleIndex index,
                                                     std::unique_ptr<BlockReader> reader,
                                                     const Options& options);
  // Bytes of a slot, and bytes of all other allocations of Create.
  static std::size_t SlotBytes(const NeuronLayout& layout, bool rest_only);
  static std::size_t FixedBytes(const BundleIndex& index, const Options& options, int depth,
                                std::size_t alignment);

  // [F] address of each neuron's slot, null if it is not in memory; and the offsets of its rows
  // from there. The address of the table is constant.
  const std::uint8_t* const* where(int layer) const { return where_.data() + At(layer, 0); }
  std::size_t up_ahead() const { return up_ahead_; }
  std::size_t down_ahead() const { return down_ahead_; }
  bool Has(int layer, int neuron) const { return where_[At(layer, neuron)] != nullptr; }

  // The step's tokens need these neurons (ascending): starts to read the missing ones. masks[k]:
  // the tokens of the step that need neurons[k], bit t; empty: the only token.
  void Request(int layer, std::span<const int> neurons, std::span<const std::uint16_t> masks);
  // Prefill needs these neurons: they pass through the stage, and do not count as uses.
  void RequestForPrompt(int layer, std::span<const int> neurons);
  // The step needs all neurons of the layer. `counted`: they count as needed; not so for prefill.
  void RequestAll(int layer, bool counted = false);
  // Waits for the requested neurons. Errors as BundleQueue::Poll, or Cancelled by on_wait; after an
  // error, call Abandon.
  Status Await();
  // The layer is computed: releases neurons without a slot in the cache.
  void EndLayer(int layer);
  // Ends the step: the uses by its first `kept` tokens count, those by the others do not.
  void EndStep(int kept);
  // Number of the step's first tokens that will probably be kept: neurons that only the others need
  // get no slot. Valid until EndStep.
  void ExpectKept(int tokens) { expected_mask_ = static_cast<std::uint16_t>((1U << tokens) - 1); }

  // Reads ahead neurons that a later layer will probably need, while there is nothing else to read.
  void ReadAhead(int layer, std::span<const int> neurons);
  void ReadAllAhead(int layer);
  bool reading() const { return wanted_ > 0; }
  // Neurons needed so far that were not in memory, or only because they had been read ahead.
  std::int64_t fresh_uses() const { return fresh_uses_; }
  // Collects finished reads and starts waiting ones, without blocking. Called between other work so
  // that the device does not idle. Errors are returned by Await.
  void Poll();

  // Drops the step and all reads in flight; the cache stays as it is.
  void Abandon();
  // Called about every 50 ms while Await waits; returning false cancels the wait.
  void SetOnWait(std::function<bool()> on_wait) { on_wait_ = std::move(on_wait); }

  FlashCounters counters() const;
  const BlockReader& reader() const { return queue_->reader(); }
  const BundleIndex& index() const { return index_; }
  std::size_t slots() const { return options_.slots; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t memory_bytes() const { return memory_.size() + queue_->memory_bytes(); }

 private:
  // The flags of a neuron.
  static constexpr std::uint8_t kPending = 1;   // a read of it is queued or in flight
  static constexpr std::uint8_t kWanted = 2;    // and Await waits for it
  static constexpr std::uint8_t kStaged = 4;    // it goes to the stage, not into the cache
  static constexpr std::uint8_t kUntested = 8;  // it was read ahead and has not been needed yet
  struct Use {
    std::uint32_t entry;
    std::uint16_t mask;   // 0: protected from eviction only, not a use
    std::int32_t before;  // its last use
  };

  NeuronStore(BundleIndex index, const Options& options);
  Status Allocate(std::unique_ptr<BlockReader> reader);
  Status Preload();
  std::vector<std::uint32_t> HottestEntries() const;

  std::size_t At(int layer, int neuron) const { return layer * neurons_ + neuron; }
  // Records that the step needs the neuron; returns true if it must be read.
  bool Need(int layer, int neuron, std::uint16_t mask, std::uint8_t flags);
  void Hold(std::uint32_t entry, std::uint16_t mask);
  void ReleaseAll();
  void Arrive(const BundleQueue::Arrival& arrival);
  // The memory for an arriving bundle; null if it is to be dropped.
  std::uint8_t* SlotFor(std::uint32_t entry, int layer, std::uint8_t flags);
  std::uint8_t* StageSlot(int layer, std::uint32_t entry);
  bool InCache(const std::uint8_t* slot) const { return slot < stage_begin_; }
  void Leave(std::uint32_t entry);

  const BundleIndex index_;
  const Options options_;
  const std::size_t neurons_;  // F
  const std::size_t slot_bytes_, payload_bytes_;
  std::size_t up_ahead_ = 0, down_ahead_ = 0;
  std::unique_ptr<BundleQueue> queue_;  // destroyed before index_, which it borrows
  base::HugeBuffer memory_;             // [slots + stages * F, slot_bytes_]
  const std::uint8_t* stage_begin_ = nullptr;
  std::vector<const std::uint8_t*> where_;  // [L, F]
  std::vector<std::uint8_t> flags_;         // [L, F]
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::vector<std::uint32_t>> staged_;  // [stages] entries in use, by place
  HeatOrder heat_;
  std::vector<int> missing_;  // scratch
  std::vector<int> all_;      // [F] 0, 1, 2, ...
  std::vector<Use> uses_;     // of this step
  std::vector<int> ahead_;    // neurons of ahead_layer_ that are read ahead
  int ahead_layer_ = -1;
  Status error_;  // the error that Poll met
  std::int64_t fresh_uses_ = 0;
  std::size_t wanted_ = 0;  // neurons that Await waits for
  std::int64_t now_ = 0;    // tokens kept so far
  std::uint16_t expected_mask_ = 0xFFFF;
  std::function<bool()> on_wait_;
  mutable FlashCounters counters_;
};

}  // namespace thermocline::store
