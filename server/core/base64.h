// Encodes bytes as base64 (RFC 4648), with OpenSSL.
#pragma once

#include <string>
#include <string_view>

namespace thermocline::server {

std::string Base64(std::string_view bytes);

}  // namespace thermocline::server
