// `thermocline pull`: fetches a model by its name.
#include <cstdio>

#include "engine/base/strings.h"
#include "engine/hub/find_model.h"
#include "engine/hub/folders.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"
#include "tools/fetch/sources.h"

namespace thermocline::tools {
namespace {

struct PullOptions {
  std::string name;
  bool json = false, events = false;
};

void PrintEvent(const Json& event) {
  std::printf("%s\n", event.Dump().c_str());
  (void)std::fflush(stdout);
}

void PrintPart(const FetchedPart& part) {
  PrintEvent(Json::Object{{"event", "progress"},
                          {"label", part.label},
                          {"sha256", part.sha256},
                          {"bytes", part.bytes},
                          {"bytes_total", part.bytes_total}});
}

Result<std::string> FetchByName(const hub::ModelName& name, FetchProgress& progress) {
  switch (name.kind) {
    case hub::ModelName::Kind::kHub:
      return FetchFromHub(name, progress);
    case hub::ModelName::Kind::kRegistry:
      return FetchFromRegistry(name, progress);
    case hub::ModelName::Kind::kAddress:
      break;
  }
  return FetchFromAddress(name, progress);
}

Result<std::string> Pull(const hub::ModelName& name, FetchProgress& progress) {
  Result<std::string> path = hub::Offline() ? hub::FindModel(name) : FetchByName(name, progress);
  progress.Clear();
  if (!path.ok() && hub::Offline())
    return path.status().Annotate("HF_HUB_OFFLINE is set, so nothing is fetched");
  return path;
}

}  // namespace

Command AddPull(const OptionSet& set) {
  auto options = std::make_shared<PullOptions>();
  set.Add("name", options->name,
          "hf:OWNER/REPO[:QUANT], ollama:MODEL[:TAG], or the address of a .gguf file")
      .Required();
  set.Add("--json", options->json, "One JSON object on standard output");
  set.Add("--events", options->events,
          "JSON objects on standard output, a line each: progress, and at last the result or the "
          "error");
  return [options]() -> Status {
    FetchProgress progress = options->events ? FetchProgress(PrintPart) : FetchProgress();
    const auto name = hub::ParseModelName(options->name);
    const Result<std::string> path = name.ok() ? Pull(*name, progress) : name.status();
    if (!path.ok() && options->events)
      PrintEvent(Json::Object{{"event", "error"},
                              {"code", base::StatusCodeName(path.status().code())},
                              {"message", path.status().message()}});
    RETURN_IF_ERROR(path.status());
    const Json result = Json::Object{
        {"name", name->Shown()}, {"path", *path}, {"fetched_bytes", progress.fetched()}};
    if (options->events) {
      Json event = result;
      event.Set("event", "result");
      PrintEvent(event);
    } else if (options->json) {
      PrintJson(result);
    } else {
      std::printf("%s: %s, %s fetched\n", base::EscapeControls(name->Shown()).c_str(),
                  base::EscapeControls(*path).c_str(),
                  base::HumanBytes(progress.fetched()).c_str());
    }
    return OkStatus();
  };
}

}  // namespace thermocline::tools
