// The thread that writes prefixes to flash behind the requests that left them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>
#include <unordered_set>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/nn/kv_pool.h"
#include "engine/store/slot_file.h"

namespace thermocline::prefix {

// Any thread may read.
struct PrefixWriterCounters {
  std::atomic<std::int64_t> dropped_for_room{0};  // items given up because memory was short
  std::atomic<std::int64_t> dropped_by_error{0};  // items that the disk refused
  std::atomic<std::int64_t> queued{0};            // items that are not written yet
};

// Decode thread only, except the counters. Borrows the pool and the files of the items.
class PrefixWriter {
 public:
  // A slot to write: a block of the pool, which it holds until it is written, or a copied state.
  struct Item {
    store::SlotFile* file = nullptr;
    store::SlotKey key{};
    store::SlotFile::Place place = {};
    nn::KvKind kind = nn::KvKind::kWhole;
    int block = -1;
    std::vector<float> state = {};
  };

  explicit PrefixWriter(nn::KvPool& pool);
  // Writes what is queued, for some seconds at most.
  ~PrefixWriter();
  PrefixWriter(const PrefixWriter&) = delete;
  PrefixWriter& operator=(const PrefixWriter&) = delete;

  // Queues an item, unless one of its file and key is queued. A state is refused while two wait,
  // because they are copies.
  void Enqueue(Item item) EXCLUDES(mutex_);
  // True if Enqueue would take a state.
  bool TakesStates() const EXCLUDES(mutex_);
  // Gives back the memory of written blocks.
  void ReleaseWritten() EXCLUDES(mutex_);
  // Waits at most `patience` for blocks to be written, and then gives up queued ones, the last ones
  // first, until the pool has `blocks` free.
  void MakeRoom(const nn::KvCount& blocks, std::chrono::duration<double> patience) EXCLUDES(mutex_);

  const PrefixWriterCounters& counters() const { return counters_; }

 private:
  static store::SlotKey NameOf(const Item& item);
  void Forget(const Item& item) REQUIRES(mutex_);
  void ReleaseBlocks() REQUIRES(mutex_);
  void DropLast() REQUIRES(mutex_);
  void Main() EXCLUDES(mutex_);
  Status Write(const Item& item);

  nn::KvPool& pool_;
  PrefixWriterCounters counters_;
  mutable base::Mutex mutex_;
  base::Condition changed_, wrote_;
  std::deque<Item> queue_ GUARDED_BY(mutex_);
  std::vector<Item> written_ GUARDED_BY(mutex_);
  std::unordered_set<store::SlotKey, store::SlotKeyHash> queued_ GUARDED_BY(mutex_);
  int states_queued_ GUARDED_BY(mutex_) = 0;
  bool writing_ GUARDED_BY(mutex_) = false, ends_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace thermocline::prefix
