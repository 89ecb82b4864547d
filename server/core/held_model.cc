#include "server/core/held_model.h"

#include <utility>

namespace thermocline::server {

bool IsOneOfSeveral(const Service& service) {
  return service.models() != nullptr && service.models()->several();
}

std::vector<std::shared_ptr<Service>> HoldAllOf(Service& service, const ModelRights& rights) {
  if (service.models() != nullptr) return service.models()->HoldAll(rights);
  if (service.model_names(rights).empty()) return {};
  return {std::shared_ptr<Service>(&service, [](Service*) {})};
}

std::shared_ptr<Service> HoldOf(Service& service, const std::string& name,
                                ServedModels::Purpose purpose, const ModelRights& rights,
                                const std::string& client) {
  if (service.models() != nullptr && service.models()->several())
    return service.models()->Hold(name, purpose, rights, client);
  if (service.model_names(rights).empty()) return nullptr;
  return {std::shared_ptr<Service>(&service, [](Service*) {})};
}

void WakeHeld(const std::shared_ptr<Service>& held, WaitingRequest waiting) {
  ServedModels* models = held->models();
  if (models == nullptr || !models->several()) return waiting.woken(OkStatus());
  models->KeepAlive(*held, std::nullopt);
  models->Wake(held, std::move(waiting));
}

}  // namespace thermocline::server
