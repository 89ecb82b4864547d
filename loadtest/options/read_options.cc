#include "loadtest/options/read_options.h"

#include "loadtest/options/option_table.h"

namespace thermocline::loadtest {
namespace {

Status Contradiction(const std::string& name, std::string_view why) {
  return base::InvalidArgument(name, " ", why).WithField(name);
}

// Checks that need no values.
Status CheckGiven(const LoadOption& option, const GivenOptions& given) {
  const std::string name = option.name();
  for (const char* other : option.excludes) {
    if (given.contains(other)) return Contradiction(name, StrCat("contradicts ", other));
  }
  const bool text = !option.is_flag() && !option.is_argument();
  if (text && given.at(name).empty()) return base::InvalidArgument(name, " '': it is empty");
  return OkStatus();
}

Status CheckRules(const LoadOption& option) {
  for (const OptionRule& rule : option.rules) {
    if (!rule.holds()) return Contradiction(option.name(), rule.why);
  }
  return OkStatus();
}

// Reads the files that options name, and sets defaults that depend on other options.
Status Complete(const GivenOptions& given, LoadOptions& o) {
  if (!o.dataset_file.empty()) {
    ASSIGN_OR_RETURN(o.workload.dataset, ReadDataset(o.dataset_file));
  }
  if (!o.trace_file.empty()) {
    ASSIGN_OR_RETURN(o.workload.trace, ReadTrace(o.trace_file, o.trace_speed));
  }
  if (o.sweep == SweepOver::kRate && o.rate == 0) o.rate = 1;
  if (o.good.empty()) o.good = LimitsOf(o.slo);
  if (given.contains("--duration")) return OkStatus();
  if (o.requests.has_value()) o.duration_s = kTimeMaxS;
  if (!o.workload.trace.empty()) o.duration_s = o.workload.trace.back().time + 1;
  return OkStatus();
}

}  // namespace

Result<LoadOptions> ReadOptions(const GivenOptions& given) {
  LoadOptions options;
  std::vector<LoadOption> table = OptionsOf(options);
  std::erase_if(table, [&](const LoadOption& option) { return !given.contains(option.name()); });
  for (const LoadOption& option : table) RETURN_IF_ERROR(CheckGiven(option, given));
  for (const LoadOption& option : table)
    RETURN_IF_ERROR(option.value.set(option.name(), given.at(option.name())));
  for (const LoadOption& option : table) RETURN_IF_ERROR(CheckRules(option));
  RETURN_IF_ERROR(Complete(given, options));
  return options;
}

}  // namespace thermocline::loadtest
