#include "server/routes/api_description.h"

#include <cstring>
#include <utility>

#include "engine/api/sampling_table.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "server/web/page.h"

namespace thermocline::routes {
namespace {

constexpr const char* kMark = "x-sampling";

// Describes the default for a request without the field.
std::string Absent(const SamplingField& field) {
  const auto common = field.Preferred(kCommonSampling);
  if (!field.has_preference()) return {};
  return StrCat(". Absent: `sampling.", field.name, "`, else what the model recommends",
                common.has_value() ? StrCat("; ", *common, " where it recommends nothing") : "");
}

Json PropertyOf(const SamplingField& field) {
  const bool whole = field.whole != nullptr;
  const auto bound = [whole](double value) {
    return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  Json::Object out{{"type", Json::Array{whole ? "integer" : "number", "null"}},
                   {"minimum", bound(field.range.min)},
                   {"maximum", bound(field.range.max)},
                   {"description", StrCat(field.help, Absent(field), ".")}};
  if (field.step > 0) {  // the chat page has an input for it
    out.emplace_back("title", field.title);
    out.emplace_back("x-step", field.step);
  }
  return out;
}

void AddFields(const std::string& names, Json::Object& properties) {
  const bool openai = names == "openai";
  for (const SamplingField& field : SamplingFields()) {
    const bool same = std::strcmp(field.name, field.llama) == 0;
    if (openai) properties.emplace_back(field.name, PropertyOf(field));
    if (!openai || !same) properties.emplace_back(field.llama, PropertyOf(field));
  }
}

// The description with every x-sampling mark replaced.
Json Filled(const Json& json) {
  if (json.is_array()) {
    Json::Array out;
    for (const Json& item : json.as_array()) out.push_back(Filled(item));
    return out;
  }
  if (!json.is_object()) return json;
  Json::Object out;
  for (const auto& [key, value] : json.as_object()) {
    if (key == kMark) {
      AddFields(value.as_string(), out);
    } else {
      out.emplace_back(key, Filled(value));
    }
  }
  return out;
}

}  // namespace

const std::string& ApiDescription() {
  static const std::string description = Filled(*base::ParseJson(web::kOpenApi)).Dump(2);
  return description;
}

}  // namespace thermocline::routes
