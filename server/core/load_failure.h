// The error of a model that cannot be loaded, for clients.
#pragma once

#include "server/core/service.h"

namespace thermocline::server {

// Unavailable, with the reason `why` but without the operator's folders.
Status LoadFailure(const Service& service, const Status& why);

// Tells the operator how a load of one model among several ended, after so many seconds.
void LogLoad(const Service& service, const Status& loaded, double seconds);

}  // namespace thermocline::server
