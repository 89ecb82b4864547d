#include "server/core/page_turns.h"

#include <algorithm>

namespace thermocline::server {
namespace {

constexpr std::size_t kPacesMax = 1024;

}  // namespace

PageTurns::Turn PageTurns::Begin(const std::string& tenant, Clock::time_point now) {
  const base::MutexLock lock(mutex_);
  ForgetSilent(now);
  Pace& pace = paces_[tenant];
  pace.next = std::max(pace.next, now);
  const Turn turn = {.wait = std::max(pace.next - now - kBurst, Clock::duration::zero()),
                     .booked = pace.page};
  pace.next += kPause * turn.booked;
  return turn;
}

void PageTurns::End(const std::string& tenant, const Turn& turn, Clock::duration spent) {
  const base::MutexLock lock(mutex_);
  Pace& pace = paces_[tenant];
  pace.next += kPause * (spent - turn.booked);
  pace.page = spent;
}

void PageTurns::ForgetSilent(Clock::time_point now) {
  if (paces_.size() < kPacesMax) return;
  std::erase_if(paces_, [now](const auto& each) { return each.second.next <= now; });
}

}  // namespace thermocline::server
