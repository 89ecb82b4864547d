#include "server/grpc/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

namespace thermocline::rpc {

Result<std::shared_ptr<CertificateCopies>> TlsCopies(const server::ServerConfig& config) {
  if (config.tls_certificate.empty() || config.grpc_address.starts_with("unix:"))
    return std::shared_ptr<CertificateCopies>();
  return CertificateCopies::Create(config.tls_certificate, config.tls_key);
}

std::shared_ptr<::grpc::ServerCredentials> MakeCredentials(const CertificateCopies* copies) {
  if (copies == nullptr) return ::grpc::InsecureServerCredentials();
  namespace experimental = ::grpc::experimental;
  auto provider = std::make_shared<experimental::FileWatcherCertificateProvider>(
      copies->key_path(), copies->certificate_path(), kCertificateRefreshS);
  experimental::TlsServerCredentialsOptions options(std::move(provider));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return experimental::TlsServerCredentials(options);
}

}  // namespace thermocline::rpc
