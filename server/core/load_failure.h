// The error of a model that cannot be loaded, for clients.
#pragma once

#include "server/core/service.h"

namespace thermocline::server {

// Unavailable, with the reason `why` but without the operator's folders.
Status LoadFailure(const Service& service, const Status& why);

}  // namespace thermocline::server
