#include "engine/store/layer_stream.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/index.h"
#include "kernels/crc32c.h"

namespace thermocline::store {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kImageWait{50};
constexpr int kImageTriesMax = 3;
constexpr int kCrcTriesMax = 2;

Status GivenUp() { return Status(StatusCode::kCancelled, "given up while waiting for flash"); }

}  // namespace

std::vector<int> SpreadStages(int layers, int held) {
  std::vector<int> stages(layers, -1);
  int streamed = layers - held;
  if (streamed % 2 != 0) ++streamed;
  streamed = std::min(streamed, layers - layers % 2);
  for (int i = 0; i < streamed; ++i) stages[(2 * i + 1) * layers / (2 * streamed)] = i % 2;
  return stages;
}

LayerStream::LayerStream(BundleIndex index, std::unique_ptr<BlockReader> reader,
                         std::vector<Layer> layers)
    : index_(std::move(index)),
      reader_(std::move(reader)),
      layers_(std::move(layers)),
      missing_(layers_.size(), -1) {}

Result<std::unique_ptr<LayerStream>> LayerStream::Create(BundleIndex index,
                                                         std::unique_ptr<BlockReader> reader,
                                                         std::vector<Layer> layers,
                                                         std::span<std::byte> stages) {
  std::unique_ptr<LayerStream> s(
      new LayerStream(std::move(index), std::move(reader), std::move(layers)));
  std::size_t largest = 0;
  for (const Layer& layer : s->layers_) largest = std::max(largest, layer.image.size());
  if (s->index_.image_bytes != largest) {
    return base::FailedPrecondition(s->reader_->path(), ": image_bytes is ", s->index_.image_bytes,
                                    ", but the model's largest "
                                    "layer takes ",
                                    largest, " in memory; pack it again with the same options");
  }
  RETURN_IF_ERROR(s->reader_->SetMemory(stages));
  const std::size_t depth = s->reader_->depth();
  const std::size_t chunks = (largest + kLayerCheckBytes - 1) / kLayerCheckBytes;
  s->queue_.reserve(4 * chunks + depth);
  s->under_way_.resize(depth);
  s->starting_.reserve(depth);
  s->ended_.resize(depth);
  for (std::size_t i = 0; i < depth; ++i) s->free_.push_back(i);
  int num_stages = 0;
  for (const Layer& layer : s->layers_) num_stages = std::max(num_stages, layer.stage + 1);
  s->in_stage_.assign(num_stages, -1);
  return s;
}

LayerStream::~LayerStream() {
  Abandon();
  while (in_flight_ > 0) in_flight_ -= reader_->Wait(ended_, std::chrono::milliseconds(100));
}

int LayerStream::Next(int layer) const {
  const auto n = base::IntSize(layers_);
  for (int i = 1; i <= n; ++i) {
    const int next = (layer + i) % n;
    if (layers_[next].stage >= 0) return next;
  }
  return layer;
}

std::uint32_t LayerStream::ChunkBytes(const Chunk& chunk) const {
  const std::size_t bytes = layers_[chunk.layer].image.size();
  const std::size_t begin = chunk.number * kLayerCheckBytes;
  return static_cast<std::uint32_t>(std::min(kLayerCheckBytes, bytes - begin));
}

void LayerStream::Begin(int layer) {
  const std::size_t at = layer;
  const Layer& l = layers_[at];
  const std::size_t stage = l.stage;
  if (const int before = in_stage_[stage]; before >= 0) missing_[before] = -1;
  in_stage_[stage] = layer;
  missing_[at] = static_cast<int>((l.image.size() + kLayerCheckBytes - 1) / kLayerCheckBytes);
  // Only entries of one other layer can be waiting; entries already taken are erased, because they
  // would accumulate while the device is slow.
  queue_.erase(queue_.begin(), queue_.begin() + queue_begin_);
  queue_begin_ = 0;
  for (int i = 0; i < missing_[at]; ++i) queue_.push_back({layer, i, 0, epoch_});
}

void LayerStream::Pump() {
  starting_.clear();
  while (!free_.empty() && queue_begin_ < queue_.size()) {
    const std::size_t slot = free_.back();
    free_.pop_back();
    const Chunk& chunk = under_way_[slot] = queue_[queue_begin_++];
    const std::size_t begin = chunk.number * kLayerCheckBytes;
    starting_.push_back({.offset = index_.ImageOffset(chunk.layer) + begin,
                         .out = layers_[chunk.layer].image.data() + begin,
                         .bytes = ChunkBytes(chunk),
                         .tag = slot});
    ++counters_.reads;
    counters_.bytes += ChunkBytes(chunk);
  }
  if (starting_.empty()) return;
  in_flight_ += base::IntSize(starting_);
  reader_->Submit(starting_);
}

Status LayerStream::Wait(int layer) {
  const std::size_t at = layer;
  if (layers_[at].stage < 0) {
    Pump();
    return OkStatus();
  }
  while (stale_) {  // reads of the earlier epoch still write to the stages
    RETURN_IF_ERROR(FinishAll(reader_->Wait(ended_, kImageWait)));
    stale_ = in_flight_ > 0;
    if (stale_ && on_wait_ && !on_wait_()) return GivenUp();
  }
  if (missing_[at] < 0) {  // the first token, or one after an error
    Begin(layer);
    if (const int next = Next(layer); next != layer && missing_[next] < 0) Begin(next);
  }
  while (missing_[at] > 0) {
    Pump();
    const auto begin = Clock::now();
    const int ended = reader_->Wait(ended_, kImageWait);
    const auto arrived = Clock::now();
    counters_.wait_s += std::chrono::duration<double>(arrived - begin).count();
    RETURN_IF_ERROR(FinishAll(ended));
    counters_.arrive_s += std::chrono::duration<double>(Clock::now() - arrived).count();
    if (missing_[at] > 0 && on_wait_ && !on_wait_()) return GivenUp();
  }
  return OkStatus();
}

// Finishes all of them, even if the first fails, because none is in flight any more.
Status LayerStream::FinishAll(int ended) {
  Status first_error;
  for (int i = 0; i < ended; ++i) {
    Status status = Finish(ended_[i]);
    if (first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Status LayerStream::Finish(const Completion& completion) {
  const std::size_t slot = completion.tag;
  Chunk chunk = under_way_[slot];
  --in_flight_;
  free_.push_back(slot);
  if (chunk.epoch != epoch_) return OkStatus();
  const std::size_t at = chunk.layer;
  const std::uint32_t bytes = ChunkBytes(chunk);
  const std::byte* data = layers_[at].image.data() + chunk.number * kLayerCheckBytes;
  const bool whole = completion.result == static_cast<std::int64_t>(bytes);
  if (whole && kernels::Crc32c(data, bytes) == index_.image_crc[at][chunk.number]) {
    --missing_[at];
    return OkStatus();
  }
  ++(whole ? counters_.crc_errors : counters_.io_errors);
  if (++chunk.tries < (whole ? kCrcTriesMax : kImageTriesMax)) {
    ++counters_.retries;
    queue_.push_back(chunk);
    return OkStatus();
  }
  const auto where = StrCat(reader_->path(), ": layer ", chunk.layer, ", MiB ", chunk.number, ": ");
  if (whole)
    return base::DataLoss(where,
                          "the CRC32C is not the one that was packed, twice; the file is "
                          "damaged: pack it again");
  if (completion.result < 0) {
    return base::Unavailable(where, "the device failed ", kImageTriesMax,
                             " times: ", std::strerror(static_cast<int>(-completion.result)));
  }
  return base::DataLoss(where, "only ", completion.result, " of ", bytes,
                        " bytes came; the file was truncated while open: pack it again");
}

void LayerStream::Done(int layer) {
  if (layers_[layer].stage < 0) return;
  // The next layer is in the other stage already; the one after it goes into this stage.
  const int next = Next(Next(layer));
  if (next == layer) return;  // two layers: both stay in memory
  Begin(next);
  Pump();
}

void LayerStream::Abandon() {
  ++epoch_;
  stale_ = in_flight_ > 0;
  queue_.clear();
  queue_begin_ = 0;
  std::fill(missing_.begin(), missing_.end(), -1);
  std::fill(in_stage_.begin(), in_stage_.end(), -1);
}

}  // namespace thermocline::store
