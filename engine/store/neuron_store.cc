#include "engine/store/neuron_store.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <numeric>

#include "engine/base/bytes.h"
#include "engine/base/index.h"

namespace thermocline::store {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kWaitSlice{50};
constexpr int kStepTokensMax = 16;

// Adds its lifetime to a counter of seconds.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds), begin_(Clock::now()) {}
  ~Timed() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& seconds_;
  const Clock::time_point begin_;
};

}  // namespace

std::size_t NeuronStore::SlotBytes(const NeuronLayout& layout, bool rest_only) {
  return base::RoundUp(layout.bundle_bytes() - (rest_only ? layout.deciding_bytes() : 0), 64);
}

std::size_t NeuronStore::FixedBytes(const BundleIndex& index, const Options& options, int depth,
                                    std::size_t alignment) {
  const std::size_t f = index.intermediate_size;
  const std::size_t entries = f * index.num_hidden_layers;
  const std::size_t stages = options.stages * f * SlotBytes(index.layout, options.queue.rest_only);
  const std::size_t rooms =
      depth * base::RoundUp(
                  std::max<std::size_t>(options.queue.read_bytes_max, index.layout.bundle_bytes()) +
                      2 * alignment,
                  kBundleAlignment);
  // Tables of this class, the queue and the eviction order; the index in memory.
  const std::size_t per_entry = 8 + 1 + 4 + 8 + 2 * sizeof(Use) + 4 * 4;
  return stages + rooms + entries * per_entry + options.slots * (4 + 16) + f * 256;
}

NeuronStore::NeuronStore(BundleIndex index, const Options& options)
    : index_(std::move(index)),
      options_(options),
      neurons_(static_cast<std::size_t>(index_.intermediate_size)),
      slot_bytes_(SlotBytes(index_.layout, options.queue.rest_only)),
      payload_bytes_(index_.layout.bundle_bytes() -
                     (options.queue.rest_only ? index_.layout.deciding_bytes() : 0)),
      heat_({.entries = index_.layers.size() * neurons_,
             .cached_max = options.slots,
             .half_life = options.half_life}) {
  const NeuronLayout& layout = index_.layout;
  up_ahead_ = layout.gated && !options.queue.rest_only ? layout.gate_bytes : 0;
  down_ahead_ = payload_bytes_ - layout.down_bytes;
}

Result<std::unique_ptr<NeuronStore>> NeuronStore::Create(BundleIndex index,
                                                         std::unique_ptr<BlockReader> reader,
                                                         const Options& options) {
  std::unique_ptr<NeuronStore> store(new NeuronStore(std::move(index), options));
  RETURN_IF_ERROR(store->Allocate(std::move(reader)));
  RETURN_IF_ERROR(store->Preload());
  return store;
}

Status NeuronStore::Allocate(std::unique_ptr<BlockReader> reader) {
  ASSIGN_OR_RETURN(queue_, BundleQueue::Create(index_, std::move(reader), options_.queue));
  const std::size_t stages = options_.stages;
  ASSIGN_OR_RETURN(memory_,
                   base::HugeBuffer::Allocate((options_.slots + stages * neurons_) * slot_bytes_));
  stage_begin_ = base::Octets(memory_.data()) + options_.slots * slot_bytes_;
  const std::size_t entries = index_.layers.size() * neurons_;
  where_.resize(entries);
  flags_.resize(entries);
  free_slots_.reserve(options_.slots);
  for (std::size_t slot = options_.slots; slot-- > 0;)
    free_slots_.push_back(static_cast<std::uint32_t>(slot));
  staged_.resize(stages);
  for (auto& stage : staged_) stage.reserve(neurons_);
  missing_.reserve(neurons_);
  all_.resize(neurons_);
  std::iota(all_.begin(), all_.end(), 0);
  ahead_.reserve(neurons_);
  uses_.reserve(2 * entries);  // each read ahead and then needed
  return OkStatus();
}

// Entries by the share of tokens that activated them, the hottest first; without a profile, in the
// order of every layer's positions.
std::vector<std::uint32_t> NeuronStore::HottestEntries() const {
  std::vector<std::uint32_t> entries(where_.size());
  std::vector<std::int64_t> rank(where_.size());
  for (std::size_t e = 0; e < entries.size(); ++e) {
    entries[e] = static_cast<std::uint32_t>(e);
    const BundleIndex::Layer& layer = index_.layers[e / neurons_];
    rank[e] = layer.activations.empty()
                  ? static_cast<std::int64_t>(layer.position[e % neurons_])
                  : -static_cast<std::int64_t>(layer.activations[e % neurons_]);
  }
  const std::size_t count = std::min(options_.slots, entries.size());
  std::partial_sort(entries.begin(), entries.begin() + count, entries.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return rank[a] != rank[b] ? rank[a] < rank[b] : a < b;
                    });
  entries.resize(count);
  return entries;
}

Status NeuronStore::Preload() {
  if (index_.profiled_tokens > 0) {
    for (std::size_t e = 0; e < where_.size(); ++e) {
      const auto& activations = index_.layers[e / neurons_].activations;
      if (!activations.empty())
        heat_.Warm(static_cast<std::uint32_t>(e),
                   activations[e % neurons_] / static_cast<double>(index_.profiled_tokens));
    }
  }
  std::vector<std::vector<int>> by_layer(index_.layers.size());
  for (const std::uint32_t entry : HottestEntries())
    by_layer[entry / neurons_].push_back(static_cast<int>(entry % neurons_));
  for (int l = 0; l < base::IntSize(by_layer); ++l) {
    for (const int neuron : by_layer[l]) flags_[At(l, neuron)] |= kPending | kWanted;
    wanted_ += by_layer[l].size();
    queue_->Add(l, by_layer[l], BundleQueue::Kind::kDemand);
    RETURN_IF_ERROR(Await());
  }
  counters_ = {};
  queue_->counters() = {};
  return OkStatus();
}

// Keeps the entry, if it is in the cache, until the step ends.
void NeuronStore::Hold(std::uint32_t entry, std::uint16_t mask) {
  uses_.push_back({entry, mask, static_cast<std::int32_t>(heat_.last_use(entry))});
  heat_.Hold(entry, now_);
}

// Releases in reverse order, because an entry may be held twice.
void NeuronStore::ReleaseAll() {
  for (std::size_t i = uses_.size(); i-- > 0;) heat_.Release(uses_[i].entry, uses_[i].before);
}

bool NeuronStore::Need(int layer, int neuron, std::uint16_t mask, std::uint8_t flags) {
  const std::size_t at = At(layer, neuron);
  const auto entry = static_cast<std::uint32_t>(at);
  std::uint8_t& mine = flags_[at];
  if (mask != 0 || where_[at] != nullptr) {
    Hold(entry, mask);  // for any token: its rows are multiplied when all have arrived
  }
  if (mask != 0) {
    if ((mask & expected_mask_) == 0) flags |= kStaged;
    ++counters_.needed;
    fresh_uses_ += where_[at] == nullptr || (mine & kUntested) != 0 ? 1 : 0;
    counters_.hits += where_[at] != nullptr ? 1 : 0;
  }
  if ((mine & kUntested) != 0) {
    mine &= static_cast<std::uint8_t>(~kUntested);
    counters_.ahead_useful_bytes += payload_bytes_;
  }
  if (where_[at] != nullptr || (mine & kWanted) != 0) return false;
  ++wanted_;
  const bool pending = (mine & kPending) != 0;
  counters_.passed += mask != 0 && (mask & expected_mask_) == 0 ? 1 : 0;
  if (pending) counters_.ahead_useful_bytes += payload_bytes_;
  mine |= static_cast<std::uint8_t>(kPending | kWanted | flags);
  return !pending;
}

void NeuronStore::Request(int layer, std::span<const int> neurons,
                          std::span<const std::uint16_t> masks) {
  const Timed timed(counters_.manage_s);
  missing_.clear();
  for (std::size_t k = 0; k < neurons.size(); ++k) {
    if (Need(layer, neurons[k], masks.empty() ? std::uint16_t{1} : masks[k], 0))
      missing_.push_back(neurons[k]);
  }
  if (layer == ahead_layer_) {  // queued guesses: wanted ones are read now, the others are dropped
    queue_->Drop(layer, [&](int neuron) {
      std::uint8_t& flags = flags_[At(layer, neuron)];
      if ((flags & kWanted) != 0) {
        missing_.push_back(neuron);
        counters_.ahead_useful_bytes -= payload_bytes_;
      } else {
        flags = 0;
      }
    });
    for (const int neuron : ahead_) {  // data of wrong guesses in flight is ignored
      std::uint8_t& flags = flags_[At(layer, neuron)];
      if ((flags & kPending) != 0 && (flags & kWanted) == 0) flags = 0;
    }
    ahead_.clear();
    ahead_layer_ = -1;
  }
  queue_->Add(layer, missing_, BundleQueue::Kind::kDemand);
  queue_->Pump();
}

void NeuronStore::RequestForPrompt(int layer, std::span<const int> neurons) {
  const Timed timed(counters_.manage_s);
  missing_.clear();
  for (const int neuron : neurons) {
    if (Need(layer, neuron, 0, kStaged)) missing_.push_back(neuron);
  }
  queue_->Promote(layer);
  queue_->Add(layer, missing_, BundleQueue::Kind::kDemand);
  queue_->Pump();
}

void NeuronStore::RequestAll(int layer, bool counted) {
  for (const int neuron : all_) {
    counters_.needed += counted ? 1 : 0;
    counters_.hits += counted && Has(layer, neuron) ? 1 : 0;
  }
  RequestForPrompt(layer, all_);
}

void NeuronStore::ReadAhead(int layer, std::span<const int> neurons) {
  const Timed timed(counters_.manage_s);
  missing_.clear();
  for (const int neuron : neurons) {
    std::uint8_t& flags = flags_[At(layer, neuron)];
    if (where_[At(layer, neuron)] != nullptr || (flags & kPending) != 0) continue;
    flags |= kPending;
    missing_.push_back(neuron);
  }
  if (layer != ahead_layer_) ahead_.clear();
  ahead_layer_ = layer;
  ahead_.insert(ahead_.end(), missing_.begin(), missing_.end());
  queue_->Add(layer, missing_, BundleQueue::Kind::kAhead);
  queue_->Pump();
}

void NeuronStore::ReadAllAhead(int layer) {
  if (options_.stages < 2) return;
  const Timed timed(counters_.manage_s);
  missing_.clear();
  for (int neuron = 0; neuron < static_cast<int>(neurons_); ++neuron) {
    std::uint8_t& flags = flags_[At(layer, neuron)];
    if (where_[At(layer, neuron)] != nullptr || (flags & kPending) != 0) continue;
    flags |= kPending | kStaged;
    missing_.push_back(neuron);
  }
  if (layer != ahead_layer_) ahead_.clear();
  ahead_layer_ = layer;
  ahead_.insert(ahead_.end(), missing_.begin(), missing_.end());
  queue_->Add(layer, missing_, BundleQueue::Kind::kAhead);
  queue_->Pump();
}

Status NeuronStore::Await() {
  const BundleQueue::Sink sink = [this](const BundleQueue::Arrival& a) { Arrive(a); };
  while (wanted_ > 0) {
    RETURN_IF_ERROR(error_);
    RETURN_IF_ERROR(queue_->Poll(kWaitSlice, sink));
    if (wanted_ > 0 && on_wait_ && !on_wait_())
      return Status(StatusCode::kCancelled, "given up while waiting for flash");
  }
  return OkStatus();
}

void NeuronStore::Poll() {
  if (queue_->idle() || !error_.ok()) return;
  error_ = queue_->Poll(std::chrono::milliseconds(0),
                        [this](const BundleQueue::Arrival& a) { Arrive(a); });
}

void NeuronStore::Arrive(const BundleQueue::Arrival& arrival) {
  const std::size_t at = At(arrival.layer, arrival.neuron);
  const auto entry = static_cast<std::uint32_t>(at);
  std::uint8_t& flags = flags_[at];
  const bool wanted = (flags & kWanted) != 0;
  if ((flags & kPending) == 0 || where_[at] != nullptr) {  // its layer is done, or it arrived twice
    if (arrival.kind == BundleQueue::Kind::kAhead) counters_.ahead_wasted_bytes += payload_bytes_;
    return;
  }
  std::uint8_t* slot = SlotFor(entry, arrival.layer, flags);
  wanted_ -= wanted ? 1 : 0;
  flags = 0;
  if (slot == nullptr) {
    counters_.ahead_wasted_bytes += payload_bytes_;
    return;
  }
  std::memcpy(slot, arrival.data, payload_bytes_);
  where_[at] = slot;
  if (wanted || !InCache(slot)) return;
  flags = kUntested;
  Hold(entry, 0);  // never used, it would be the coldest and be evicted by the next arrival
}

std::uint8_t* NeuronStore::SlotFor(std::uint32_t entry, int layer, std::uint8_t flags) {
  if ((flags & kStaged) != 0) return StageSlot(layer, entry);
  if (free_slots_.empty()) {
    const bool wanted = (flags & kWanted) != 0;
    const std::uint32_t coldest = wanted ? heat_.EvictFor(entry, now_) : heat_.Evict(now_);
    if (coldest == HeatOrder::kNone) {
      if (!wanted) return nullptr;
      ++counters_.overflows;
      return StageSlot(layer, entry);
    }
    Leave(coldest);
    ++counters_.evictions;
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  heat_.Insert(entry);
  return base::Octets(memory_.data()) + slot * slot_bytes_;
}

void NeuronStore::Leave(std::uint32_t entry) {
  const auto* base = base::Octets(memory_.data());
  free_slots_.push_back(static_cast<std::uint32_t>((where_[entry] - base) / slot_bytes_));
  where_[entry] = nullptr;
  if ((flags_[entry] & kUntested) != 0) {
    flags_[entry] = 0;
    counters_.ahead_wasted_bytes += payload_bytes_;
  }
}

std::uint8_t* NeuronStore::StageSlot(int layer, std::uint32_t entry) {
  auto& stage = staged_[layer % staged_.size()];
  const std::size_t slot = options_.slots + layer % staged_.size() * neurons_ + stage.size();
  stage.push_back(entry);
  return base::Octets(memory_.data()) + slot * slot_bytes_;
}

void NeuronStore::EndLayer(int layer) {
  const Timed timed(counters_.manage_s);
  auto& stage = staged_[layer % staged_.size()];
  for (const std::uint32_t entry : stage) {
    where_[entry] = nullptr;
    flags_[entry] = 0;
  }
  stage.clear();
  if (layer != ahead_layer_) return;
  queue_->Drop(layer, [](int) {});
  for (const int neuron : ahead_) {  // reads in flight arrive too late
    std::uint8_t& flags = flags_[At(layer, neuron)];
    if ((flags & kPending) != 0) flags = 0;
  }
  ahead_.clear();
  ahead_layer_ = -1;
}

void NeuronStore::EndStep(int kept) {
  const Timed timed(counters_.manage_s);
  ReleaseAll();
  for (int t = 0; t < std::min(kept, kStepTokensMax); ++t) {
    for (const Use& use : uses_) {
      if ((use.mask >> t & 1) != 0) heat_.Touch(use.entry, now_ + t);
    }
  }
  uses_.clear();
  now_ += kept;
  expected_mask_ = 0xFFFF;
}

void NeuronStore::Abandon() {
  queue_->Abandon();
  ReleaseAll();
  uses_.clear();
  for (std::uint8_t& flags : flags_) flags &= kUntested;
  for (auto& stage : staged_) {
    for (const std::uint32_t entry : stage) where_[entry] = nullptr;
    stage.clear();
  }
  ahead_.clear();
  ahead_layer_ = -1;
  wanted_ = 0;
  error_ = {};
  expected_mask_ = 0xFFFF;
}

FlashCounters NeuronStore::counters() const {
  FlashCounters all = queue_->counters();
  all.needed = counters_.needed;
  all.hits = counters_.hits;
  all.ahead_useful_bytes = counters_.ahead_useful_bytes;
  all.ahead_wasted_bytes = counters_.ahead_wasted_bytes;
  all.evictions = counters_.evictions;
  all.overflows = counters_.overflows;
  all.passed = counters_.passed;
  all.manage_s = counters_.manage_s;
  return all;
}

}  // namespace thermocline::store
