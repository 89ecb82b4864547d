// Counts connections, and chooses the one to close for a new one.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/base/mutex.h"

namespace thermocline::net {

class ConnectionPlace;

// Thread-safe. Counts all connections, and those by address and by owner. If all places are taken,
// an idle connection is closed: one that waits for a request, the rest of one, or a key. It is one
// without an owner, else one of the owner with the most connections; among these, the one idle for
// longest.
class ConnectionCount {
 public:
  enum class Entry { kIn, kFull, kFullForAddress };

 private:
  friend class ConnectionPlace;
  struct Idle {
    ConnectionPlace* place;
    std::function<void()> leave;
  };
  // `leave`: the callback of the connection to close, to be called without the mutex.
  Entry Enter(const std::string& address, int max, int address_max, std::function<void()>& leave)
      REQUIRES(mutex_);
  void Leave(ConnectionPlace& place);
  // False if no connection is idle.
  bool MakeWay(std::function<void()>& leave) REQUIRES(mutex_);
  void TellToLeave(std::list<Idle>::iterator idle, std::function<void()>& leave) REQUIRES(mutex_);
  void RemoveIdle(ConnectionPlace& place) REQUIRES(mutex_);
  // `leave`: as for Enter.
  bool AssignTo(ConnectionPlace& place, const std::string& owner, int owner_max,
                std::function<void()>& leave) REQUIRES(mutex_);
  void Disown(ConnectionPlace& place) REQUIRES(mutex_);
  int OfOwner(const ConnectionPlace& place) const REQUIRES(mutex_);

  base::Mutex mutex_;
  int all_ GUARDED_BY(mutex_) = 0;  // without those that are being closed
  std::unordered_map<std::string, int> by_address_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, int> by_owner_ GUARDED_BY(mutex_);
  std::list<Idle> idle_ GUARDED_BY(mutex_);  // the longest idle first
};

// One connection's place in the count; the destructor frees it.
class ConnectionPlace {
 public:
  // Allocates in advance and does not enter, so that entering needs no memory.
  ConnectionPlace(std::shared_ptr<ConnectionCount> count, std::string address)
      : count_(std::move(count)), address_(std::move(address)) {}
  ~ConnectionPlace() { count_->Leave(*this); }
  ConnectionPlace(const ConnectionPlace&) = delete;
  ConnectionPlace& operator=(const ConnectionPlace&) = delete;

  // Called at most once. `max`: of all, `address_max`: of this address; 0 = any number. Connections
  // without an address are not counted by address.
  ConnectionCount::Entry Enter(int max, int address_max);
  // Marks the connection idle. From now on `leave` may be called, once and on any thread, to close
  // it. It must not destroy this place, nor own its owner.
  void MarkIdle(std::function<void()> leave);
  // False: the connection is being closed.
  bool MarkBusy();
  // Assigns the connection to `owner`. Beyond `owner_max`, the owner's connection that is idle for
  // longest is closed. False: the owner has `owner_max` and none is idle; then nothing changes.
  bool AssignTo(const std::string& owner, int owner_max);

 private:
  friend class ConnectionCount;
  const std::shared_ptr<ConnectionCount> count_;
  const std::string address_;
  // Guarded by the count's mutex.
  bool entered_ = false;
  bool told_to_leave_ = false;
  std::list<ConnectionCount::Idle>::iterator idle_ = {};
  bool is_idle_ = false;
  std::string owner_ = {};  // "" = no owner
};

}  // namespace thermocline::net
