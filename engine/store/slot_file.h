// A file of slots of one size, each found by a key: a cache that outlives the process.
//
//   PATH.table := header [4096]  entry [128]*      entry := key [32] parent [32] checksum [16]
//                                                           used:u64 depth:u32 zero [28] self:u64
//   PATH.slots := slot*                            a slot begins at a multiple of 4096
// `checksum` is XXH3-128 of the slot, `self` XXH3 of the entry before it. A slot is written before
// its entry, and its old entry is erased first, so a process that is killed at any moment leaves
// entries that are complete or absent; where a power failure has reordered the writes, a checksum
// finds it. A damaged slot is a miss.
//
// Keys form chains: an entry names the one before it. Where slots are short, the least recently
// used one is replaced, and never one that a later entry of its chain needs before that entry.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace thermocline::store {

using SlotKey = std::array<std::byte, 32>;
// For tables of keys, which are hashes themselves.
struct SlotKeyHash {
  std::size_t operator()(const SlotKey& key) const;
};

// Any thread may read.
struct SlotFileCounters {
  std::atomic<std::int64_t> slots{0};    // with an entry
  std::atomic<std::int64_t> evicted{0};  // slots that were replaced
  std::atomic<std::int64_t> damaged{0};  // slots whose checksum was wrong
  std::atomic<std::int64_t> read_bytes{0}, written_bytes{0};
};

// Thread-safe. One process writes; others that open the same file read what it held then.
class SlotFile {
 public:
  struct Options {
    std::string path;            // of both files, without the ending
    std::size_t slot_bytes = 0;  // of every slot
    std::uint64_t bytes_max = 0;
  };
  // Opens or creates both files, readable by their owner alone. Files of another version or size of
  // slots are replaced. Errors as base::ErrnoStatus.
  static Result<std::unique_ptr<SlotFile>> Open(const Options& options);
  ~SlotFile();
  SlotFile(const SlotFile&) = delete;
  SlotFile& operator=(const SlotFile&) = delete;

  bool read_only() const { return read_only_; }  // another process writes
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::uint64_t bytes_max() const { return slots_max_ * stride_; }
  std::uint64_t bytes() const { return counters_.slots * stride_; }

  bool Has(const SlotKey& key) const EXCLUDES(mutex_);
  // True if a slot follows this one.
  bool HasChild(const SlotKey& key) const EXCLUDES(mutex_);
  // Marks the slots of a chain, the first one first, as used now.
  void Touch(std::span<const SlotKey> chain) EXCLUDES(mutex_);
  // Forgets the slots of a chain behind one that was damaged, so that they are written anew.
  void Drop(std::span<const SlotKey> chain) EXCLUDES(mutex_);
  // Lets the system read a slot ahead.
  void WillRead(const SlotKey& key) const EXCLUDES(mutex_);
  // Requires: out of slot_bytes(). NotFound: no such slot. DataLoss: its checksum was wrong, and it
  // is gone. Errors as base::ErrnoStatus.
  Status Read(const SlotKey& key, std::span<std::byte> out) EXCLUDES(mutex_);
  // The place of a new slot: it follows `parent` as the `depth`-th of its chain; 0: `parent` need
  // not have a slot. In a full file each owner keeps its equal share of
  // what was used within a day.
  struct Place {
    SlotKey parent{};
    int depth = 0;
    std::uint32_t owner = 0;
  };
  // OK if the key has a slot already. Requires: data of slot_bytes(); one thread writes.
  // ResourceExhausted: no space is left. FailedPrecondition: read_only(), the parent is missing, or
  // the chain alone fills what its owner may have. Errors as base::ErrnoStatus.
  Status Write(const SlotKey& key, const Place& place, std::span<const std::byte> data)
      EXCLUDES(mutex_);

  const SlotFileCounters& counters() const { return counters_; }

 private:
  struct Entry;
  struct Slot {
    SlotKey key{}, parent{};
    std::array<std::uint64_t, 2> checksum{};
    std::uint64_t used = 0;  // Unix time in seconds
    std::uint32_t depth = 0, owner = 0;
    std::uint64_t turn = 0;  // larger: used later
    int pins = 0;            // readers, or a writer
    bool taken = false;
    std::list<std::uint32_t>::iterator order{};  // in the owner's list, if taken
  };
  using SlotList = std::list<std::uint32_t>;
  SlotFile(const Options& options, int table, int slots);
  Status Load() EXCLUDES(mutex_);
  Status Reset();
  void Order() REQUIRES(mutex_);
  // Returns a slot without entry, pinned; nullopt: nothing but the chain of the parent could go.
  std::optional<std::uint32_t> TakeSlot(const Place& place) REQUIRES(mutex_);
  // Returns the slot to replace: one that was not used for a day, or of the owner with most slots.
  std::optional<std::uint32_t> FindOldest(const Place& place) const REQUIRES(mutex_);
  void Remember(std::uint32_t slot) REQUIRES(mutex_);
  void Forget(std::uint32_t slot) REQUIRES(mutex_);
  void Free(std::uint32_t slot) REQUIRES(mutex_);
  bool MayGrow() const;
  Status WriteEntry(std::uint32_t slot, const Entry* entry) const;

  const std::string path_;
  const std::size_t slot_bytes_, stride_;
  const std::uint64_t slots_max_;
  const int table_, slots_;  // descriptors
  bool read_only_ = false;
  SlotFileCounters counters_;

  mutable base::Mutex mutex_;
  std::vector<Slot> all_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ GUARDED_BY(mutex_);
  // By owner, the least recently used first.
  std::map<std::uint32_t, SlotList> orders_ GUARDED_BY(mutex_);
  std::uint64_t turn_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<SlotKey, std::uint32_t, SlotKeyHash> index_ GUARDED_BY(mutex_);
  std::unordered_map<SlotKey, int, SlotKeyHash> children_ GUARDED_BY(mutex_);  // slots by parent
};

}  // namespace thermocline::store
