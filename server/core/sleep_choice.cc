#include "server/core/sleep_choice.h"

#include <algorithm>

#include "server/core/memory_share.h"

namespace thermocline::server {

SleepChoice ChooseToSleep(const ModelList::Models& all, const ServedModel& wanted,
                          std::int64_t total) {
  SleepChoice choice;
  const bool enough = wanted.bytes_needed <= MostBesideBusy(total, all, wanted);
  double most = -1;
  const auto now = ServedModel::Clock::now();
  for (const auto& other : all) {
    if (other.get() == &wanted || other->pinned || !other->loaded()) continue;
    choice.busy = choice.busy || !other->idle();
    if (!other->idle() || !enough) continue;
    const double idle_s = std::chrono::duration<double>(now - other->used_at).count();
    const auto bytes = static_cast<double>(other->service.engine()->Stats().memory_planned);
    const double worth = idle_s * bytes / std::max(other->load_s, 1e-3);
    if (worth <= most) continue;
    most = worth;
    choice.victim = other;
  }
  return choice;
}

bool IsWorthTrying(const ModelList::Models& all, const ServedModel& wanted, std::int64_t total,
                   int sleeps) {
  if (wanted.tried_at < 0) return true;
  const bool room =
      wanted.tried_at != sleeps && wanted.bytes_needed <= MostBesideBusy(total, all, wanted);
  return room || ChooseToSleep(all, wanted, total).victim != nullptr;
}

std::shared_ptr<ServedModel> ChooseToGrow(const ModelList::Models& all, std::int64_t total) {
  constexpr std::chrono::seconds kIdle{5};
  const auto now = ServedModel::Clock::now();
  for (const auto& model : all) {
    if (!model->loaded() || !model->idle() || now < model->used_at + kIdle) continue;
    // Not more than its plan takes: some come from flash whatever memory there is.
    const bool more = BudgetFor(total, all, *model) > model->budget + model->budget / 4;
    if (more && model->service.engine()->Stats().flash.used) return model;
  }
  return nullptr;
}

}  // namespace thermocline::server
