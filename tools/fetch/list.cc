// `thermocline list`: the models on this machine that `pull` and other programs have fetched.
#include <algorithm>
#include <cstdio>
#include <map>

#include "engine/base/strings.h"
#include "engine/hub/choose_files.h"
#include "engine/hub/scan.h"
#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"

namespace thermocline::tools {
namespace {

struct ListOptions {
  bool json = false;
};

// The type that holds the most bytes.
std::string LargestType(const model::ModelFile& file) {
  std::map<std::string, std::uint64_t> bytes;
  for (const model::TensorInfo& tensor : file.tensors) bytes[tensor.type->name] += tensor.bytes;
  const auto largest = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == bytes.end() ? "" : largest->first;
}

Json DescribeFound(const hub::FoundModel& found) {
  const auto file = model::OpenModelFile(found.path);
  std::string quant = hub::QuantOf(found.path);
  if (quant.empty() && file.ok()) quant = LargestType(**file);
  return Json::Object{{"name", found.name},
                      {"source", found.source},
                      {"bytes", found.bytes},
                      {"quant", quant},
                      {"family", file.ok() ? std::string((*file)->config.architecture->name) : ""},
                      {"readable", file.ok()},
                      {"why", file.ok() ? "" : file.status().message()},
                      {"path", found.path}};
}

void PrintModels(const Json::Array& models) {
  for (const Json& m : models) {
    const auto text = [&](const char* key) {
      return base::EscapeControls(m.Find(key)->as_string());
    };
    std::printf("%s\n  %s  %s  %s  %s\n", text("name").c_str(),
                base::HumanBytes(m.Find("bytes")->as_int()).c_str(), text("quant").c_str(),
                text("family").c_str(), text("path").c_str());
    if (m.Find("readable")->as_bool())
      std::printf("  serve it: thermoclined '%s'\n", text("name").c_str());
    else
      std::printf("  cannot be served: %s\n", text("why").c_str());
  }
}

}  // namespace

Command AddList(const OptionSet& set) {
  auto options = std::make_shared<ListOptions>();
  set.Add("--json", options->json, "One JSON object on standard output");
  return [options]() -> Status {
    Json::Array models;
    for (const hub::FoundModel& found : hub::ScanModels()) models.push_back(DescribeFound(found));
    if (options->json)
      PrintJson(Json::Object{{"models", std::move(models)}});
    else if (models.empty())
      std::puts(
          "no models; `thermocline pull NAME` fetches one, and `thermoclined tidepool` serves the built-in one");
    else
      PrintModels(models);
    return OkStatus();
  };
}

}  // namespace thermocline::tools
