// Decides whose turn it is: the highest priority first, then the tenant that has had least, then,
// within a tenant, requests in turn.
//
// Each active tenant gets an equal share of the tokens, however many requests it has. A tenant that
// comes begins level with the one that has had least: what it did not use before is gone. Within a
// tenant a newcomer does not wait for all that are begun, nor may newcomers keep those waiting: the
// oldest newcomer and the begun request that has waited longest alternate.
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
  struct Candidate {
    int priority = 0;
    std::string_view tenant;
    bool begun = false;
    std::uint64_t since =
        0;  // a newcomer's number, or when its last turn ended: smaller is earlier
  };
  // The index of the next. Requires: at least one.
  std::size_t Next(std::span<const Candidate> candidates) const;
  // True if `current`, whose turn may end, goes on though `other` waits.
  bool Stays(const Candidate& current, const Candidate& other) const;
  // Forgets tenants that have no request, and lets new ones begin. Before Next.
  void Update(std::span<const Candidate> candidates);
  // A turn of `tenant` took `tokens`; `newcomer`: it was the request's first.
  void Took(std::string_view tenant, double tokens, bool newcomer);

 private:
  struct Tenant {
    double had = 0;              // tokens, counted from a start of its own
    bool newcomer_last = false;  // the last turn was a newcomer's
    bool present = true;
  };
  double HadBy(std::string_view tenant) const;

  std::map<std::string, Tenant, std::less<>> tenants_;
};

}  // namespace thermocline::sched
