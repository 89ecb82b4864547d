#include "server/ollama/model_routes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/core/added_models.h"
#include "server/core/held_model.h"
#include "server/core/model_pull.h"
#include "server/core/submission.h"
#include "server/http/plan_parts.h"
#include "server/http/refusal.h"
#include "server/ollama/ollama_request.h"
#include "server/ollama/pull_answer.h"
#include "server/protocol/fields.h"

namespace thermocline::ollama {
namespace {

using http::Action;
using http::HttpRequest;
using http::ResponseHead;
using server::AddedModels;
using server::Service;

// Ollama's older clients write `name`.
std::string NameOf(protocol::Fields& fields) {
  std::string name = fields.String("model", "");
  if (name.empty()) name = fields.String("name", "");
  if (name.empty()) fields.Fail("model", "'model' must name a model");
  return name;
}

Status CheckMayChange(const Service& service, const ResponseHead& head) {
  RETURN_IF_ERROR(server::CheckMayChangeModels(service));
  if (http::MayRule(service, head)) return OkStatus();
  return base::PermissionDenied("only an operator's key changes which models there are")
      .WithReason(Reason::kForbidden);
}

// An empty answer, as Ollama's, or the refusal.
Action DoneOrRefusal(Service& service, const ResponseHead& head, const Status& status) {
  if (!status.ok()) return http::RefusalResponse(service, head, status);
  return http::MakeResponse(head, 200, "application/json", "");
}

Status CheckAlias(const std::string& alias) {
  if (server::IsAddableName(alias)) return OkStatus();
  return base::InvalidArgument("expected 1 to ", server::kNameBytesMax,
                               " letters, digits and marks without blanks and commas")
      .WithField("destination");
}

// `rights`: a key that is limited to models takes no name away from others.
Status AddAlias(Service& service, const std::string& model, const std::string& alias,
                const server::ModelRights& rights) {
  return server::ChangeAddedModels(service.config().models_dir, [&](AddedModels& added) -> Status {
    const AddedModels::Alias* old = added.FindAlias(alias);
    const bool others = old == nullptr || !server::CheckListed(service, old->model, rights).ok();
    if (others && server::CheckListed(service, alias, {}).ok())
      return base::InvalidArgument("another model has the name '", alias, "' already")
          .WithField("destination");
    std::erase_if(added.aliases, [&](const auto& each) { return &each == old; });
    added.aliases.push_back({.alias = alias, .model = model});
    return OkStatus();
  });
}

// True if the entry's files are not deleted with it: another entry has them, and inherits the duty.
bool Inherited(AddedModels& added, const AddedModels::Model& gone) {
  for (AddedModels::Model& each : added.models) {
    if (&each == &gone || each.path != gone.path) continue;
    each.fetched = each.fetched || gone.fetched;
    return true;
  }
  return false;
}

// Removes the name. `gone`: receives the model whose files are to be deleted.
Status RemoveName(Service& service, const std::string& name,
                  std::optional<AddedModels::Model>& gone) {
  return server::ChangeAddedModels(service.config().models_dir, [&](AddedModels& added) -> Status {
    if (const auto* alias = added.FindAlias(name)) {
      std::erase_if(added.aliases, [&](const auto& each) { return &each == alias; });
      return OkStatus();
    }
    const AddedModels::Model* model = added.FindModel(name);
    if (model == nullptr) {
      RETURN_IF_ERROR(server::CheckListed(service, name, {}));
      return base::FailedPrecondition(
          "'", name,
          "' was not pulled here: the configuration or server.models_dir names it, and there "
          "it can be taken away");
    }
    if (server::PlainName(service.models()->front().model_name()) == server::PlainName(name))
      return base::FailedPrecondition("'", name,
                                      "' is the first model, which stays until a restart");
    const AddedModels::Model found = *model;
    if (!Inherited(added, *model) && found.fetched) gone = found;
    std::erase_if(added.aliases, [&](const auto& each) {
      return server::PlainName(each.model) == server::PlainName(found.name);
    });
    std::erase_if(added.models, [&](const auto& each) { return each.name == found.name; });
    return OkStatus();
  });
}

}  // namespace

Action PullModel(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return http::RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  const std::string name = NameOf(fields);
  const bool stream = fields.Bool("stream", true);
  for (const char* unused : {"insecure", "username", "password"}) (void)fields.Find(unused);
  if (!fields.ok()) return http::RefusalResponse(service, head, fields.status());
  if (server::CheckListed(service, ModelName(name), head.models).ok()) {
    const std::string done = Json(Json::Object{{"status", "success"}}).Dump() + "\n";
    return http::MakeResponse(head, 200, stream ? "application/x-ndjson" : "application/json",
                              done);
  }
  const Status allowed = CheckMayChange(service, head);
  if (!allowed.ok()) return http::RefusalResponse(service, head, allowed);
  return http::AnswerStarter([&service, head, name, stream](std::function<void()> on_ready) {
    return PullAnswer::Start(service, head, name, stream, std::move(on_ready));
  });
}

Action CopyModel(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return http::RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  const std::string source = ModelName(fields.String("source", ""));
  const std::string alias = fields.String("destination", "");
  fields.CheckUnknown(service.reloadable()->config.strict_fields);
  if (fields.ok() && source.empty()) fields.Fail("source", "'source' must name a model");
  if (!fields.ok()) return http::RefusalResponse(service, head, fields.status());
  Status status = CheckMayChange(service, head);
  if (status.ok()) status = CheckAlias(alias);
  if (status.ok()) status = server::CheckListed(service, source, head.models);
  if (!status.ok()) return http::RefusalResponse(service, head, status);
  const auto held =
      service.models()->Hold(source, server::ServedModels::Purpose::kLook, head.models);
  if (held == nullptr)  // it has just been deleted
    return http::RefusalResponse(service, head, server::CheckListed(service, source, {}));
  status = AddAlias(service, held->model_name(), alias, head.models);
  if (status.ok()) status = service.models()->front().control().reload();
  return DoneOrRefusal(service, head, status);
}

Action DeleteModel(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return http::RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  const std::string name = NameOf(fields);
  fields.CheckUnknown(service.reloadable()->config.strict_fields);
  if (!fields.ok()) return http::RefusalResponse(service, head, fields.status());
  Status status = CheckMayChange(service, head);
  // A key that is limited to models sees no others; a name whose model is gone is the operator's.
  if (status.ok() && !head.models.all()) status = server::CheckListed(service, name, head.models);
  std::optional<AddedModels::Model> gone;
  if (status.ok()) status = RemoveName(service, name, gone);
  if (status.ok()) status = service.models()->front().control().reload();
  // Answers that still run have the files open.
  if (status.ok() && gone.has_value()) status = server::DeletePulled(service, *gone);
  return DoneOrRefusal(service, head, status);
}

}  // namespace thermocline::ollama
