// Decides whose turn it is: the highest priority first, then the tenant that was served least, then
// the requests of a tenant in turn.
//
// Each active tenant gets an equal share of the tokens, however many requests it has. A new tenant
// begins level with the one that was served least: it gets no credit for time without requests.
// Within a tenant, a new request does not wait for all begun ones, nor may new requests keep those
// waiting: the oldest new request and the begun request that has waited longest alternate.
// Source: start-time fair queueing (Goyal et al. 1996), with turns as packets.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace thermocline::sched {

// Not thread-safe.
class TurnOrder {
 public:
  // A turn ends before its tokens are spent for no request, for those of other tenants and of
  // higher priority, or for any.
  enum class Turn { kLasts, kEndsForOthers, kEnds };
  struct Candidate {
    int priority = 0;
    std::string_view tenant;
    bool begun = false;
    std::uint64_t since =
        0;  // a new request's number, or the end of its last turn: smaller is earlier
  };
  // Returns the index of the next candidate. Requires: at least one.
  std::size_t Next(std::span<const Candidate> candidates) const;
  // Returns true if `current`, whose turn may end, continues although `other` waits.
  bool KeepsTurn(const Candidate& current, const Candidate& other) const;
  // Forgets tenants without requests and adds new ones. Called before Next.
  void Update(std::span<const Candidate> candidates);
  // Charges `tokens` to `tenant` for a turn. The flag is true for the request's first turn.
  void AddServedTokens(std::string_view tenant, double tokens, bool new_request);

 private:
  struct Tenant {
    double served = 0;              // tokens, on the same scale for all tenants
    bool new_request_last = false;  // the last turn was a request's first
    bool present = true;
  };
  double ServedTokens(std::string_view tenant) const;

  std::map<std::string, Tenant, std::less<>> tenants_;
};

}  // namespace thermocline::sched
