#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "engine/base/file.h"

namespace thermocline::http {
namespace {

namespace ssl = boost::asio::ssl;

// Only forward secrecy and authenticated encryption. Source: Mozilla's "intermediate" server side
// TLS, version 5.7. TLS 1.3 keeps OpenSSL's ciphers, which are all good.
constexpr const char* kCiphers =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

// Selects http/1.1 from the client's list (ALPN); rejects a client that offers only other
// protocols. Source: RFC 7301.
int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int result =
      SSL_select_next_proto(&chosen, out_bytes, kOurs, sizeof(kOurs) - 1, offered, offered_bytes);
  *out = chosen;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

Status FileError(const char* what, const std::string& path,
                 const boost::system::error_code& error) {
  ERR_clear_error();
  return base::InvalidArgument(what, " '", path, "': ", error.message());
}

// A pipe, which could wait for ever, is refused, and so is a chain longer than clients take.
Result<std::string> ReadPem(const char* what, const std::string& path) {
  constexpr std::uint64_t kBytesMax = 64 << 10;
  auto text = base::ReadFileToString(path, kBytesMax);
  if (!text.ok()) return base::InvalidArgument(what, ": ", text.status().message());
  return text;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> MakeTlsContext(const std::string& certificate,
                                                   const std::string& key) {
  auto context = std::make_shared<TlsContext>(ssl::context::tls_server);
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                       ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                       SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                       SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX* native = context->native_handle();
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(native, SelectProtocol, nullptr);
  if (SSL_CTX_set_cipher_list(native, kCiphers) != 1)
    return base::Internal("OpenSSL has none of the ciphers");
  ASSIGN_OR_RETURN(const std::string chain, ReadPem("server.tls_certificate", certificate));
  ASSIGN_OR_RETURN(const std::string own, ReadPem("server.tls_key", key));
  context->use_certificate_chain(boost::asio::buffer(chain), error);
  if (error) return FileError("server.tls_certificate", certificate, error);
  context->use_private_key(boost::asio::buffer(own), ssl::context::pem, error);
  if (error) return FileError("server.tls_key", key, error);
  if (SSL_CTX_check_private_key(native) != 1) {
    ERR_clear_error();
    return base::InvalidArgument("server.tls_key '", key, "' is not the key of '", certificate,
                                 "'");
  }
  return context;
}

}  // namespace thermocline::http
