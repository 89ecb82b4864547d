// The memory budget of one model among several.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/core/model_list.h"

namespace thermocline::server {

// The memory budget of the daemon, whose first model is `front`.
std::int64_t BudgetOfAll(const Service& front);
// The bytes of `total` that the other loaded models leave, by their plans; 1 MiB at least, since 0
// would mean all.
std::int64_t BudgetFor(std::int64_t total, const ModelList::Models& all, const ServedModel& model);
// The bytes that it could have if all that may sleep slept.
std::int64_t MostFor(std::int64_t total, const ModelList::Models& all, const ServedModel& model);
// The bytes that it could have now, if all idle ones slept. Requires: ServedModels' mutex is held.
std::int64_t MostBesideBusy(std::int64_t total, const ModelList::Models& all,
                            const ServedModel& model);
// The bytes that the smallest plan takes of a model that does not fit; 0 for other errors.
std::int64_t BytesNeeded(const Status& refused);
// The resident bytes that the plans of other loaded models account for. The program itself is in
// the plan of a model that is loaded alone.
std::size_t ResidentBeside(const ModelList::Models& all, ServedModel& model);

}  // namespace thermocline::server
