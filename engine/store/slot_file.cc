#include "engine/store/slot_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "engine/base/hash.h"
#include "engine/base/index.h"
#include "engine/base/posix_error.h"

namespace thermocline::store {
namespace {

constexpr std::uint64_t kSlotsPage = 4096;
constexpr std::uint32_t kSlotsVersion = 2;
constexpr std::array<char, 8> kSlotsMagic = {'T', 'C', 'S', 'L', 'O', 'T', 'S', '1'};
// The file grows only where the file system keeps this much free, or a twentieth of itself.
constexpr std::uint64_t kFreeMin = std::uint64_t{1} << 30;
constexpr std::uint64_t kFreeShareMin = 20;
// Slots that were not used for this long are replaced first in a full file, of any owner.
constexpr std::uint64_t kKeptS = 24 * 60 * 60;
// Bounds the memory of the index: some 250 bytes a slot.
constexpr std::uint64_t kSlotsMax = 1 << 18;

struct SlotsHeader {
  std::array<char, 8> magic = kSlotsMagic;
  std::uint32_t version = kSlotsVersion;
  std::uint32_t reserved = 0;
  std::uint64_t slot_bytes = 0;
  bool operator==(const SlotsHeader&) const = default;
};

std::array<std::uint64_t, 2> ChecksumOf(std::span<const std::byte> data) {
  base::Hasher hasher;
  hasher.Add(data);
  const base::Hash128 hash = hasher.Digest();
  return {hash.low, hash.high};
}

Status WriteAll(int fd, const std::string& path, std::uint64_t offset,
                std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return base::ErrnoStatus(path, "write", written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(written);
    offset += written;
  }
  return OkStatus();
}

// Returns the number of bytes read: fewer where the file ends.
Result<std::size_t> ReadSome(int fd, const std::string& path, std::uint64_t offset,
                             std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd, out.data() + done, out.size() - done, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoStatus(path, "read", errno);
    if (got == 0) break;
    done += got;
  }
  return done;
}

Result<int> OpenOwn(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return base::ErrnoStatus(path, "open", errno);
  return fd;
}

}  // namespace

struct SlotFile::Entry {
  SlotKey key{}, parent{};
  std::array<std::uint64_t, 2> checksum{};
  std::uint64_t used = 0;
  std::uint32_t depth = 0, owner = 0;
  std::array<std::byte, 24> zero{};
  std::uint64_t self = 0;

  std::uint64_t SelfOf() const {
    base::Hasher hasher;
    hasher.Add(std::as_bytes(std::span(this, 1)).first(sizeof(Entry) - sizeof(self)));
    return hasher.Digest().low;
  }
};

std::size_t SlotKeyHash::operator()(const SlotKey& key) const {
  std::size_t hash = 0;
  std::memcpy(&hash, key.data(), sizeof(hash));
  return hash;
}

SlotFile::SlotFile(const Options& options, int table, int slots)
    : path_(options.path),
      slot_bytes_(options.slot_bytes),
      stride_(base::RoundUp(options.slot_bytes, kSlotsPage)),
      slots_max_(std::min(kSlotsMax, options.bytes_max / stride_)),
      table_(table),
      slots_(slots) {}

SlotFile::~SlotFile() {
  ::close(table_);
  ::close(slots_);
}

Result<std::unique_ptr<SlotFile>> SlotFile::Open(const Options& options) {
  ASSIGN_OR_RETURN(const int table, OpenOwn(options.path + ".table"));
  const auto slots = OpenOwn(options.path + ".slots");
  if (!slots.ok()) {
    ::close(table);
    return slots.status();
  }
  std::unique_ptr<SlotFile> file(new SlotFile(options, table, *slots));
  file->read_only_ = ::flock(table, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  RETURN_IF_ERROR(file->Load());
  return file;
}

// Reads the table. Entries that are damaged, or beyond the limit, are free slots.
Status SlotFile::Load() {
  static_assert(sizeof(Entry) == 128);
  SlotsHeader header;
  const auto got =
      ReadSome(table_, path_ + ".table", 0, std::as_writable_bytes(std::span(&header, 1)));
  RETURN_IF_ERROR(got.status());
  SlotsHeader wanted;
  wanted.slot_bytes = slot_bytes_;
  if (*got < sizeof(header) || !(header == wanted)) return Reset();
  struct stat info {};
  if (::fstat(table_, &info) != 0) return base::ErrnoStatus(path_ + ".table", "stat", errno);
  const std::uint64_t held = info.st_size > static_cast<off_t>(kSlotsPage)
                                 ? (info.st_size - kSlotsPage) / sizeof(Entry)
                                 : 0;
  std::vector<Entry> entries(std::min(held, slots_max_));
  const auto bytes = std::as_writable_bytes(std::span(entries));
  RETURN_IF_ERROR(ReadSome(table_, path_ + ".table", kSlotsPage, bytes).status());
  if (held > slots_max_ && !read_only_) {
    const auto end = static_cast<off_t>(slots_max_ * stride_);
    if (::ftruncate(table_, static_cast<off_t>(kSlotsPage + slots_max_ * sizeof(Entry))) != 0 ||
        ::ftruncate(slots_, end) != 0)
      return base::ErrnoStatus(path_, "shorten", errno);
  }
  const base::MutexLock lock(mutex_);
  all_.resize(entries.size());
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const bool whole = entry.used > 0 && entry.self == entry.SelfOf();
    if (!whole || index_.contains(entry.key)) {
      free_.push_back(i);
      continue;
    }
    all_[i] = {.key = entry.key,
               .parent = entry.parent,
               .checksum = entry.checksum,
               .used = entry.used,
               .depth = entry.depth,
               .owner = entry.owner,
               .taken = true};
    Remember(i);
  }
  Order();
  return OkStatus();
}

Status SlotFile::Reset() {
  if (read_only_) return OkStatus();
  SlotsHeader header;
  header.slot_bytes = slot_bytes_;
  if (::ftruncate(table_, 0) != 0 || ::ftruncate(slots_, 0) != 0)
    return base::ErrnoStatus(path_, "shorten", errno);
  return WriteAll(table_, path_ + ".table", 0, std::as_bytes(std::span(&header, 1)));
}

// Sorts the slots by their last use: a slot was used when a later one of its chain was.
void SlotFile::Order() {
  std::vector<std::uint32_t> taken;
  for (std::uint32_t i = 0; i < all_.size(); ++i)
    if (all_[i].taken) taken.push_back(i);
  const auto deeper = [this](std::uint32_t a, std::uint32_t b)
                          REQUIRES(mutex_) { return all_[a].depth > all_[b].depth; };
  std::sort(taken.begin(), taken.end(), deeper);
  for (const std::uint32_t i : taken) {
    const auto parent = index_.find(all_[i].parent);
    if (parent == index_.end()) continue;
    std::uint64_t& used = all_[parent->second].used;
    used = std::max(used, all_[i].used);
  }
  std::stable_sort(taken.begin(), taken.end(),
                   [this](std::uint32_t a, std::uint32_t b)
                       REQUIRES(mutex_) { return all_[a].used < all_[b].used; });
  for (const std::uint32_t i : taken) {
    SlotList& order = orders_[all_[i].owner];
    all_[i].turn = ++turn_;
    all_[i].order = order.insert(order.end(), i);
  }
}

bool SlotFile::Has(const SlotKey& key) const {
  const base::MutexLock lock(mutex_);
  return index_.contains(key);
}

bool SlotFile::HasChild(const SlotKey& key) const {
  const base::MutexLock lock(mutex_);
  return children_.contains(key);
}

void SlotFile::Touch(std::span<const SlotKey> chain) {
  const base::MutexLock lock(mutex_);
  const std::uint64_t now = std::time(nullptr);
  for (std::size_t i = chain.size(); i > 0; --i) {
    const auto found = index_.find(chain[i - 1]);
    if (found == index_.end()) continue;
    Slot& slot = all_[found->second];
    slot.used = now;
    slot.turn = ++turn_;
    SlotList& order = orders_[slot.owner];
    order.splice(order.end(), order, slot.order);
  }
}

void SlotFile::WillRead(const SlotKey& key) const {
  const base::MutexLock lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  ::posix_fadvise(slots_, static_cast<off_t>(found->second * stride_),
                  static_cast<off_t>(slot_bytes_), POSIX_FADV_WILLNEED);
}

Status SlotFile::Read(const SlotKey& key, std::span<std::byte> out) {
  CHECK_EQ(out.size(), slot_bytes_);
  std::uint32_t at = 0;
  std::array<std::uint64_t, 2> checksum{};
  {
    const base::MutexLock lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return base::NotFound("no such slot");
    at = found->second;
    checksum = all_[at].checksum;
    ++all_[at].pins;
  }
  const auto got = ReadSome(slots_, path_ + ".slots", at * stride_, out);
  const bool right = got.ok() && *got == out.size() && ChecksumOf(out) == checksum;
  const base::MutexLock lock(mutex_);
  --all_[at].pins;
  counters_.read_bytes += got.ok() ? static_cast<std::int64_t>(*got) : 0;
  RETURN_IF_ERROR(got.status());
  if (right) return OkStatus();
  // Another process may have replaced it meanwhile; here it is damaged.
  if (!read_only_) ++counters_.damaged;
  Free(at);
  return base::DataLoss(path_, ".slots: slot ", at, " is damaged");
}

void SlotFile::Remember(std::uint32_t at) {
  index_.emplace(all_[at].key, at);
  ++children_[all_[at].parent];
  ++counters_.slots;
}

void SlotFile::Forget(std::uint32_t at) {
  Slot& slot = all_[at];
  index_.erase(slot.key);
  const auto siblings = children_.find(slot.parent);
  if (--siblings->second == 0) children_.erase(siblings);
  const auto order = orders_.find(slot.owner);
  order->second.erase(slot.order);
  if (order->second.empty()) orders_.erase(order);
  slot.taken = false;
  --counters_.slots;
}

// Forgets a slot whose data nobody can use.
void SlotFile::Free(std::uint32_t at) {
  Forget(at);
  free_.push_back(at);
  if (!read_only_) (void)WriteEntry(at, nullptr);
}

void SlotFile::Drop(std::span<const SlotKey> chain) {
  const base::MutexLock lock(mutex_);
  for (const SlotKey& key : chain) {
    const auto found = index_.find(key);
    if (found != index_.end() && all_[found->second].pins == 0) Free(found->second);
  }
}

bool SlotFile::MayGrow() const {
  struct statvfs system {};
  if (::fstatvfs(slots_, &system) != 0) return true;
  const std::uint64_t unit = system.f_frsize, free = system.f_bavail * unit,
                      all = system.f_blocks * unit;
  return free > std::min(kFreeMin, all / kFreeShareMin) + stride_;
}

std::optional<std::uint32_t> SlotFile::TakeSlot(const Place& place) {
  if (free_.empty() && all_.size() < slots_max_ && MayGrow()) {
    free_.push_back(base::IntSize(all_));
    all_.emplace_back();
  }
  if (free_.empty()) {
    const auto oldest = FindOldest(place);
    if (!oldest.has_value()) return std::nullopt;
    Forget(*oldest);
    ++counters_.evicted;
    free_.push_back(*oldest);
  }
  const std::uint32_t at = free_.back();
  free_.pop_back();
  all_[at] = {.pins = 1};
  return at;
}

std::optional<std::uint32_t> SlotFile::FindOldest(const Place& place) const {
  // The first slot that may go; nullopt: the chain of the parent would lose its end.
  const auto first = [&](const SlotList& order) REQUIRES(mutex_) -> std::optional<std::uint32_t> {
    for (const std::uint32_t at : order) {
      if (all_[at].pins > 0) continue;
      return all_[at].key == place.parent ? std::nullopt : std::optional(at);
    }
    return std::nullopt;
  };
  const SlotList *largest = nullptr, *own = nullptr;
  std::optional<std::uint32_t> oldest;
  for (const auto& [owner, order] : orders_) {
    if (largest == nullptr || order.size() > largest->size()) largest = &order;
    if (owner == place.owner) own = &order;
    const auto at = first(order);
    if (at.has_value() && (!oldest.has_value() || all_[*at].turn < all_[*oldest].turn)) oldest = at;
  }
  if (largest == nullptr || !oldest.has_value()) return std::nullopt;
  const std::uint64_t now = std::time(nullptr);
  if (all_[*oldest].used + kKeptS < now) return oldest;
  const bool has_most = own != nullptr && own->size() >= largest->size();
  return first(has_most ? *own : *largest);
}

Status SlotFile::WriteEntry(std::uint32_t slot, const Entry* entry) const {
  static constexpr Entry kNone{};
  return WriteAll(table_, path_ + ".table", kSlotsPage + slot * sizeof(Entry),
                  std::as_bytes(std::span(entry == nullptr ? &kNone : entry, 1)));
}

Status SlotFile::Write(const SlotKey& key, const Place& place, std::span<const std::byte> data) {
  CHECK_EQ(data.size(), slot_bytes_);
  if (read_only_) return base::FailedPrecondition(path_, ": another process writes it");
  std::uint32_t at = 0;
  {
    const base::MutexLock lock(mutex_);
    if (index_.contains(key)) return OkStatus();
    if (place.depth > 0 && !index_.contains(place.parent))
      return base::FailedPrecondition(path_, ": the slot before it in its chain is missing");
    const auto slot = TakeSlot(place);
    if (!slot.has_value()) return base::FailedPrecondition(path_, ": every slot is in use");
    at = *slot;
  }
  Entry entry{.key = key, .parent = place.parent, .checksum = ChecksumOf(data)};
  entry.used = std::time(nullptr);
  entry.depth = place.depth;
  entry.owner = place.owner;
  entry.self = entry.SelfOf();
  Status status = WriteEntry(at, nullptr);
  if (status.ok()) status = WriteAll(slots_, path_ + ".slots", at * stride_, data);
  if (status.ok()) status = WriteEntry(at, &entry);
  const base::MutexLock lock(mutex_);
  Slot& slot = all_[at];
  slot.pins = 0;
  if (!status.ok()) {
    free_.push_back(at);
    return status;
  }
  slot = {.key = key,
          .parent = place.parent,
          .checksum = entry.checksum,
          .used = entry.used,
          .depth = entry.depth,
          .owner = entry.owner,
          .turn = ++turn_,
          .taken = true};
  // Just before its parent, which is needed longer.
  const auto before = index_.find(place.parent);
  SlotList& order = orders_[place.owner];
  slot.order = order.insert(before == index_.end() ? order.end() : all_[before->second].order, at);
  Remember(at);
  counters_.written_bytes += static_cast<std::int64_t>(data.size());
  return OkStatus();
}

}  // namespace thermocline::store
