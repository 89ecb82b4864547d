// Methods that gRPC's library takes for streams in both directions. On the wire they are the same
// as methods with one message.
#pragma once

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

namespace thermocline::rpc {

// A method for Service::AddMethod, whose calls come to `reactor(context)` with their metadata,
// before any message is read. `path`: "/package.Service/Method", which must outlive it.
template <typename Request, typename Response, typename Reactor>
::grpc::internal::RpcServiceMethod* MakeMethod(const char* path, Reactor reactor) {
  using ::grpc::internal::RpcServiceMethod;
  auto* method = new RpcServiceMethod(
      path, ::grpc::internal::RpcMethod::BIDI_STREAMING,
      new ::grpc::internal::CallbackBidiHandler<Request, Response>(std::move(reactor)));
  method->SetServerApiType(RpcServiceMethod::ApiType::CALL_BACK);
  return method;
}

}  // namespace thermocline::rpc
