#include "server/core/base64.h"

#include <openssl/evp.h>

#include "engine/base/index.h"

namespace thermocline::server {

std::string Base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and the NUL that OpenSSL appends
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), base::IntSize(bytes));
  out.resize(size);
  return out;
}

}  // namespace thermocline::server
