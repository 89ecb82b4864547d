#include "engine/api/adapter_choice.h"

#include <cmath>
#include <filesystem>

#include "engine/base/strings.h"

namespace thermocline {
namespace {

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1)
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

// PATH, or PATH:SCALE.
Status ReadScale(AdapterChoice& choice) {
  const std::size_t colon = choice.path.rfind(':');
  if (colon == std::string::npos) return OkStatus();
  const auto scale = base::ParseNumber<double>(choice.path.substr(colon + 1));
  if (!scale.has_value()) return OkStatus();
  if (!(std::abs(*scale) <= kAdapterScaleMax))
    return base::InvalidArgument("lora: the scale ", *scale, " of ", choice.path.substr(0, colon),
                                 " is not within ", -kAdapterScaleMax, " and ", kAdapterScaleMax);
  choice.scale = static_cast<float>(*scale);
  choice.path.resize(colon);
  return OkStatus();
}

}  // namespace

Result<std::vector<AdapterChoice>> ParseAdapters(const std::string& text) {
  std::vector<AdapterChoice> choices;
  if (text.empty()) return choices;
  for (const std::string& one : SplitAt(text, ',')) {
    const std::size_t equals = one.find('='), slash = one.find('/');
    const bool named = equals != std::string::npos && equals < slash;
    AdapterChoice choice{.path = named ? one.substr(equals + 1) : one};
    RETURN_IF_ERROR(ReadScale(choice));
    const std::filesystem::path path = std::filesystem::path(choice.path).lexically_normal();
    choice.name = named ? one.substr(0, equals)
                        : (path.has_filename() ? path : path.parent_path()).stem().string();
    if (choice.path.empty() || choice.name.empty())
      return base::InvalidArgument("lora '", one, "': [NAME=]PATH[:SCALE] is expected");
    for (const AdapterChoice& other : choices) {
      if (other.name == choice.name)
        return base::InvalidArgument("lora: two adapters are named '", choice.name,
                                     "'; give one another name (NAME=PATH)");
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace thermocline
