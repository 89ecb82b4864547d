// A BlockReader whose device has injected faults, for tests of its users.
#pragma once

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/store/block_reader.h"

namespace thermocline::store {

// A fault affects reads that touch bytes [begin, end) of the file.
struct Fault {
  enum class Kind {
    kError,  // the read ends with -error
    kShort,  // only `bytes` bytes arrive; the rest of the memory is overwritten with 0xEE
    kFlip,   // the lowest bit of the first byte of the read inside [begin, end) is flipped
    kDelay,  // the read starts when Release is called
  };
  Kind kind = Kind::kError;
  std::uint64_t begin = 0, end = std::numeric_limits<std::uint64_t>::max();
  int count = -1;  // remaining reads to affect; -1 = until Clear
  int error = EIO;
  std::int64_t bytes = 0;
};

// Inject, Clear and Release may be called from any thread, the other methods as for every
// BlockReader.
class FaultyReader final : public BlockReader {
 public:
  explicit FaultyReader(std::unique_ptr<BlockReader> reader) : reader_(std::move(reader)) {}

  // A read is affected by the first applicable fault, in the order of injection.
  void Inject(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(fault);
  }
  // Removes the faults; delayed reads stay delayed.
  void Clear() {
    const std::lock_guard lock(mutex_);
    faults_.clear();
  }
  // Starts all delayed reads.
  void Release() {
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
    }
    released_signal_.notify_all();
  }
  // When only delayed reads are in flight, Wait returns 0 at once and only adds up its timeouts;
  // with true it waits, as a real device would.
  void set_real_time(bool real) { real_time_ = real; }
  std::chrono::milliseconds time_given() const { return time_given_; }
  int delayed() const { return static_cast<int>(delayed_.size()); }
  // Numbers of reads and of calls of Submit so far.
  int reads() const { return reads_; }
  int submits() const { return submits_; }

  const std::string& path() const override { return reader_->path(); }
  std::uint64_t size() const override { return reader_->size(); }
  std::size_t alignment() const override { return reader_->alignment(); }
  int depth() const override { return reader_->depth(); }
  const char* method() const override { return reader_->method(); }
  bool direct() const override { return reader_->direct(); }
  Status SetMemory(std::span<std::byte> memory) override {
    CHECK_EQ(in_flight_, 0);
    return reader_->SetMemory(memory);
  }

  void Submit(std::span<const Read> reads) override {
    ++submits_;
    reads_ += static_cast<int>(reads.size());
    in_flight_ += static_cast<int>(reads.size());
    CHECK_LE(in_flight_, depth());
    std::vector<std::size_t> sound;
    for (const Read& read : reads) {
      const std::size_t slot = TakeSlot({.read = read, .fault = Hit(read), .used = true});
      if (!slots_[slot].hit()) {
        sound.push_back(slot);
      } else if (slots_[slot].fault.kind == Fault::Kind::kError) {
        failed_.push_back(slot);
      } else if (slots_[slot].fault.kind == Fault::Kind::kDelay) {
        delayed_.push_back(slot);
      } else {
        sound.push_back(slot);
      }
    }
    Start(sound);
  }

  int Wait(std::span<Completion> out, std::chrono::milliseconds timeout) override {
    if (out.empty() || in_flight_ == 0) return 0;
    StartReleased();
    std::size_t count = 0;
    for (; count < out.size() && !failed_.empty(); ++count) {
      const std::size_t slot = failed_.back();
      failed_.pop_back();
      out[count] = {.tag = slots_[slot].read.tag, .result = -slots_[slot].fault.error};
      slots_[slot].used = false;
    }
    if (count == 0 && reader_->in_flight() == 0 && !WaitForRelease(timeout)) return 0;
    if (reader_->in_flight() > 0) {
      const auto rest = out.subspan(count);
      const int ended = reader_->Wait(rest, count > 0 ? std::chrono::milliseconds(0) : timeout);
      for (Completion& completion : rest.first(static_cast<std::size_t>(ended)))
        completion = Spoil(completion);
      count += static_cast<std::size_t>(ended);
    }
    in_flight_ -= static_cast<int>(count);
    return static_cast<int>(count);
  }

 private:
  struct Slot {
    Read read = {};
    Fault fault = {.count = 0};  // 0: none
    bool used = false;
    bool hit() const { return fault.count != 0; }
  };

  Fault Hit(const Read& read) {
    const std::lock_guard lock(mutex_);
    for (Fault& fault : faults_) {
      if (fault.count == 0 || read.offset >= fault.end || read.offset + read.bytes <= fault.begin)
        continue;
      const Fault hit = fault;
      if (fault.count > 0) --fault.count;
      return hit;
    }
    return {.count = 0};
  }

  std::size_t TakeSlot(Slot slot) {
    const auto free =
        std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.used; });
    const auto at = static_cast<std::size_t>(free - slots_.begin());
    if (free == slots_.end()) slots_.emplace_back();
    slots_[at] = slot;
    return at;
  }

  // Starts the reads of these slots, with the slot as the tag.
  void Start(std::span<const std::size_t> slots) {
    std::vector<Read> reads;
    for (const std::size_t slot : slots) {
      reads.push_back(slots_[slot].read);
      reads.back().tag = slot;
    }
    if (!reads.empty()) reader_->Submit(reads);
  }

  void StartReleased() {
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(released_, false)) return;
    }
    Start(std::exchange(delayed_, {}));
  }

  // True if delayed reads were released.
  bool WaitForRelease(std::chrono::milliseconds timeout) {
    time_given_ += timeout;
    if (real_time_) {
      std::unique_lock lock(mutex_);
      released_signal_.wait_for(lock, timeout, [this] { return released_; });
    }
    StartReleased();
    return reader_->in_flight() > 0;
  }

  // Applies the fault to an ended read, and restores the caller's tag.
  Completion Spoil(Completion completion) {
    Slot& slot = slots_[completion.tag];
    slot.used = false;
    const Read& read = slot.read;
    std::int64_t result = completion.result;
    if (slot.hit() && slot.fault.kind == Fault::Kind::kShort) {
      result = std::min(result, slot.fault.bytes);
      if (result >= 0)
        std::memset(read.out + result, 0xEE, read.bytes - static_cast<std::size_t>(result));
    } else if (slot.hit() && slot.fault.kind == Fault::Kind::kFlip && result > 0) {
      read.out[std::max(slot.fault.begin, read.offset) - read.offset] ^= std::byte{1};
    }
    return {.tag = read.tag, .result = result};
  }

  std::unique_ptr<BlockReader> reader_;
  std::vector<Slot> slots_;                    // indexed by the tags for reader_
  std::vector<std::size_t> failed_, delayed_;  // slots that reader_ has not received
  int reads_ = 0, submits_ = 0;
  bool real_time_ = false;
  std::chrono::milliseconds time_given_{0};

  std::mutex mutex_;
  std::condition_variable released_signal_;
  std::vector<Fault> faults_;  // guarded by mutex_
  bool released_ = false;      // guarded by mutex_
};

}  // namespace thermocline::store
