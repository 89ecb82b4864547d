#include "engine/sched/turn_order.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"

namespace thermocline::sched {

void TurnOrder::Update(std::span<const Candidate> candidates) {
  for (auto& [name, tenant] : tenants_) tenant.present = false;
  for (const Candidate& candidate : candidates) {
    const auto at = tenants_.find(candidate.tenant);
    if (at != tenants_.end()) at->second.present = true;
  }
  std::erase_if(tenants_, [](const auto& entry) { return !entry.second.present; });
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, tenant] : tenants_) least = std::min(least, tenant.served);
  if (tenants_.empty()) least = 0;
  for (const Candidate& candidate : candidates) {
    if (!tenants_.contains(candidate.tenant))
      tenants_.emplace(std::string(candidate.tenant), Tenant{.served = least});
  }
}

double TurnOrder::ServedTokens(std::string_view tenant) const {
  const auto at = tenants_.find(tenant);
  return at == tenants_.end() ? 0 : at->second.served;
}

std::size_t TurnOrder::Next(std::span<const Candidate> candidates) const {
  CHECK(!candidates.empty());
  // Returns true if `a` goes before `b`.
  const auto before = [this](const Candidate& a, const Candidate& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    if (a.tenant != b.tenant) {
      const double served_a = ServedTokens(a.tenant), served_b = ServedTokens(b.tenant);
      if (served_a != served_b) return served_a < served_b;
      return a.tenant < b.tenant;
    }
    if (a.begun != b.begun) {
      const auto at = tenants_.find(a.tenant);
      const bool new_request_last = at != tenants_.end() && at->second.new_request_last;
      return a.begun == new_request_last;
    }
    return a.since < b.since;
  };
  const auto next = std::min_element(candidates.begin(), candidates.end(), before);
  return next - candidates.begin();
}

bool TurnOrder::KeepsTurn(const Candidate& current, const Candidate& other) const {
  if (current.priority != other.priority) return current.priority > other.priority;
  return current.tenant != other.tenant &&
         ServedTokens(current.tenant) < ServedTokens(other.tenant);
}

void TurnOrder::AddServedTokens(std::string_view tenant, double tokens, bool new_request) {
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return;
  at->second.served += tokens;
  at->second.new_request_last = new_request;
}

}  // namespace thermocline::sched
