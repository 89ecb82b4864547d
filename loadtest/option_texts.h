// The options as texts, before they are checked: what CLI11 fills. options.cc alone includes that
// library, whose header takes ten seconds to compile.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loadtest/options.h"

namespace thermocline::loadtest {

struct OptionTexts {
  std::string url = {}, api = "http", route = "chat", model = {}, api_key = {}, api_key_file = {},
              api_key_env = {}, ca_file = {}, metrics_url = {}, temperature = {}, extra_body = {},
              timeout = "120s", concurrency = "1", rate = {}, arrival = "poisson", burstiness = "1",
              trace = {}, trace_speed = "1", duration = "10s", requests = {}, warmup = "0",
              max_in_flight = "1024", workload = "chat", prompt_tokens = "64", max_tokens = "64",
              dataset = {}, seed = "1", share = "0.3", long_prompt_tokens = "1024",
              read_pause = "200ms", turns = "4", shared_prefix_tokens = "64", think_time = "0",
              sweep = {}, sweep_steps = {}, slo = {}, goodput = {}, pid = {}, rss_slope_max = {},
              report = {}, raw = {};
  bool insecure = false, no_keep_alive = false, ignore_eos = false, soak = false, json = false;
};

// One row for each option: its name, the text that it sets, the help.
struct TextOption {
  const char* name;
  std::string OptionTexts::*text;
  const char* help;
};
struct FlagOption {
  const char* name;
  bool OptionTexts::*flag;
  const char* help;
};
extern const std::vector<TextOption> kTextOptions;
extern const std::vector<FlagOption> kFlagOptions;

// The options, checked. `given` says whether an option, "--rate", was on the command line.
// InvalidArgument names the option.
using Given = std::function<bool(const std::string&)>;
Result<LoadOptions> CheckOptions(const OptionTexts& texts, const Given& given);

}  // namespace thermocline::loadtest
