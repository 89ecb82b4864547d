#include "server/http/field_answer.h"

#include "server/core/submission.h"
#include "server/http/refusal.h"

namespace thermocline::http {
namespace {

using protocol::Fields;

struct CheckedAnswer {
  Json json;
  std::vector<std::string> ignored_fields;
};

Result<CheckedAnswer> Checked(const server::Service& service, const std::string& text,
                              OtherFields others,
                              const std::function<Result<Json>(Fields&)>& answer) {
  ASSIGN_OR_RETURN(const Json body, protocol::ParseBody(text));
  RETURN_IF_ERROR(service.Readiness());
  Fields fields(body);
  const std::string model = fields.String("model", "");
  Result<Json> result = answer(fields);
  RETURN_IF_ERROR(fields.status());
  const bool checked = others == OtherFields::kChecked;
  if (checked) fields.CheckUnknown(service.reloadable()->config.strict_fields);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(server::CheckModel(service, model));
  RETURN_IF_ERROR(result.status());
  return CheckedAnswer{.json = *std::move(result),
                       .ignored_fields = checked ? fields.ignored() : std::vector<std::string>()};
}

}  // namespace

Action AnswerFields(server::Service& service, const HttpRequest& request, const ResponseHead& head,
                    OtherFields others, const std::function<Result<Json>(Fields&)>& answer) {
  const auto found = Checked(service, request.body(), others, answer);
  if (!found.ok()) return RefusalResponse(service, head, found.status());
  HttpResponse response = JsonResponse(head, 200, found->json);
  if (found->ignored_fields.empty()) return response;
  response.set(kIgnoredFieldsHeader, IgnoredFieldsValue(found->ignored_fields));
  service.ignored_fields().Count(head.route, found->ignored_fields);
  return response;
}

}  // namespace thermocline::http
