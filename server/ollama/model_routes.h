// Ollama's routes that change which models there are: pull, copy, delete.
#pragma once

#include "server/http/router.h"

namespace thermocline::ollama {

http::Action PullModel(server::Service& service, const http::HttpRequest& request,
                       const http::ResponseHead& head);
// Gives a model a further name.
http::Action CopyModel(server::Service& service, const http::HttpRequest& request,
                       const http::ResponseHead& head);
// Takes away such a name, or a model that PullModel added: with its files if it fetched them.
http::Action DeleteModel(server::Service& service, const http::HttpRequest& request,
                         const http::ResponseHead& head);

}  // namespace thermocline::ollama
