// The prefix cache's second tier: KV blocks and recurrent states of earlier requests on flash,
// which outlive the process.
//
// Whole blocks of 64 tokens are written behind, by a thread of their own, once a request ends or
// its prompt is complete; a block is found by the chain of keys of all tokens up to its end
// (prefix_keys.h). What is restored has the bits of what was computed. A sequence reads its blocks
// in slices between the steps of others, so nobody waits for a long restore.
//
// Layers with a window have blocks of their own, of which only the last window's are read. A state
// of recurrent layers is one slot, beside the block that ends where it does.
//
// Source: SGLang's HiCache and vLLM's offloading for tiers below memory, oMLX for blocks on a disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/kv_cache.h"
#include "engine/prefix/prefix_keys.h"
#include "engine/prefix/prefix_writer.h"
#include "engine/store/slot_file.h"

namespace thermocline::prefix {

// Any thread may read.
struct FlashPrefixCounters {
  std::atomic<std::int64_t> hits{0}, partial{0}, misses{0};  // lookups behind what memory had
  std::atomic<std::int64_t> hit_tokens{0};                   // restored
  std::atomic<double> read_s{0};
};

// A prefix on its way into a sequence's KV cache.
struct Restoring {
  std::vector<store::SlotKey> blocks;  // the keys of blocks to append
  std::vector<store::SlotKey>
      windows;  // of the last of these, their blocks of layers with a window
  std::optional<store::SlotKey> state;
  int end = 0;           // tokens of the sequence when all is restored
  std::size_t next = 0;  // the first block that is not yet restored
};

// Decode thread only, except the counters. Borrows the pool.
class FlashPrefixes {
 public:
  struct Options {
    std::string folder;
    std::int64_t bytes_max = 0;  // of all files in the folder
    std::string fingerprint;     // names what a block's bytes depend on beside tokens
    int tokens_min = 256;        // shorter prefixes are not kept: computing them is quick
  };
  // Creates the folder if it is missing. Errors as store::SlotFile::Open and FolderSecret.
  static Result<std::unique_ptr<FlashPrefixes>> Open(nn::KvPool& pool, const Options& options);
  FlashPrefixes(const FlashPrefixes&) = delete;
  FlashPrefixes& operator=(const FlashPrefixes&) = delete;

  // Looks for a longer prefix of `tokens` of `owner` than `cache` holds, the last token excluded.
  // nullopt: there is none, or computing the rest is faster than reading it. Otherwise `cache` is
  // cut to where the restored blocks begin.
  std::optional<Restoring> Find(std::string_view owner, std::span<const int> tokens,
                                nn::KvCache& cache);
  // Blocks that the next slice takes from the pool.
  static nn::KvCount Wanted(const Restoring& restoring);
  enum class Progress { kMore, kDone, kFailed };
  // Restores a slice: some blocks, at most kSliceBlocks or kSliceS seconds. kFailed: a block is
  // damaged or gone, and `cache` keeps the part before it if it can continue there; else it is
  // empty.
  Progress Restore(Restoring& restoring, nn::KvCache& cache);

  // Queues what `cache` holds of `tokens` of `owner` for writing.
  void Keep(std::string_view owner, std::span<const int> tokens, const nn::KvCache& cache);
  // As PrefixWriter's.
  void ReleaseWritten() {
    if (writer_ != nullptr) writer_->ReleaseWritten();
  }
  // Waits for the writer no longer than computing the blocks again would take.
  void MakeRoom(const nn::KvCount& blocks);
  // Sets the measured time of computing a prompt's token, with which reading is compared.
  void SetComputeSeconds(double token_s) { compute_s_ = token_s; }

  const FlashPrefixCounters& counters() const { return counters_; }
  // Null if nothing is written.
  const PrefixWriterCounters* writer_counters() const {
    return writer_ == nullptr ? nullptr : &writer_->counters();
  }
  // Sums over the files.
  struct FileFigures {
    std::int64_t bytes = 0, bytes_max = 0, blocks = 0, evicted = 0, damaged = 0;
    std::int64_t read_bytes = 0, written_bytes = 0;
  };
  FileFigures figures() const;
  const std::string& folder() const { return folder_; }
  bool read_only() const { return blocks_->read_only(); }

 private:
  static constexpr int kSliceBlocks = 16;
  FlashPrefixes(nn::KvPool& pool, const Options& options, PrefixKeys keys);
  Status OpenFiles(const Options& options);
  // The end of the longest stored prefix whose last window is stored, too.
  int EndOf(std::span<const store::SlotKey> chain, int begin, const nn::KvCache& cache) const;
  std::optional<Restoring> FindState(std::span<const store::SlotKey> chain,
                                     std::span<const int> tokens, const nn::KvCache& cache) const;
  bool Pays(const Restoring& restoring, int tokens);
  Status RestoreBlock(const Restoring& restoring, nn::KvCache& cache);
  Status RestoreState(const Restoring& restoring, nn::KvCache& cache);
  void ReadAhead(const Restoring& restoring, std::size_t block) const;
  void KeepBlock(const nn::KvCache& cache, const store::SlotKey& key,
                 const store::SlotFile::Place& place);
  void KeepState(std::span<const store::SlotKey> chain, std::span<const int> tokens,
                 const nn::KvCache& cache);

  nn::KvPool& pool_;
  const std::string folder_;
  const PrefixKeys keys_;
  const int tokens_min_;
  std::unique_ptr<store::SlotFile> blocks_, windows_, states_;  // null where the model has none
  FlashPrefixCounters counters_;
  double compute_s_ = 0;                  // of a token; 0: not known
  double read_s_ = 0;                     // of a byte; 0: not known
  std::unique_ptr<PrefixWriter> writer_;  // null: another process writes. Ends before the files.
};

}  // namespace thermocline::prefix
