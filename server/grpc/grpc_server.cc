#include "server/grpc/grpc_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>

#include <algorithm>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "engine/base/log.h"
#include "engine/base/thread_priority.h"
#include "server/core/held_model.h"
#include "server/core/run_guarded.h"
#include "server/grpc/connection_gate.h"
#include "server/grpc/credentials.h"
#include "server/grpc/inference_service.h"
#include "server/grpc/reflection.h"

namespace thermocline::rpc {
namespace {

constexpr int kQuietSecondsMax = 10;                      // for a reflection stream
constexpr std::chrono::milliseconds kShutdownGrace{500};  // for clients to close their calls
// Calls with more than kMetadataBytesMax (request_context.h) are rejected one by one; beyond this
// limit the library closes the connection with all of its calls.
constexpr int kMetadataBytesHardMax = 256 << 10;
constexpr int kStreamBufferBytes = 16 << 10;  // a stream with more unread bytes pauses
// Bytes of a message that a client may send before its call is accepted. The library would adapt
// this to the network's speed, up to 16 MiB.
constexpr int kUnreadBytes = 16 << 10;
constexpr int kKeepaliveMs = 60'000;         // between pings to a silent client
constexpr int kKeepaliveTimeoutMs = 20'000;  // for the ping's answer

// Sends gRPC's log lines to our log.
void Log(gpr_log_func_args* args) {
  if (args->severity == GPR_LOG_SEVERITY_ERROR) base::LogWarning("gRPC: ", args->message);
}

// Protobuf's log lines are about clients' input. They name the field that is wrong, not its value.
void LogProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  base::Log(base::LogLevel::kDebug, StrCat("protobuf: ", message));
}

// Process-wide settings of the libraries.
void SetUpLibrary() {
  gpr_set_log_function(Log);
  google::protobuf::SetLogHandler(LogProtobuf);
  ::grpc::EnableDefaultHealthCheckService(true);
}

// Half-open streams of a connection without a call take about 16 KiB each (measured). The limit
// lets those of all unproven connections fit into half of gRPC's memory.
int StreamsMax(const server::Service& service) {
  constexpr std::size_t kStreamBytes = 16 << 10, kConnections = 64, kLeast = 8;
  const std::size_t fit = service.request_sizes().grpc / (kStreamBytes * kConnections);
  const std::size_t most = service.config().grpc_streams_max;
  return static_cast<int>(std::min(std::max(fit, kLeast), most));
}

void SetLimits(const server::Service& service, ::grpc::ServerBuilder& builder) {
  const server::ServerConfig& config = service.config();
  builder.SetMaxReceiveMessageSize(config.body_bytes_max);
  builder.SetResourceQuota(::grpc::ResourceQuota("grpc").Resize(service.request_sizes().grpc));
  const std::pair<const char*, int> arguments[] = {
      // Closes connections that send no handshake.
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, config.read_timeout_s * 1000},
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, StreamsMax(service)},
      {GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesHardMax},
      // A small compressed message could unpack to gigabytes before its key and size are checked.
      {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
      {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kUnreadBytes},
      {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kStreamBufferBytes},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, config.idle_timeout_s * 1000},
      {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      // The library would send a GOAWAY of 800 bytes for each ping above a limit. OpenConnections
      // shuts connections that flood.
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0}};
  for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
}

}  // namespace

struct GrpcServer::Impl {
  explicit Impl(server::Service& served) : service(served), inference(io, served, credit) {
    for (int i = 0; i < served.config().grpc_threads; ++i) {
      threads.emplace_back([this] {
        base::AskForShortTurns();
        server::RunGuarded(io);
      });
      pthread_setname_np(threads.back().native_handle(), StrCat("grpc-", i).c_str());
    }
  }
  // The engine has ended, so that no more handlers will be posted.
  ~Impl() {
    work.reset();
    for (std::thread& thread : threads) thread.join();
  }

  void SetServing(bool serving) {
    auto* health = server->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(v1::Inference::service_full_name(), serving);
  }

  server::Service& service;
  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  ConnectionCredit credit;
  bool was_ready = false;  // WatchState's
  InferenceService inference;
  std::vector<std::unique_ptr<::grpc::Service>> reflections;  // by version
  std::shared_ptr<CertificateCopies> certificate;             // nullptr: no TLS
  std::unique_ptr<::grpc::Server> server;
  std::unique_ptr<ConnectionGate> gate;
  std::vector<std::thread> threads;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { Shutdown(); }

Result<std::unique_ptr<GrpcServer>> GrpcServer::Create(server::Service& service) {
  const server::ServerConfig& config = service.config();
  const std::string& address = config.grpc_address;
  if (address.empty()) return std::unique_ptr<GrpcServer>();
  SetUpLibrary();
  auto impl = std::make_unique<Impl>(service);
  const auto mode = static_cast<mode_t>(std::stoul(config.unix_socket_mode, nullptr, 8));
  ASSIGN_OR_RETURN(impl->gate, ConnectionGate::Open(address, mode));
  ASSIGN_OR_RETURN(impl->certificate, TlsCopies(config));
  using Type = ::grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  ::grpc::ServerBuilder builder;
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      Type::FROM_FD, MakeCredentials(impl->certificate.get()));
  builder.RegisterService(&impl->inference);
  if (config.grpc_reflection)
    impl->reflections = MakeReflections(
        impl->io, std::chrono::seconds(std::min(kQuietSecondsMax, config.read_timeout_s)));
  for (const auto& reflection : impl->reflections) builder.RegisterService(reflection.get());
  SetLimits(service, builder);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr)
    return base::Unavailable("gRPC's library does not start; the log says why");
  impl->SetServing(false);
  service.WatchState([impl = impl.get()](server::ServiceState state) {
    // A first model that sleeps is loaded when it is asked for, and others answer meanwhile.
    const bool others = server::IsOneOfSeveral(impl->service) && impl->was_ready;
    impl->was_ready = impl->was_ready || state == server::ServiceState::kReady;
    impl->SetServing(state == server::ServiceState::kReady ||
                     (others && state != server::ServiceState::kDraining));
  });
  impl->gate->Start(service, impl->credit, std::move(acceptor));
  base::LogInfo("listening for gRPC on ", impl->gate->address());
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

void GrpcServer::Shutdown() {
  if (impl_->server == nullptr) return;
  impl_->gate->Close();
  impl_->service.WatchState({});
  impl_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  impl_->server->Wait();
}

}  // namespace thermocline::rpc
