// The options of `thermocline run`, and those that a chat can change.
#pragma once

#include <string>
#include <vector>

#include "engine/api/option_value.h"
#include "engine/api/request.h"
#include "engine/api/sampling_table.h"
#include "engine/text/dry_breakers.h"
#include "tools/common/model_options.h"

namespace thermocline::tools {

struct RunOptions {
  ModelOptions model = CommandLineDefaults();
  std::string prompt = {}, system = {};
  std::vector<std::string> dry_breakers = text::kDryBreakersDefault;
  std::string grammar = {}, json_schema = {};  // files
  bool chat = false, json = false, ignore_eos = false, has_prompt = false, stats = false;
  int max_tokens = 0;
  SamplingParams sampling = {};
  SamplingDefaults said = {};  // the part of `sampling` that the command line gives
  std::string mode = {};       // for the chat's next messages; "" = as loaded
};

// A setting for generations: an option of the command line, and a name for /set.
struct Setting {
  std::string name;  // "temperature"; the option is "--temperature"
  OptionValue value;
  const char* help;
  bool everyday = false;
};
// The option's name, such as "top-p".
std::string OptionName(const SamplingField& field);
// The one table of settings, with pointers into `options`.
std::vector<Setting> SettingsOf(RunOptions& options);

Request MakeRequest(const RunOptions& options, std::vector<int> prompt);

}  // namespace thermocline::tools
