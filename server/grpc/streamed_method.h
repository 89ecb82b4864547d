// Methods that gRPC's library treats as bidirectional streams. On the wire they are the same as
// methods with one message.
#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

namespace thermocline::rpc {

// Makes a method for Service::AddMethod. `reactor(context)` is called with the call's metadata,
// before any message is read. `path`: "/package.Service/Method", which must outlive the method.
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
