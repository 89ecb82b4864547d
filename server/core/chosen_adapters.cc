#include "server/core/chosen_adapters.h"

#include "engine/base/index.h"
#include "server/core/server_config.h"

namespace thermocline::server {

Result<std::optional<std::vector<float>>> AdapterScalesOf(
    const Engine& engine, const std::string& model,
    const std::optional<std::vector<ChosenAdapter>>& chosen) {
  const std::vector<AdapterChoice> adapters = engine.adapters();
  std::vector<float> scales(adapters.size(), 0.0F);
  if (chosen.has_value()) {
    std::vector<bool> seen(adapters.size());
    for (const ChosenAdapter& each : *chosen) {
      if (each.id < 0 || each.id >= base::IntSize(adapters))
        return base::InvalidArgument("'lora' names the adapter ", each.id, ", and the model has ",
                                     adapters.size(), "; GET /lora-adapters lists them")
            .WithField("lora");
      if (seen[each.id])
        return base::InvalidArgument("'lora' names the adapter ", each.id, " twice")
            .WithField("lora");
      seen[each.id] = true;
      scales[each.id] = each.scale;
    }
    return std::optional(std::move(scales));
  }
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (PlainName(adapters[i].name) != PlainName(model)) continue;
    // One that is loaded with 0 is there for those that name it.
    scales[i] = adapters[i].scale == 0 ? 1 : adapters[i].scale;
    return std::optional(std::move(scales));
  }
  return std::optional<std::vector<float>>();
}

}  // namespace thermocline::server
