#include "server/grpc/inference_service.h"

#include <atomic>

#include <boost/asio/post.hpp>

#include "engine/base/index.h"
#include "engine/base/interruption.h"
#include "engine/base/log.h"
#include "server/core/prompt.h"
#include "server/core/refusal_table.h"
#include "server/grpc/generate_stream.h"
#include "server/grpc/message_cost.h"
#include "server/grpc/refusal.h"

namespace thermocline::rpc {
namespace {

// A call with one answer. `handler(const Call&)` fills the response or says why not, on a thread of
// ours. gRPC keeps the messages until Finish, which therefore comes once, and always, also for a
// client that left.
class UnaryCall : public ::grpc::ServerUnaryReactor {
 public:
  template <typename Handler>
  static UnaryCall* Start(boost::asio::io_context& io, server::Service& service,
                          ::grpc::CallbackServerContext& context, const char* method,
                          Handler handler) {
    auto* call = new UnaryCall(service, context, method);
    boost::asio::post(io, [call, handler] { call->Run(handler); });
    return call;
  }
  // As Start, for work that grows with the request.
  template <typename Handler>
  static UnaryCall* StartLong(boost::asio::io_context& io, server::Service& service,
                              ::grpc::CallbackServerContext& context, const char* method,
                              const google::protobuf::Message& request, Handler handler) {
    auto* call = new UnaryCall(service, context, method);
    const server::BodyCost cost = CostOf(request);
    if (Status refused = server::CheckCost(cost, service.request_sizes()); !refused.ok()) {
      boost::asio::post(io, [call, refused = std::make_shared<Status>(std::move(refused))] {
        call->Refuse(call->call_.refusal().ok() ? *refused : call->call_.refusal());
      });
      return call;
    }
    service.workers(request.ByteSizeLong())
        .Post(
            call->call_.caller().tenant, io.get_executor(), [call, handler] { call->Run(handler); },
            {}, [call] { call->Refuse(server::ShuttingDown()); }, cost.bytes);
    return call;
  }

 private:
  UnaryCall(server::Service& service, ::grpc::CallbackServerContext& context, const char* method)
      : service_(service), context_(context), call_(service, context, method) {}

  template <typename Handler>
  void Run(const Handler& handler) {
    if (context_.IsCancelled()) return End(server::ClientGone());  // while it waited
    try {
      const base::InterruptScope scope(client_left_);
      Status status = call_.refusal().ok() ? handler(call_) : call_.refusal();
      if (client_left_) return End(server::ClientGone());
      if (base::Interrupted()) status = server::ShuttingDown();
      status.ok() ? End(status) : Refuse(status);
    } catch (const std::exception& error) {  // of libraries and the allocator: ends this call only
      base::LogError("id=", call_.id(), ": ", error.what());
      Refuse(base::Internal(""));
    }
  }
  void Refuse(const Status& status) {
    server::CountRejection(service_.metrics(), status);
    End(status);
  }
  void End(const Status& status) {
    const ::grpc::Status told = ToGrpc(service_, status);
    call_.End(status);
    Finish(told);
  }
  void OnCancel() override { client_left_ = true; }
  void OnDone() override { delete this; }

  server::Service& service_;
  ::grpc::CallbackServerContext& context_;
  Call call_;
  std::atomic<bool> client_left_ = false;  // the work looks, too
};

// The tokens of a request with text or chat in it, however many.
template <typename Message>
Result<std::vector<int>> Encode(const server::Service& service, const Message& message,
                                server::TextOptions options) {
  options.limit = server::PromptLimit::kNone;
  if (message.input_case() == Message::INPUT_NOT_SET)
    return BadField("input", "one of text and chat must be given");
  RETURN_IF_ERROR(service.Readiness());
  if (message.has_text()) {
    auto tokens = server::EncodeText(service, message.text(), options);
    if (!tokens.ok()) return tokens.status().WithField("text");
    return tokens;
  }
  ASSIGN_OR_RETURN(const server::Conversation conversation, ParseChat(message.chat()));
  auto prompt = server::EncodeChat(service, conversation, options.limit);
  if (!prompt.ok()) return prompt.status().WithField("chat");
  return std::move(prompt->tokens);
}

Status AnswerTokenize(const server::Service& service, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse& response) {
  ASSIGN_OR_RETURN(
      const std::vector<int> tokens,
      Encode(service, request,
             {.add_special = !request.has_add_special() || request.add_special(),
              .parse_special = !request.has_parse_special() || request.parse_special()}));
  if (request.with_pieces())
    RETURN_IF_ERROR(server::CheckPieces(tokens.size()).WithField("with_pieces"));
  response.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  if (!request.with_pieces()) return OkStatus();
  for (const int token : tokens)
    response.add_pieces(service.engine()->tokenizer().TokenBytes(token, true));
  return OkStatus();
}

Status AnswerDetokenize(const server::Service& service, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse& response) {
  RETURN_IF_ERROR(service.Readiness());
  const std::vector<int> tokens(request.token_ids().begin(), request.token_ids().end());
  auto text = server::DecodeTokens(service, tokens, request.with_special());
  if (!text.ok()) return text.status().WithField("token_ids");
  response.set_text(*std::move(text));
  return OkStatus();
}

Status AnswerCount(const server::Service& service, const v1::CountTokensRequest& request,
                   v1::CountTokensResponse& response) {
  ASSIGN_OR_RETURN(const std::vector<int> encoded, Encode(service, request, {}));
  const auto tokens = base::IntSize(encoded);
  const int n_ctx = service.engine()->Stats().context_length;
  response.set_prompt_tokens(tokens);
  response.set_context_length(n_ctx);
  response.set_fits(tokens < n_ctx);
  return OkStatus();
}

// One's own generations only, but for an administrator.
Status AnswerCancel(server::Service& service, const Caller& caller,
                    const v1::CancelRequest& request) {
  const auto tenant = caller.admin ? std::nullopt : std::optional<std::string>(caller.tenant);
  if (service.Cancel(request.request_id(), CancelCause::kApi, tenant)) return OkStatus();
  return base::NotFound("no generation of yours with this request_id is in progress")
      .WithReason(Reason::kRequestNotFound);
}

}  // namespace

::grpc::ServerWriteReactor<v1::GenerateEvent>* InferenceService::Generate(
    Context* context, const v1::GenerateRequest* request) {
  return GenerateStream::Start(strands_.Next(), service_, *context, *request).get();
}

::grpc::ServerUnaryReactor* InferenceService::Tokenize(Context* context,
                                                       const v1::TokenizeRequest* request,
                                                       v1::TokenizeResponse* response) {
  return UnaryCall::StartLong(
      io_, service_, *context, "Tokenize", *request,
      [=, this](const Call&) { return AnswerTokenize(service_, *request, *response); });
}

::grpc::ServerUnaryReactor* InferenceService::Detokenize(Context* context,
                                                         const v1::DetokenizeRequest* request,
                                                         v1::DetokenizeResponse* response) {
  return UnaryCall::StartLong(
      io_, service_, *context, "Detokenize", *request,
      [=, this](const Call&) { return AnswerDetokenize(service_, *request, *response); });
}

::grpc::ServerUnaryReactor* InferenceService::CountTokens(Context* context,
                                                          const v1::CountTokensRequest* request,
                                                          v1::CountTokensResponse* response) {
  return UnaryCall::StartLong(
      io_, service_, *context, "CountTokens", *request,
      [=, this](const Call&) { return AnswerCount(service_, *request, *response); });
}

::grpc::ServerUnaryReactor* InferenceService::GetModel(Context* context, const v1::GetModelRequest*,
                                                       v1::Model* response) {
  return UnaryCall::Start(io_, service_, *context, "GetModel", [=, this](const Call&) -> Status {
    if (service_.engine() == nullptr) return service_.Readiness();
    FillModel(service_, *response);
    return OkStatus();
  });
}

::grpc::ServerUnaryReactor* InferenceService::GetStats(Context* context, const v1::GetStatsRequest*,
                                                       v1::Stats* response) {
  return UnaryCall::Start(io_, service_, *context, "GetStats", [=, this](const Call&) -> Status {
    FillStats(service_, *response);
    return OkStatus();
  });
}

::grpc::ServerUnaryReactor* InferenceService::Cancel(Context* context,
                                                     const v1::CancelRequest* request,
                                                     v1::CancelResponse*) {
  return UnaryCall::Start(io_, service_, *context, "Cancel", [=, this](const Call& call) {
    return AnswerCancel(service_, call.caller(), *request);
  });
}

}  // namespace thermocline::rpc
