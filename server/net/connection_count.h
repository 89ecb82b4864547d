// Counts connections, and decides which one makes way for a new one.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/base/mutex.h"

namespace thermocline::net {

class ConnectionPlace;

// Thread-safe: connections in all, by address and by owner. Where all places are taken, an idle
// connection makes way, which waits for a request, for the rest of one, or for a key: one that is
// nobody's, else one of the owner with most; of these the one that has been idle for longest.
class ConnectionCount {
 public:
  enum class Entry { kIn, kFull, kFullForAddress };

 private:
  friend class ConnectionPlace;
  struct Idle {
    ConnectionPlace* place;
    std::function<void()> leave;
  };
  // `leave`: of the one that makes way, to be called without the mutex.
  Entry Enter(const std::string& address, int max, int address_max, std::function<void()>& leave)
      REQUIRES(mutex_);
  void Leave(ConnectionPlace& place);
  // False: nobody is idle.
  bool MakeWay(std::function<void()>& leave) REQUIRES(mutex_);
  void TellToLeave(std::list<Idle>::iterator idle, std::function<void()>& leave) REQUIRES(mutex_);
  void ForgetIdle(ConnectionPlace& place) REQUIRES(mutex_);
  // `leave`: as of Enter.
  bool BelongTo(ConnectionPlace& place, const std::string& owner, int owner_max,
                std::function<void()>& leave) REQUIRES(mutex_);
  void Disown(ConnectionPlace& place) REQUIRES(mutex_);
  int OfOwner(const ConnectionPlace& place) const REQUIRES(mutex_);

  base::Mutex mutex_;
  int all_ GUARDED_BY(mutex_) = 0;  // without those that were told to leave
  std::unordered_map<std::string, int> by_address_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, int> by_owner_ GUARDED_BY(mutex_);
  std::list<Idle> idle_ GUARDED_BY(mutex_);  // the longest first
};

// One connection's place among those that are counted; it is free again at the end.
class ConnectionPlace {
 public:
  // Enters nowhere yet, so that nothing has to be made room for once it has.
  ConnectionPlace(std::shared_ptr<ConnectionCount> count, std::string address)
      : count_(std::move(count)), address_(std::move(address)) {}
  ~ConnectionPlace() { count_->Leave(*this); }
  ConnectionPlace(const ConnectionPlace&) = delete;
  ConnectionPlace& operator=(const ConnectionPlace&) = delete;

  // Once. `max` of all, `address_max` of this address; 0 = any number, and not counted if the
  // address is "".
  ConnectionCount::Entry Enter(int max, int address_max);
  // From here on `leave` may be called, once and on any thread, to have the connection closed. It
  // must not end this place, nor hold what holds it.
  void BeIdle(std::function<void()> leave);
  // False: it was told to leave.
  bool BeBusy();
  // From here on it is one of `owner`'s, of whose idle ones the longest makes way beyond
  // `owner_max`. False: `owner` has so many and none is idle; then it is as it was.
  bool BelongTo(const std::string& owner, int owner_max);

 private:
  friend class ConnectionCount;
  const std::shared_ptr<ConnectionCount> count_;
  const std::string address_;
  // Guarded by the count's mutex.
  bool entered_ = false;
  bool told_to_leave_ = false;
  std::list<ConnectionCount::Idle>::iterator idle_ = {};
  bool is_idle_ = false;
  std::string owner_ = {};  // "" = nobody's
};

}  // namespace thermocline::net
