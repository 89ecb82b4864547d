#include "engine/prefix/prefix_writer.h"

#include <chrono>
#include <optional>
#include <utility>

#include "engine/base/log.h"

namespace thermocline::prefix {
namespace {

using Clock = std::chrono::steady_clock;
// The disk is left alone for kPause after it refused a write. The daemon's end waits for
// kLastWrites.
constexpr std::chrono::seconds kPause{60}, kLastWrites{5};
constexpr int kStatesQueuedMax = 2;

}  // namespace

PrefixWriter::PrefixWriter(nn::KvPool& pool) : pool_(pool), thread_([this] { Main(); }) {}

PrefixWriter::~PrefixWriter() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  ReleaseWritten();
  const base::MutexLock lock(mutex_);
  while (!queue_.empty()) DropLast();
}

// The key among queued items: blocks of both kinds have the same key.
store::SlotKey PrefixWriter::NameOf(const Item& item) {
  store::SlotKey name = item.key;
  name[0] ^= item.kind == nn::KvKind::kWindow ? std::byte{1} : std::byte{0};
  return name;
}

bool PrefixWriter::TakesStates() const {
  const base::MutexLock lock(mutex_);
  return states_queued_ < kStatesQueuedMax;
}

void PrefixWriter::Enqueue(Item item) {
  const base::MutexLock lock(mutex_);
  if (!item.state.empty() && states_queued_ >= kStatesQueuedMax) return;
  if (!queued_.insert(NameOf(item)).second) return;
  if (item.block >= 0) pool_.AddHolder(item.kind, item.block);
  states_queued_ += item.state.empty() ? 0 : 1;
  queue_.push_back(std::move(item));
  ++counters_.queued;
  changed_.NotifyOne();
}

void PrefixWriter::Forget(const Item& item) {
  queued_.erase(NameOf(item));
  states_queued_ -= item.state.empty() ? 0 : 1;
  --counters_.queued;
}

void PrefixWriter::ReleaseWritten() {
  const base::MutexLock lock(mutex_);
  ReleaseBlocks();
}

void PrefixWriter::ReleaseBlocks() {
  for (const Item& item : written_)
    if (item.block >= 0) pool_.Release(item.kind, item.block);
  written_.clear();
}

void PrefixWriter::MakeRoom(const nn::KvCount& blocks, std::chrono::duration<double> patience) {
  if (pool_.HasFree(blocks)) return;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  base::MutexLock lock(mutex_);
  for (ReleaseBlocks(); !pool_.HasFree(blocks) && (writing_ || !queue_.empty()); ReleaseBlocks()) {
    if (Clock::now() >= until) break;
    wrote_.WaitUntil(mutex_, until);
  }
  // A chain without its end can be used, one without its beginning cannot.
  for (; !queue_.empty() && !pool_.HasFree(blocks); ++counters_.dropped_for_room) DropLast();
}

void PrefixWriter::DropLast() {
  const Item& item = queue_.back();
  if (item.block >= 0) pool_.Release(item.kind, item.block);
  Forget(item);
  queue_.pop_back();
}

void PrefixWriter::Main() {
  Clock::time_point refused_until{};
  std::optional<Clock::time_point> last;
  base::MutexLock lock(mutex_);
  while (true) {
    if (queue_.empty() && ends_) return;
    if (queue_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    if (ends_ && !last.has_value()) last = Clock::now() + kLastWrites;
    if (ends_ && Clock::now() > *last) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool pause = Clock::now() < refused_until;
    writing_ = true;
    lock.Unlock();
    const Status status = pause ? OkStatus() : Write(item);
    lock.Lock();
    if (pause || !status.ok()) ++counters_.dropped_by_error;
    if (!status.ok() && status.code() != StatusCode::kFailedPrecondition) {
      base::LogWarning("the prefix cache on flash rests for a minute: ", status.message());
      refused_until = Clock::now() + kPause;
    }
    Forget(item);
    item.state = {};
    written_.push_back(std::move(item));
    writing_ = false;
    wrote_.NotifyAll();
  }
}

Status PrefixWriter::Write(const Item& item) {
  const std::size_t bytes = item.file->slot_bytes();
  const std::span<const std::byte> data =
      item.block >= 0 ? std::as_bytes(std::span(pool_.data(item.kind, item.block), bytes))
                      : std::as_bytes(std::span(item.state));
  return item.file->Write(item.key, item.place, data);
}

}  // namespace thermocline::prefix
