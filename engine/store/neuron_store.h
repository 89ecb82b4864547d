// The neurons of a model that is larger than memory: those in use are in a cache of fixed size, the
// others come from the bundle file when a token needs them.
//
// A slot holds a neuron's bundle (or its rest, where the deciding rows are held), and a table says
// for each neuron where its slot is: kernels multiply the rows where they lie, nothing is moved to
// close gaps. What has no slot for long passes through a stage, as large as a layer: the neurons of
// a whole layer, for prompts, and those that the cache has no room for.
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
  // Bytes of a slot, and of all that Create allocates beside the slots.
  static std::size_t SlotBytes(const NeuronLayout& layout, bool rest_only);
  static std::size_t FixedBytes(const BundleIndex& index, const Options& options, int depth,
                                std::size_t alignment);

  // [F] where each neuron's slot begins, null if it is not in memory; and how far behind that its
  // rows lie. The table stays where it is.
  const std::uint8_t* const* where(int layer) const { return where_.data() + At(layer, 0); }
  std::size_t up_ahead() const { return up_ahead_; }
  std::size_t down_ahead() const { return down_ahead_; }
  bool Has(int layer, int neuron) const { return where_[At(layer, neuron)] != nullptr; }

  // The step's tokens need these neurons (ascending): starts to read those that are missing.
  // masks[k]: the tokens of the step that need neurons[k], bit t; empty: the only one.
  void Request(int layer, std::span<const int> neurons, std::span<const std::uint16_t> masks);
  // A prompt needs these neurons: they pass through the stage, and are no uses.
  void RequestForPrompt(int layer, std::span<const int> neurons);
  // The step needs all neurons of the layer. `counted`: as needed ones; a prompt's are not.
  void RequestAll(int layer, bool counted = false);
  // Waits for what was requested. Errors as BundleQueue::Poll, or Cancelled by on_wait; after one,
  // Abandon.
  Status Await();
  // The layer is done: what has no slot in the cache leaves.
  void EndLayer(int layer);
  // Ends the step: its first `kept` tokens count as uses, the others never were.
  void EndStep(int kept);
  // Tokens of the step, from the first, that will probably be kept: what only the others need gets
  // no slot. Until EndStep.
  void ExpectKept(int tokens) { expected_mask_ = static_cast<std::uint16_t>((1U << tokens) - 1); }

  // Reads ahead what a layer to come will probably need, when nothing else is to be read.
  void ReadAhead(int layer, std::span<const int> neurons);
  void ReadAllAhead(int layer);
  bool reading() const { return wanted_ > 0; }
  // Neurons needed so far that were not in memory, or only because they had been read ahead.
  std::int64_t fresh_uses() const { return fresh_uses_; }
  // Takes what has come and starts what waits, without waiting: between other work, so that the
  // device is never idle for want of being told. Errors come again from Await.
  void Poke();

  // Forgets the step and everything under way; the cache stays as it is.
  void Abandon();
  // Called about every 50 ms while Await waits; false gives up.
  void SetOnWait(std::function<bool()> on_wait) { on_wait_ = std::move(on_wait); }

  FlashCounters counters() const;
  const BlockReader& reader() const { return queue_->reader(); }
  const BundleIndex& index() const { return index_; }
  std::size_t slots() const { return options_.slots; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t memory_bytes() const { return memory_.size() + queue_->memory_bytes(); }

 private:
  // The flags of a neuron.
  static constexpr std::uint8_t kPending = 1;   // a read of it is queued or under way
  static constexpr std::uint8_t kWanted = 2;    // and Await waits for it
  static constexpr std::uint8_t kStaged = 4;    // it goes to the stage, not to the cache
  static constexpr std::uint8_t kUntested = 8;  // it was read ahead and not needed so far
  struct Use {
    std::uint32_t entry;
    std::uint16_t mask;   // 0: it is held, but that is no use
    std::int32_t before;  // its last use
  };

  NeuronStore(BundleIndex index, const Options& options);
  Status Allocate(std::unique_ptr<BlockReader> reader);
  Status Preload();
  std::vector<std::uint32_t> HottestEntries() const;

  std::size_t At(int layer, int neuron) const { return layer * neurons_ + neuron; }
  // Notes that the step needs the neuron; whether it must be read.
  bool Need(int layer, int neuron, std::uint16_t mask, std::uint8_t flags);
  void Hold(std::uint32_t entry, std::uint16_t mask);
  void ReleaseAll();
  void Arrive(const BundleQueue::Arrival& arrival);
  // A place for a bundle that arrives; null if it is to be dropped.
  std::uint8_t* SlotFor(std::uint32_t entry, int layer, std::uint8_t flags);
  std::uint8_t* StageSlot(int layer, std::uint32_t entry);
  bool InCache(const std::uint8_t* slot) const { return slot < stage_begin_; }
  void Leave(std::uint32_t entry);

  const BundleIndex index_;
  const Options options_;
  const std::size_t neurons_;  // F
  const std::size_t slot_bytes_, payload_bytes_;
  std::size_t up_ahead_ = 0, down_ahead_ = 0;
  std::unique_ptr<BundleQueue>
      queue_;                // goes first: it writes to nothing of ours, but borrows index_
  base::HugeBuffer memory_;  // [slots + stages * F, slot_bytes_]
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
  Status error_;  // that Poke met
  std::int64_t fresh_uses_ = 0;
  std::size_t wanted_ = 0;  // neurons that Await waits for
  std::int64_t now_ = 0;    // tokens kept so far
  std::uint16_t expected_mask_ = 0xFFFF;
  std::function<bool()> on_wait_;
  mutable FlashCounters counters_;
};

}  // namespace thermocline::store
