#include "tools/launch/server_query.h"

#include "engine/base/json.h"
#include "loadtest/client/http_client.h"

namespace thermocline::tools {
namespace {

constexpr double kAnswerSeconds = 10;

Result<loadtest::HttpTarget> TargetOf(const ServerAddress& address) {
  ASSIGN_OR_RETURN(loadtest::Url url, loadtest::ParseUrl(address.url));
  return loadtest::ResolveTarget({.url = std::move(url), .api_key = address.key});
}

// A name as one segment of a path.
std::string PercentEncoded(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kDigits[byte / 16], kDigits[byte % 16]};
  }
  return out;
}

std::int64_t Number(const Json* object, std::string_view key) {
  const Json* value = object != nullptr ? object->Find(key) : nullptr;
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

// Reads the list of models of Thermocline, llama-server or vLLM.
ServerModels ModelsOf(const Json& body) {
  ServerModels models;
  const Json* data = body.Find("data");
  if (data == nullptr || !data->is_array()) return models;
  for (const Json& model : data->as_array()) {
    const Json* id = model.Find("id");
    if (id == nullptr || !id->is_string() || id->as_string().empty()) continue;
    if (models.names.empty()) {
      const Json* meta = model.Find("meta");
      models.context = Number(&model, "context_length");
      if (models.context == 0) models.context = Number(&model, "max_model_len");
      if (models.context == 0) models.context = Number(meta, "n_ctx");
      models.context_trained = Number(meta, "n_ctx_train");
    }
    models.names.push_back(id->as_string());
  }
  return models;
}

}  // namespace

Result<ServerModels> ReadServerModels(const ServerAddress& address) {
  ASSIGN_OR_RETURN(const loadtest::HttpTarget target, TargetOf(address));
  const loadtest::Url& url = target.options.url;
  ASSIGN_OR_RETURN(const loadtest::HttpResponse response,
                   loadtest::Fetch(target, loadtest::ApiPath(url, "models"), kAnswerSeconds));
  if (response.status == 401 || response.status == 403) {
    return base::Unauthenticated(
        address.url, address.key.empty() ? " wants a key" : " does not know this key",
        ": put one into THERMOCLINE_API_KEY, or name a file that holds it by --api-key-file");
  }
  const auto body = base::ParseJson(response.body);
  ServerModels models = response.status == 200 && body.ok() ? ModelsOf(*body) : ServerModels();
  if (models.names.empty()) {
    return base::FailedPrecondition(address.url, " lists no models: GET /v1/models is answered ",
                                    response.status,
                                    "; if another program listens there, give --url");
  }
  models.url = url.origin() + loadtest::RootPath(url, "");
  models.url.pop_back();
  return models;
}

bool AcceptsModel(const ServerAddress& address, const std::string& name) {
  const auto target = TargetOf(address);
  if (!target.ok()) return false;
  const std::string path = loadtest::ApiPath(target->options.url, "models/" + PercentEncoded(name));
  const auto response = loadtest::Fetch(*target, path, kAnswerSeconds);
  return response.ok() && response->status == 200;
}

Result<bool> IsServerReady(const ServerAddress& address) {
  ASSIGN_OR_RETURN(const loadtest::HttpTarget target, TargetOf(address));
  ASSIGN_OR_RETURN(
      const loadtest::HttpResponse response,
      loadtest::Fetch(target, loadtest::RootPath(target.options.url, "health"), kAnswerSeconds));
  return response.status != 503;
}

}  // namespace thermocline::tools
