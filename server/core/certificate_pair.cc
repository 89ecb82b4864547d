#include "server/core/certificate_pair.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace thermocline::server {
namespace {

template <auto kFree>
struct Freed {
  void operator()(auto* object) const { kFree(object); }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

Bio Reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
int NoPassphrase(char*, int, int, void*) { return 0; }
Certificate NextCertificate(const Bio& from) {
  return Certificate(PEM_read_bio_X509(from.get(), nullptr, NoPassphrase, nullptr));
}

}  // namespace

bool BelongTogether(const std::string& certificates, const std::string& key) {
  const Bio of_certificates = Reader(certificates), of_key = Reader(key);
  const Certificate first = NextCertificate(of_certificates);
  const Key own(PEM_read_bio_PrivateKey(of_key.get(), nullptr, NoPassphrase, nullptr));
  bool good = first && own && X509_check_private_key(first.get(), own.get()) == 1;
  while (good && NextCertificate(of_certificates)) continue;
  good = good && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;  // the text's end
  ERR_clear_error();
  return good;
}

}  // namespace thermocline::server
