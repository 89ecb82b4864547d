// Ollama's API below /api.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::http {

using server::Service;

Action OllamaVersion(Service& service, const HttpRequest& request, const ResponseHead& head);
Action OllamaTags(Service& service, const HttpRequest& request, const ResponseHead& head);
Action OllamaRunning(Service& service, const HttpRequest& request, const ResponseHead& head);
Action OllamaShow(Service& service, const HttpRequest& request, const ResponseHead& head);
Action OllamaChat(Service& service, const HttpRequest& request, const ResponseHead& head);
Action OllamaGenerate(Service& service, const HttpRequest& request, const ResponseHead& head);
Action OllamaEmbed(Service& service, const HttpRequest& request, const ResponseHead& head);
Action OllamaEmbeddings(Service& service, const HttpRequest& request, const ResponseHead& head);
// /api/pull and its kin: this server serves one model, which it has.
Action OllamaPull(Service& service, const HttpRequest& request, const ResponseHead& head);

}  // namespace thermocline::http
