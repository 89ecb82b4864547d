// The TLS credentials of the gRPC interface.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "engine/base/status.h"
#include "server/core/server_config.h"
#include "server/grpc/certificate_copies.h"

namespace thermocline::rpc {

// TLS with HTTP's certificate and key; none without them and on a Unix socket. The files are
// reloaded every kCertificateRefreshS seconds; a pair that does not match is ignored.
inline constexpr unsigned int kCertificateRefreshS = 5;
// `copies`: of TlsCopies, which must outlive the server.
std::shared_ptr<::grpc::ServerCredentials> MakeCredentials(const CertificateCopies* copies);
// The copies of the configured files; nullptr without TLS. Errors as CertificateCopies::Create.
Result<std::shared_ptr<CertificateCopies>> TlsCopies(const server::ServerConfig& config);

}  // namespace thermocline::rpc
