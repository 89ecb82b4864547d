#include "server/net/connection_count.h"

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
  ConnectionPlace& longest = *idle_.front().place;
  leave = std::move(idle_.front().leave);
  ForgetIdle(longest);
  longest.told_to_leave_ = true;
  --all_;
  return true;
}

void ConnectionCount::ForgetIdle(ConnectionPlace& place) {
  if (!std::exchange(place.is_idle_, false)) return;
  idle_.erase(place.idle_);
}

void ConnectionCount::Leave(ConnectionPlace& place) {
  const base::MutexLock lock(mutex_);
  ForgetIdle(place);
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

void ConnectionPlace::BeIdle(std::function<void()> leave) {
  const base::MutexLock lock(count_->mutex_);
  count_->ForgetIdle(*this);
  if (told_to_leave_) return;
  idle_ = count_->idle_.insert(count_->idle_.end(), {this, std::move(leave)});
  is_idle_ = true;
}

bool ConnectionPlace::BeBusy() {
  const base::MutexLock lock(count_->mutex_);
  count_->ForgetIdle(*this);
  return !told_to_leave_;
}

}  // namespace thermocline::net
