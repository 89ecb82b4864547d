// What `thermocline run` was asked for, and what of it a chat can change.
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
  SamplingDefaults said = {};  // the part of it that the command line gives
  std::string mode = {};       // of the chat's next messages; "" = as loaded
};

// A value for generations: an option of the command line, and a name for /set.
struct Setting {
  std::string name;  // "temperature"; the option is "--temperature"
  OptionValue value;
  const char* help;
  bool everyday = false;
};
// "top-p".
std::string OptionName(const SamplingField& field);
// The one table of them, with pointers into `options`.
std::vector<Setting> SettingsOf(RunOptions& options);

Request MakeRequest(const RunOptions& options, std::vector<int> prompt);

}  // namespace thermocline::tools
