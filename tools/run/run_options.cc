#include "tools/run/run_options.h"

#include <algorithm>
#include <utility>

namespace thermocline::tools {

namespace {

Setting SettingOf(const SamplingField& field, SamplingParams& sampling) {
  return {OptionName(field),
          field.number != nullptr ? OptionValue(DoubleValue{&(sampling.*field.number)})
                                  : OptionValue(IntValue{&(sampling.*field.whole)}),
          field.help};
}

}  // namespace

std::string OptionName(const SamplingField& field) {
  std::string name = field.name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::vector<Setting> SettingsOf(RunOptions& options) {
  std::vector<Setting> settings = {
      {"max-tokens", IntValue{&options.max_tokens, 0},
       "Tokens to generate; 0 = to the end of the context", true},
      {"seed", UnsignedValue{&options.sampling.seed},
       "The same seed and prompt give the same text; a chat draws its own", true}};
  for (const SamplingField& field : SamplingFields())
    settings.push_back(SettingOf(field, options.sampling));
  for (Setting& setting : settings)
    setting.everyday |= setting.name == "temperature" || setting.name == "top-p";
  settings.push_back(
      {"ignore-eos", BoolValue{&options.ignore_eos}, "Go on after the model's end token"});
  return settings;
}

Request MakeRequest(const RunOptions& options, std::vector<int> prompt) {
  return {.prompt = std::move(prompt),
          .sampling = options.sampling,
          .max_tokens = options.max_tokens,
          .stop = {},
          .ffn_mode = options.mode,
          .ignore_eos = options.ignore_eos,
          .dry_breakers = options.dry_breakers};
}

}  // namespace thermocline::tools
