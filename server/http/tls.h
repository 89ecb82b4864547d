// The listener's TLS context, made from two PEM files.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "engine/base/status.h"

namespace thermocline::http {

using TlsContext = boost::asio::ssl::context;

// TLS 1.2 or newer, HTTP/1.1 by ALPN. InvalidArgument naming the file: it cannot be read, or the
// key does not belong to the certificate.
Result<std::shared_ptr<TlsContext>> MakeTlsContext(const std::string& certificate,
                                                   const std::string& key);

}  // namespace thermocline::http
