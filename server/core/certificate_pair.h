// A certificate and its private key, before they are taken up.
#pragma once

#include <string>

namespace thermocline::server {

// True if all certificates of the PEM text can be read, and the first is the key's. A key behind a
// passphrase is none. May be called from any thread.
bool BelongTogether(const std::string& certificates, const std::string& key);

}  // namespace thermocline::server
