#include "server/net/connection_count.h"

#include <limits>
#include <utility>

namespace thermocline::net {

ConnectionCount::Entry ConnectionCount::Enter(const std::string& address, int max, int address_max,
                                              std::function<void()>& leave) {
  const auto found = by_address_.find(address);
  const int of_address = found == by_address_.end() ? 0 : found->second;
  if (!address.empty() && address_max > 0 && of_address >= address_max)
    return Entry::kFullForAddress;
  if (all_ >= max && !MakeWay(leave)) return Entry::kFull;
  if (!address.empty()) ++by_address_[address];
  ++all_;
  return Entry::kIn;
}

bool ConnectionCount::MakeWay(std::function<void()>& leave) {
  if (idle_.empty()) return false;
  auto found = idle_.begin();
  for (auto each = idle_.begin(); each != idle_.end(); ++each)
    if (OfOwner(*each->place) > OfOwner(*found->place)) found = each;
  TellToLeave(found, leave);
  return true;
}

void ConnectionCount::TellToLeave(std::list<Idle>::iterator idle, std::function<void()>& leave) {
  ConnectionPlace& place = *idle->place;
  leave = std::move(idle->leave);
  RemoveIdle(place);
  Disown(place);
  place.told_to_leave_ = true;
  --all_;
}

int ConnectionCount::OfOwner(const ConnectionPlace& place) const {
  return place.owner_.empty() ? std::numeric_limits<int>::max() : by_owner_.at(place.owner_);
}

bool ConnectionCount::AssignTo(ConnectionPlace& place, const std::string& owner, int owner_max,
                               std::function<void()>& leave) {
  if (place.owner_ == owner) return true;
  const auto found = by_owner_.find(owner);
  if (found != by_owner_.end() && found->second >= owner_max) {
    auto idle = idle_.begin();
    while (idle != idle_.end() && idle->place->owner_ != owner) ++idle;
    if (idle == idle_.end()) return false;
    TellToLeave(idle, leave);
  }
  Disown(place);
  place.owner_ = owner;
  ++by_owner_[owner];
  return true;
}

void ConnectionCount::Disown(ConnectionPlace& place) {
  const auto found = by_owner_.find(place.owner_);
  if (found != by_owner_.end() && --found->second == 0) by_owner_.erase(found);
  place.owner_.clear();
}

void ConnectionCount::RemoveIdle(ConnectionPlace& place) {
  if (!std::exchange(place.is_idle_, false)) return;
  idle_.erase(place.idle_);
}

void ConnectionCount::Leave(ConnectionPlace& place) {
  const base::MutexLock lock(mutex_);
  RemoveIdle(place);
  Disown(place);
  if (!place.entered_) return;
  if (!place.told_to_leave_) --all_;
  const auto found = by_address_.find(place.address_);
  if (found != by_address_.end() && --found->second == 0) by_address_.erase(found);
}

ConnectionCount::Entry ConnectionPlace::Enter(int max, int address_max) {
  std::function<void()> leave;
  const auto entry = [&] {
    const base::MutexLock lock(count_->mutex_);
    const auto answer = count_->Enter(address_, max, address_max, leave);
    entered_ = answer == ConnectionCount::Entry::kIn;
    return answer;
  }();
  if (leave) leave();
  return entry;
}

void ConnectionPlace::MarkIdle(std::function<void()> leave) {
  const base::MutexLock lock(count_->mutex_);
  count_->RemoveIdle(*this);
  if (told_to_leave_) return;
  idle_ = count_->idle_.insert(count_->idle_.end(), {this, std::move(leave)});
  is_idle_ = true;
}

bool ConnectionPlace::MarkBusy() {
  const base::MutexLock lock(count_->mutex_);
  count_->RemoveIdle(*this);
  return !told_to_leave_;
}

bool ConnectionPlace::AssignTo(const std::string& owner, int owner_max) {
  std::function<void()> leave;
  const bool belongs = [&] {
    const base::MutexLock lock(count_->mutex_);
    return count_->AssignTo(*this, owner, owner_max, leave);
  }();
  if (leave) leave();
  return belongs;
}

}  // namespace thermocline::net
