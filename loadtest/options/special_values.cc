#include "loadtest/options/special_values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/base/file.h"

namespace thermocline::loadtest {
namespace {

using TextResult = Result<std::string>;

TextResult CheckKey(const std::string& key) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7F'; });
  if (!printable) return base::InvalidArgument("the API key has spaces or control characters");
  return key;
}

Result<double> ParseStep(const LoadOptions& options, std::string_view name,
                         const std::string& text) {
  double step = 0;
  RETURN_IF_ERROR(Real(step, 1e-6, 20000).set(name, text));
  const bool users = options.sweep == SweepOver::kConcurrency;
  if (users && (step < 1 || step != std::floor(step)))
    return BadValue(name, text, "whole numbers of users");
  return step;
}

}  // namespace

OptionValue ServerUrl(LoadOptions& options) {
  return Parsed(options.url,
                [&options](std::string_view name, const std::string& text) -> Result<Url> {
                  ASSIGN_OR_RETURN(Url url, ParseUrl(text));
                  if (options.api == Api::kHttp || url.path.empty()) return url;
                  return BadValue(name, text, "no path with --api grpc, as 127.0.0.1:50051");
                });
}

OptionValue SweepSteps(LoadOptions& options) {
  using Steps = std::vector<double>;
  return Parsed(options.sweep_steps,
                [&options](std::string_view name, const std::string& list) -> Result<Steps> {
                  Steps steps;
                  for (std::size_t at = 0; at < list.size();) {
                    const std::size_t end = std::min(list.find(',', at), list.size());
                    ASSIGN_OR_RETURN(const double step,
                                     ParseStep(options, name, list.substr(at, end - at)));
                    steps.push_back(step);
                    at = end + 1;
                  }
                  return steps;
                });
}

OptionValue UrlText(std::string& target) {
  return Parsed(target, [](std::string_view, const std::string& text) -> TextResult {
    RETURN_IF_ERROR(ParseUrl(text).status());
    return text;
  });
}

OptionValue JsonObjectText(std::string& target) {
  return Parsed(target, [](std::string_view name, const std::string& text) -> TextResult {
    const auto json = base::ParseJson(text);
    if (!json.ok() || !json->is_object()) return BadValue(name, text, "a JSON object");
    return text;
  });
}

OptionValue Key(std::string& target) {
  return Parsed(target, [](std::string_view, const std::string& text) { return CheckKey(text); });
}

OptionValue KeyOfFile(std::string& target) {
  return Parsed(target, [](std::string_view, const std::string& path) -> TextResult {
    ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, 1u << 20));
    return CheckKey(text.substr(0, text.find_first_of("\r\n")));
  });
}

OptionValue KeyOfVariable(std::string& target) {
  return Parsed(target, [](std::string_view name, const std::string& variable) -> TextResult {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) return BadValue(name, variable, "a variable that is set");
    return CheckKey(value);
  });
}

OptionValue Objectives(std::vector<SloTerm>& target) {
  return Parsed(target, [](std::string_view, const std::string& text) { return ParseSlo(text); });
}

OptionValue Goodput(GoodLimits& target) {
  return Parsed(target,
                [](std::string_view, const std::string& text) { return ParseGoodLimits(text); });
}

}  // namespace thermocline::loadtest
