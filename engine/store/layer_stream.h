// Streams the layers of a model that is larger than memory and has no zeros to skip: each streamed
// layer is read whole, one after the other, into one of two stages, while the layer before it is
// computed in the other.
//
// Streamed layers alternate between the stages, so a layer's weights have a fixed address. The
// layers kept in memory are spread evenly between them, to give the device time.
// *Source:* FlexInfer (2503.03777): keep the same share of every stretch of layers in memory, not
// the first ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/api/flash_stats.h"
#include "engine/store/block_reader.h"
#include "engine/store/bundle_format.h"

namespace thermocline::store {

// The streamed layers of L if `held` stay in memory: an even number, so that the layers of one
// stage also alternate across the end of a token. [L] the stage, or -1.
std::vector<int> SpreadStages(int layers, int held);

// Decode thread only. Allocates nothing after Create.
class LayerStream {
 public:
  struct Layer {
    int stage = -1;                   // -1: in memory
    std::span<std::byte> image = {};  // the memory it is read into, at the reader's alignment
  };
  // Starts reading the first layers. FailedPrecondition: the file holds other images.
  static Result<std::unique_ptr<LayerStream>> Create(BundleIndex index,
                                                     std::unique_ptr<BlockReader> reader,
                                                     std::vector<Layer> layers,
                                                     std::span<std::byte> stages);
  ~LayerStream();

  // Waits until the layer has been read; returns at once if it is in memory. Errors as
  // BundleQueue::Poll.
  Status Wait(int layer);
  // The layer has been computed: its stage may be overwritten.
  void Done(int layer);
  // Called after an error: the next Wait starts over.
  void Abandon();
  void SetOnWait(std::function<bool()> on_wait) { on_wait_ = std::move(on_wait); }

  const FlashCounters& counters() const { return counters_; }
  const BlockReader& reader() const { return *reader_; }

 private:
  struct Chunk {
    std::int32_t layer = -1, number = 0;
    std::uint8_t tries = 0;
    std::uint32_t epoch = 0;
  };

  LayerStream(BundleIndex index, std::unique_ptr<BlockReader> reader, std::vector<Layer> layers);
  // Queues the layer's chunks.
  void Begin(int layer);
  void Pump();
  Status FinishAll(int ended);
  Status Finish(const Completion& completion);
  int Next(int layer) const;  // next streamed layer, wrapping around
  std::uint32_t ChunkBytes(const Chunk& chunk) const;

  const BundleIndex index_;
  const std::unique_ptr<BlockReader> reader_;
  const std::vector<Layer> layers_;
  std::vector<int> missing_;   // [L] chunks that have not arrived; -1: not begun
  std::vector<int> in_stage_;  // the layer that each stage holds or awaits
  std::vector<Chunk> queue_;   // the front is taken first
  std::size_t queue_begin_ = 0;
  std::vector<Chunk> under_way_;   // [depth]
  std::vector<std::size_t> free_;  // of under_way_
  std::vector<BlockReader::Read> starting_;
  std::vector<Completion> ended_;
  std::uint32_t epoch_ = 0;  // reads of an earlier epoch are ignored
  int in_flight_ = 0;
  bool stale_ = false;  // some reads in flight belong to an earlier epoch
  std::function<bool()> on_wait_;
  FlashCounters counters_;
};

}  // namespace thermocline::store
