// Every route of the daemon.
#pragma once

#include "server/http/router.h"

namespace thermocline::routes {

// The routes of all protocols and the daemon's own: the page, probes, metrics, status, models,
// /admin.
const http::Router& AllRoutes();

}  // namespace thermocline::routes
