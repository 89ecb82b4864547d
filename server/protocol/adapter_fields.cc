#include "server/protocol/adapter_fields.h"

#include "engine/api/adapter_choice.h"

namespace thermocline::protocol {

void ReadAdapters(Fields& fields, server::GenerationRequest& generation) {
  constexpr std::size_t kAdaptersMax = 256;
  const Json* list = fields.Find("lora");
  if (list == nullptr || list->is_null()) return;
  if (!list->is_array() || list->as_array().size() > kAdaptersMax)
    return fields.Fail("lora", "'lora' must be a list of objects like {\"id\": 0, \"scale\": 0.5}");
  generation.lora.emplace();
  for (const Json& each : list->as_array()) {
    if (!each.is_object())
      return fields.Fail("lora", "'lora' must hold objects like {\"id\": 0, \"scale\": 0.5}");
    Fields inner(each);
    server::ChosenAdapter chosen;
    chosen.id = inner.Int32("id", -1, 0, static_cast<int>(kAdaptersMax));
    chosen.scale =
        static_cast<float>(inner.Double("scale", 1, -kAdapterScaleMax, kAdapterScaleMax));
    inner.CheckUnknown(false);
    fields.Adopt("lora", inner);
    if (chosen.id < 0) return fields.Fail("lora", "'lora' needs the 'id' of each adapter");
    generation.lora->push_back(chosen);
  }
}

}  // namespace thermocline::protocol
