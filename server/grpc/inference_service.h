// thermocline.v1.Inference: one function a method.
#pragma once

#include <boost/asio/io_context.hpp>

#include "server/core/strand_pool.h"
#include "server/grpc/call.h"
#include "thermocline/v1/inference.grpc.pb.h"

namespace thermocline::rpc {

// Thread-safe. gRPC's threads only hand the work to `io`, or, if it may take long, to the service's
// workers: it must hold up neither other calls' reads and writes nor their streams.
class InferenceService final : public v1::Inference::CallbackService {
 public:
  InferenceService(boost::asio::io_context& io, server::Service& service)
      : io_(io), strands_(io), service_(service) {}

 private:
  using Context = ::grpc::CallbackServerContext;
  using Unary = ::grpc::ServerUnaryReactor;

  ::grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      Context* context, const v1::GenerateRequest* request) override;
  Unary* Tokenize(Context* context, const v1::TokenizeRequest* request,
                  v1::TokenizeResponse* response) override;
  Unary* Detokenize(Context* context, const v1::DetokenizeRequest* request,
                    v1::DetokenizeResponse* response) override;
  Unary* CountTokens(Context* context, const v1::CountTokensRequest* request,
                     v1::CountTokensResponse* response) override;
  Unary* GetModel(Context* context, const v1::GetModelRequest* request,
                  v1::Model* response) override;
  Unary* GetStats(Context* context, const v1::GetStatsRequest* request,
                  v1::Stats* response) override;
  Unary* Cancel(Context* context, const v1::CancelRequest* request,
                v1::CancelResponse* response) override;

  boost::asio::io_context& io_;
  server::StrandPool strands_;  // of streams
  server::Service& service_;
};

}  // namespace thermocline::rpc
