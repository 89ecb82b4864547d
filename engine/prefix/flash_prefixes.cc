#include "engine/prefix/flash_prefixes.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"
#include "engine/prefix/prefix_folder.h"

namespace thermocline::prefix {

using nn::KvKind;
using store::SlotFile;
using store::SlotKey;

namespace {

constexpr int kBlock = kernels::kKvBlock;
constexpr double kSliceS = 0.01;
constexpr std::size_t kReadAhead = 16;  // blocks

// The name of a chain's owner among those of a file: the root of its chains is nobody else's.
std::uint32_t OwnerOf(std::span<const SlotKey> chain) {
  std::uint32_t owner = 0;
  std::memcpy(&owner, chain.front().data(), sizeof(owner));
  return owner;
}

}  // namespace

FlashPrefixes::FlashPrefixes(nn::KvPool& pool, const Options& options, PrefixKeys keys)
    : pool_(pool),
      folder_(options.folder),
      keys_(std::move(keys)),
      tokens_min_(options.tokens_min) {}

Result<std::unique_ptr<FlashPrefixes>> FlashPrefixes::Open(nn::KvPool& pool,
                                                           const Options& options) {
  RETURN_IF_ERROR(MakeFolder(options.folder));
  ASSIGN_OR_RETURN(std::string secret, FolderSecret(options.folder));
  std::unique_ptr<FlashPrefixes> out(
      new FlashPrefixes(pool, options, PrefixKeys(std::move(secret), options.fingerprint)));
  RETURN_IF_ERROR(out->OpenFiles(options));
  if (!out->read_only()) out->writer_ = std::make_unique<PrefixWriter>(pool);
  return out;
}

// The files share the bytes as their slots do, and states get as much as blocks.
Status FlashPrefixes::OpenFiles(const Options& options) {
  const std::string path = folder_ + "/" + keys_.FileName();
  ASSIGN_OR_RETURN(const std::uint64_t bytes,
                   RoomInFolder(folder_, keys_.FileName(), options.bytes_max));
  const std::size_t whole = pool_.block_bytes(KvKind::kWhole),
                    window = pool_.window() > 0 ? pool_.block_bytes(KvKind::kWindow) : 0;
  const nn::StateLayout& layout = pool_.states().layout();
  const std::uint64_t of_blocks = layout.any() ? bytes / 2 : bytes;
  const auto open = [&](const char* kind, std::size_t slot, std::uint64_t most) {
    return SlotFile::Open({.path = path + kind, .slot_bytes = slot, .bytes_max = most});
  };
  const double share = static_cast<double>(whole) / static_cast<double>(whole + window);
  const auto of_whole = static_cast<std::uint64_t>(share * static_cast<double>(of_blocks));
  ASSIGN_OR_RETURN(blocks_, open(".blocks", whole, of_whole));
  if (window > 0) {
    ASSIGN_OR_RETURN(windows_, open(".windows", window, of_blocks - of_whole));
  }
  if (layout.any()) {
    ASSIGN_OR_RETURN(states_,
                     open(".states", layout.state_floats() * sizeof(float), bytes - of_blocks));
  }
  return OkStatus();
}

std::optional<Restoring> FlashPrefixes::Find(std::string_view owner, std::span<const int> tokens,
                                             nn::KvCache& cache) {
  if (base::IntSize(tokens) <= tokens_min_) return std::nullopt;
  const auto usable = tokens.first(tokens.size() - 1);
  const std::vector<SlotKey> chain = keys_.Chain(owner, usable);
  std::optional<Restoring> found;
  const int begin = cache.length() / kBlock;
  if (states_ != nullptr) {
    found = FindState(chain, usable, cache);
  } else if (const int end = EndOf(chain, begin, cache); end > begin) {
    found.emplace();
    found->end = end * kBlock;
    found->blocks.assign(chain.begin() + begin + 1, chain.begin() + end + 1);
    if (const int window = pool_.window(); window > 0) {
      const int first = std::max(begin, std::max(0, found->end + 1 - window) / kBlock);
      found->windows.assign(chain.begin() + first + 1, chain.begin() + end + 1);
    }
  }
  if (!found.has_value() || !Pays(*found, found->end - cache.length())) {
    ++counters_.misses;
    return std::nullopt;
  }
  ++(found->end + kBlock > base::IntSize(usable) ? counters_.hits : counters_.partial);
  cache.SetLength(states_ != nullptr ? 0 : begin * kBlock);
  blocks_->Touch(chain);
  if (windows_ != nullptr) windows_->Touch(found->windows);
  if (found->state.has_value()) states_->Touch(std::span(&*found->state, 1));
  for (std::size_t i = 0; i < kReadAhead; ++i) ReadAhead(*found, i);
  return found;
}

int FlashPrefixes::EndOf(std::span<const SlotKey> chain, int begin,
                         const nn::KvCache& cache) const {
  int end = begin;
  while (end + 1 < base::IntSize(chain) && blocks_->Has(chain[end + 1])) ++end;
  if (pool_.window() == 0) return end;
  for (; end > begin; --end) {
    const int first = std::max(0, end * kBlock + 1 - pool_.window()) / kBlock;
    bool complete = true;
    for (int i = first; i < end && complete; ++i)
      complete = i < begin ? cache.block(i).window >= 0 : windows_->Has(chain[i + 1]);
    if (complete) return end;
  }
  return begin;
}

// The last stored state behind what `cache` has, with all blocks before it.
std::optional<Restoring> FlashPrefixes::FindState(std::span<const SlotKey> chain,
                                                  std::span<const int> tokens,
                                                  const nn::KvCache& cache) const {
  int whole = 0;  // stored blocks
  while (whole + 1 < base::IntSize(chain) && blocks_->Has(chain[whole + 1])) ++whole;
  for (int i = whole; i >= 0; --i) {
    if (!states_->HasChild(chain[i])) continue;
    const int first = i * kBlock, last = std::min(first + kBlock, base::IntSize(tokens));
    for (int end = last; end > std::max(first, cache.length()); --end) {
      const auto since = tokens.subspan(first, end - first);
      const SlotKey state = PrefixKeys::State(chain[i], since);
      const SlotKey block = PrefixKeys::Block(chain[i], since);
      if (!states_->Has(state) || !blocks_->Has(block)) continue;
      Restoring found;
      found.blocks.assign(chain.begin() + 1, chain.begin() + i + 1);
      found.blocks.push_back(block);
      found.state = state;
      found.end = end;
      return found;
    }
  }
  return std::nullopt;
}

// True if reading is expected to be faster than computing the same tokens. Only reading measures
// itself, so each refusal counts the disk a little faster: it is tried again in time.
bool FlashPrefixes::Pays(const Restoring& restoring, int tokens) {
  if (read_s_ == 0 || compute_s_ == 0) return true;
  double bytes = static_cast<double>(restoring.blocks.size() * blocks_->slot_bytes());
  if (windows_ != nullptr)
    bytes += static_cast<double>(restoring.windows.size() * windows_->slot_bytes());
  if (restoring.state.has_value()) bytes += static_cast<double>(states_->slot_bytes());
  if (bytes * read_s_ < tokens * compute_s_) return true;
  constexpr double kForget = 0.9;
  read_s_ *= kForget;
  return false;
}

nn::KvCount FlashPrefixes::Wanted(const Restoring& restoring) {
  const int left = base::IntSize(restoring.blocks) - static_cast<int>(restoring.next);
  const int count = std::min(left, kSliceBlocks);
  return {count, std::min(count, base::IntSize(restoring.windows)),
          restoring.state.has_value() ? 1 : 0};
}

FlashPrefixes::Progress FlashPrefixes::Restore(Restoring& restoring, nn::KvCache& cache) {
  const base::Stopwatch watch;
  const int before = cache.length();
  std::int64_t bytes = 0;
  Status status = OkStatus();
  for (int i = 0; i < kSliceBlocks && restoring.next < restoring.blocks.size(); ++i) {
    status = RestoreBlock(restoring, cache);
    if (!status.ok()) break;
    bytes += static_cast<std::int64_t>(blocks_->slot_bytes());
    ++restoring.next;
    if (watch.Seconds() > kSliceS) break;
  }
  const bool all = restoring.next == restoring.blocks.size();
  if (status.ok() && all && restoring.state.has_value()) status = RestoreState(restoring, cache);
  const double seconds = watch.Seconds();
  counters_.read_s = counters_.read_s + seconds;
  if (bytes > 0) {
    constexpr double kWeight = 0.25;
    const double each = seconds / static_cast<double>(bytes);
    read_s_ = read_s_ == 0 ? each : read_s_ + kWeight * (each - read_s_);
  }
  if (status.code() == StatusCode::kDataLoss)
    blocks_->Drop(std::span(restoring.blocks).subspan(restoring.next));
  if (!status.ok() && (windows_ != nullptr || states_ != nullptr)) cache.Clear();
  counters_.hit_tokens += std::max(0, cache.length() - before);
  if (!status.ok()) return Progress::kFailed;
  return all ? Progress::kDone : Progress::kMore;
}

Status FlashPrefixes::RestoreBlock(const Restoring& restoring, nn::KvCache& cache) {
  const std::size_t index = restoring.next, left = restoring.blocks.size() - index;
  ReadAhead(restoring, index + kReadAhead);
  nn::KvBlock block;
  const auto read = [&](SlotFile& file, KvKind kind, const SlotKey& key) -> Status {
    block[kind] = pool_.Take(kind);
    if (block[kind] < 0) return base::ResourceExhausted("no block of the KV cache is free");
    return file.Read(
        key, {reinterpret_cast<std::byte*>(pool_.data(kind, block[kind])), file.slot_bytes()});
  };
  Status status = read(*blocks_, KvKind::kWhole, restoring.blocks[index]);
  const std::size_t windows = restoring.windows.size();
  if (status.ok() && left <= windows)
    status = read(*windows_, KvKind::kWindow, restoring.windows[windows - left]);
  if (!status.ok()) {
    for (const KvKind kind : pool_.kinds())
      if (block[kind] >= 0) pool_.Release(kind, block[kind]);
    return status;
  }
  cache.Append(block, std::min(kBlock, restoring.end - cache.length()));
  return OkStatus();
}

Status FlashPrefixes::RestoreState(const Restoring& restoring, nn::KvCache& cache) {
  std::vector<float> state(pool_.states().layout().state_floats());
  RETURN_IF_ERROR(states_->Read(*restoring.state, std::as_writable_bytes(std::span(state))));
  if (cache.AdoptState(state, restoring.end)) return OkStatus();
  return base::ResourceExhausted("no state of recurrent layers is free");
}

void FlashPrefixes::ReadAhead(const Restoring& restoring, std::size_t block) const {
  if (block >= restoring.blocks.size()) {
    if (block == restoring.blocks.size() && restoring.state.has_value())
      states_->WillRead(*restoring.state);
    return;
  }
  blocks_->WillRead(restoring.blocks[block]);
  const std::size_t left = restoring.blocks.size() - block, windows = restoring.windows.size();
  if (left <= windows) windows_->WillRead(restoring.windows[windows - left]);
}

void FlashPrefixes::MakeRoom(const nn::KvCount& blocks) {
  if (writer_ == nullptr) return;
  constexpr double kPatienceMax = 0.1;  // seconds, for others that answer
  const double again_s = std::max(1, blocks.whole) * kBlock * compute_s_;
  const double patience_s = compute_s_ == 0 ? kPatienceMax : std::min(again_s, kPatienceMax);
  writer_->MakeRoom(blocks, std::chrono::duration<double>(patience_s));
}

void FlashPrefixes::Keep(std::string_view owner, std::span<const int> tokens,
                         const nn::KvCache& cache) {
  ReleaseWritten();
  if (writer_ == nullptr || base::IntSize(tokens) < tokens_min_) return;
  const std::vector<SlotKey> chain = keys_.Chain(owner, tokens);
  blocks_->Touch(chain);
  for (int i = 0; i + 1 < base::IntSize(chain); ++i)
    KeepBlock(cache, chain[i + 1], {.parent = chain[i], .depth = i, .owner = OwnerOf(chain)});
  if (states_ != nullptr && cache.has_state()) KeepState(chain, tokens, cache);
}

// `place.depth` is the block's index.
void FlashPrefixes::KeepBlock(const nn::KvCache& cache, const SlotKey& key,
                              const SlotFile::Place& place) {
  const nn::KvBlock block = cache.block(place.depth);
  const auto keep = [&](SlotFile* file, KvKind kind) {
    if (file == nullptr || block[kind] < 0 || file->Has(key)) return;
    SlotFile::Place own = place;
    if (kind == KvKind::kWindow) own.depth = 0;  // the blocks before a window need not be there
    writer_->Enqueue({.file = file, .key = key, .place = own, .kind = kind, .block = block[kind]});
  };
  keep(blocks_.get(), KvKind::kWhole);
  keep(windows_.get(), KvKind::kWindow);
}

void FlashPrefixes::KeepState(std::span<const SlotKey> chain, std::span<const int> tokens,
                              const nn::KvCache& cache) {
  const int end = cache.state_length();
  if (end < tokens_min_ || end > base::IntSize(tokens)) return;
  const int index = (end - 1) / kBlock;
  const auto since = tokens.subspan(index * kBlock, end - index * kBlock);
  const SlotKey key = PrefixKeys::State(chain[index], since);
  if (states_->Has(key) || !writer_->TakesStates()) return;
  const SlotFile::Place place{.parent = chain[index], .depth = index, .owner = OwnerOf(chain)};
  KeepBlock(cache, PrefixKeys::Block(chain[index], since), place);
  const std::span<const float> state = cache.state();
  writer_->Enqueue({.file = states_.get(),
                    .key = key,
                    .place = {.parent = place.parent, .depth = 0, .owner = place.owner},
                    .state = {state.begin(), state.end()}});
}

FlashPrefixes::FileFigures FlashPrefixes::figures() const {
  FileFigures sum;
  for (const auto* file : {&blocks_, &windows_, &states_}) {
    if (*file == nullptr) continue;
    const store::SlotFileCounters& c = (*file)->counters();
    sum.bytes += static_cast<std::int64_t>((*file)->bytes());
    sum.bytes_max += static_cast<std::int64_t>((*file)->bytes_max());
    sum.blocks += c.slots;
    sum.evicted += c.evicted;
    sum.damaged += c.damaged;
    sum.read_bytes += c.read_bytes;
    sum.written_bytes += c.written_bytes;
  }
  return sum;
}

}  // namespace thermocline::prefix
