// `thermocline ps`: the models of a server, and what each does.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "engine/base/strings.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"
#include "tools/fetch/http_client.h"

namespace thermocline::tools {
namespace {

struct PsOptions {
  std::string url = "http://127.0.0.1:8080", key_file;
  bool json = false;
};

Result<std::string> ReadKey(const std::string& file) {
  if (file.empty()) {
    const char* key = std::getenv("THERMOCLINE_API_KEY");
    return std::string(key == nullptr ? "" : key);
  }
  std::ifstream in(file);
  std::string key;
  if (!std::getline(in, key)) return base::NotFound(file, ": the key cannot be read");
  return key;
}

// The JSON of a route, which a server of ours has.
Result<Json> Ask(const PsOptions& options, const std::string& key, const std::string& route) {
  constexpr int kSeconds = 10;
  std::string text;
  const auto answer = HttpGet({.url = options.url + route, .token = key, .seconds_max = kSeconds},
                              [&](const HttpResponse&, std::span<const std::byte> bytes) -> Status {
                                for (const std::byte byte : bytes)
                                  text.push_back(static_cast<char>(byte));
                                return OkStatus();
                              });
  if (!answer.ok())
    return base::Unavailable(answer.status().message(),
                             "; is a server running there? --url names another");
  if (answer->status == 401)
    return base::Unauthenticated(options.url, " wants a key: put one into THERMOCLINE_API_KEY, or ",
                                 "name a file that holds it by --api-key-file");
  auto json = base::ParseJson(text);
  if (answer->status == 200 && json.ok()) return json;
  return base::FailedPrecondition(options.url, route, " is answered ", answer->status,
                                  "; is another program listening there? --url names a server");
}

std::string TextOf(const Json* json) {
  return json != nullptr && json->is_string() ? json->as_string() : "";
}

// When the model falls asleep, as /api/ps says.
std::string Until(const Json& running) {
  const std::string at = TextOf(running.Find("expires_at"));
  return at.starts_with("9999") ? "memory is wanted" : at;
}

Json Describe(const Json& listed, const Json& running) {
  const std::string id = TextOf(listed.Find("id"));
  const Json* status = listed.Find("status");
  Json out{Json::Object{{"name", id},
                        {"status", status == nullptr ? "loaded" : TextOf(status->Find("value"))}}};
  for (const Json& each : running.Find("models")->as_array()) {
    if (TextOf(each.Find("name")) != id + ":latest" && TextOf(each.Find("name")) != id) continue;
    out.Set("bytes", *each.Find("size"));
    out.Set("context_length", *each.Find("context_length"));
    out.Set("until", Until(each));
  }
  return out;
}

void Print(const Json::Array& models) {
  std::printf("%-40s %-10s %12s %10s  %s\n", "NAME", "STATUS", "WEIGHTS", "CONTEXT", "SLEEPS WHEN");
  for (const Json& model : models) {
    const Json* bytes = model.Find("bytes");
    const Json* context = model.Find("context_length");
    std::printf("%-40s %-10s %12s %10s  %s\n",
                base::EscapeControls(model.Find("name")->as_string()).c_str(),
                base::EscapeControls(model.Find("status")->as_string()).c_str(),
                bytes == nullptr ? "" : base::HumanBytes(bytes->as_int()).c_str(),
                context == nullptr ? "" : StrCat(context->as_int()).c_str(),
                base::EscapeControls(TextOf(model.Find("until"))).c_str());
  }
}

}  // namespace

Command AddPs(const OptionSet& set) {
  auto options = std::make_shared<PsOptions>();
  set.Add("--url", options->url, "The server").ShowDefault();
  set.Add("--api-key-file", options->key_file,
          "File whose first line is the server's key; not given: THERMOCLINE_API_KEY");
  set.Add("--json", options->json, "One JSON object on standard output");
  return [options]() -> Status {
    while (options->url.ends_with('/')) options->url.pop_back();
    ASSIGN_OR_RETURN(const std::string key, ReadKey(options->key_file));
    ASSIGN_OR_RETURN(const Json listed, Ask(*options, key, "/v1/models"));
    ASSIGN_OR_RETURN(const Json running, Ask(*options, key, "/api/ps"));
    Json::Array models;
    if (listed.Find("data") == nullptr || running.Find("models") == nullptr)
      return base::FailedPrecondition(options->url, " is no server of this program");
    for (const Json& each : listed.Find("data")->as_array())
      models.push_back(Describe(each, running));
    options->json ? PrintJson(Json::Object{{"models", std::move(models)}}) : Print(models);
    return OkStatus();
  };
}

}  // namespace thermocline::tools
