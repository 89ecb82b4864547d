// Holds the model of a request in a daemon with one model or several.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/core/served_models.h"

namespace thermocline::server {

// For the daemon that `service` belongs to, which may have this model alone.
// True if the daemon has a list of models.
bool IsOneOfSeveral(const Service& service);
// All its models that the client may use.
std::vector<std::shared_ptr<Service>> HoldAllOf(Service& service, const ModelRights& rights = {});
// The model of that name, as ServedModels::Hold; of one model itself, whatever the name, if the
// client may use it. `client`: the tenant of a request.
std::shared_ptr<Service> HoldOf(Service& service, const std::string& name,
                                ServedModels::Purpose purpose, const ModelRights& rights,
                                const std::string& client = {});
// Calls `waiting.woken` once, on any thread, when the held model, which is used now, has been
// loaded or cannot be. A daemon with one model has loaded it or says so later.
void WakeHeld(const std::shared_ptr<Service>& held, WaitingRequest waiting);

}  // namespace thermocline::server
