#include "server/core/memory_share.h"

#include <algorithm>

#include "engine/base/system_memory.h"

namespace thermocline::server {
namespace {

constexpr std::int64_t kLeastBudget = 1 << 20;

// `counts`: which of the other loaded models keep their memory.
template <typename Counts>
std::int64_t LeftBy(std::int64_t total, const ModelList::Models& all, const ServedModel& model,
                    Counts counts) {
  for (const auto& other : all)
    if (other.get() != &model && other->loaded() && counts(*other))
      total -= static_cast<std::int64_t>(other->service.engine()->Stats().memory_planned);
  return std::max(total, kLeastBudget);
}

}  // namespace

std::int64_t BudgetOfAll(const Service& front) {
  return static_cast<std::int64_t>(base::MemoryBudget(front.config().model.memory.budget_bytes));
}

std::int64_t BudgetFor(std::int64_t total, const ModelList::Models& all, const ServedModel& model) {
  return LeftBy(total, all, model, [](const ServedModel&) { return true; });
}

std::int64_t MostFor(std::int64_t total, const ModelList::Models& all, const ServedModel& model) {
  return LeftBy(total, all, model, [](const ServedModel& other) { return other.pinned; });
}

std::int64_t MostBesideBusy(std::int64_t total, const ModelList::Models& all,
                            const ServedModel& model) {
  return LeftBy(total, all, model,
                [](const ServedModel& other) { return other.pinned || !other.idle(); });
}

std::int64_t BytesNeeded(const Status& refused) {
  for (const auto& [name, number] : refused.numbers())
    if (name == "bytes_needed") return number;
  return 0;
}

std::size_t ResidentBeside(const ModelList::Models& all, ServedModel& model) {
  const bool alone = std::none_of(all.begin(), all.end(), [&](const auto& other) {
    return other.get() != &model && other->loaded();
  });
  if (!alone) return base::ResidentBytes();
  // Bodies and unread answers have a line of their own in the table.
  return model.service.request_memory().in_use();
}

}  // namespace thermocline::server
