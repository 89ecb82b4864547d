#include "server/grpc/inference_service.h"

#include <boost/asio/post.hpp>

#include "engine/base/log.h"
#include "server/core/prompt.h"
#include "server/grpc/generate_stream.h"

namespace thermocline::rpc {
namespace {

using Answer = std::optional<Refusal>;  // nothing: the response is filled

// A call with one answer. `handler(const Call&)` fills the response, on a thread of ours. gRPC
// keeps the messages until Finish, which therefore comes once, and always, also for a client that
// left.
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
  // As Start, for work that grows with the request, of `bytes`.
  template <typename Handler>
  static UnaryCall* StartLong(boost::asio::io_context& io, server::Service& service,
                              ::grpc::CallbackServerContext& context, const char* method,
                              std::size_t bytes, Handler handler) {
    if (bytes <= server::kBytesAtOnceMax) return Start(io, service, context, method, handler);
    auto* call = new UnaryCall(service, context, method);
    service.workers().Post(
        io.get_executor(), [call, handler] { call->Run(handler); }, {},
        [call] { call->End(call->Refuse(ShuttingDown(call->service_))); });
    return call;
  }

 private:
  UnaryCall(server::Service& service, ::grpc::CallbackServerContext& context, const char* method)
      : service_(service), context_(context), call_(service, context, method) {}

  template <typename Handler>
  void Run(const Handler& handler) {
    if (context_.IsCancelled()) return End(::grpc::Status::CANCELLED);  // while it waited
    ::grpc::Status status;
    try {
      const Answer refusal = call_.refusal().has_value() ? call_.refusal() : handler(call_);
      if (refusal.has_value()) status = Refuse(*refusal);
    } catch (const std::exception& error) {  // of libraries and the allocator: ends this call only
      base::LogError("id=", call_.id(), ": ", error.what());
      status = Refuse(FromStatus(service_, base::Internal("")));
    }
    End(status);
  }
  ::grpc::Status Refuse(const Refusal& refusal) {
    CountRejection(service_, refusal);
    return ToGrpc(refusal);
  }
  void End(const ::grpc::Status& status) {
    call_.End(status.error_code());
    Finish(status);
  }
  void OnDone() override { delete this; }

  server::Service& service_;
  ::grpc::CallbackServerContext& context_;
  Call call_;
};

// The tokens of a request with text or chat in it, however many.
template <typename Message>
std::variant<std::vector<int>, Refusal> Encode(const server::Service& service,
                                               const Message& message,
                                               server::TextOptions options) {
  options.limit = server::PromptLimit::kNone;
  if (message.input_case() == Message::INPUT_NOT_SET)
    return BadField("input", "one of text and chat must be given");
  if (auto not_ready = NotReady(service)) return *std::move(not_ready);
  if (message.has_text()) {
    auto tokens = server::EncodeText(service, message.text(), options);
    if (!tokens.ok()) return FromStatus(service, tokens.status(), "text");
    return *std::move(tokens);
  }
  auto conversation = ParseChat(message.chat());
  if (auto* refusal = std::get_if<Refusal>(&conversation)) return std::move(*refusal);
  auto tokens = server::EncodeChat(service, std::get<Json>(conversation), options.limit);
  if (!tokens.ok()) return FromStatus(service, tokens.status(), "chat");
  return *std::move(tokens);
}

Answer AnswerTokenize(const server::Service& service, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse& response) {
  const auto encoded =
      Encode(service, request,
             {.add_special = !request.has_add_special() || request.add_special(),
              .parse_special = !request.has_parse_special() || request.parse_special()});
  if (const auto* refusal = std::get_if<Refusal>(&encoded)) return *refusal;
  const auto& tokens = std::get<std::vector<int>>(encoded);
  const Status few = request.with_pieces() ? server::CheckPieces(tokens.size()) : OkStatus();
  if (!few.ok()) return FromStatus(service, few, "with_pieces");
  response.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  if (!request.with_pieces()) return std::nullopt;
  for (const int token : tokens)
    response.add_pieces(service.engine()->tokenizer().TokenBytes(token, true));
  return std::nullopt;
}

Answer AnswerDetokenize(const server::Service& service, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse& response) {
  if (auto not_ready = NotReady(service)) return not_ready;
  const std::vector<int> tokens(request.token_ids().begin(), request.token_ids().end());
  auto text = server::DecodeTokens(service, tokens, request.with_special());
  if (!text.ok()) return FromStatus(service, text.status(), "token_ids");
  response.set_text(*std::move(text));
  return std::nullopt;
}

Answer AnswerCount(const server::Service& service, const v1::CountTokensRequest& request,
                   v1::CountTokensResponse& response) {
  const auto encoded = Encode(service, request, {});
  if (const auto* refusal = std::get_if<Refusal>(&encoded)) return *refusal;
  const auto tokens = static_cast<int>(std::get<std::vector<int>>(encoded).size());
  const int n_ctx = service.engine()->Stats().context_length;
  response.set_prompt_tokens(tokens);
  response.set_context_length(n_ctx);
  response.set_fits(tokens < n_ctx);
  return std::nullopt;
}

// One's own generations only, but for an administrator.
Answer AnswerCancel(server::Service& service, const Caller& caller,
                    const v1::CancelRequest& request) {
  const auto tenant = caller.admin ? std::nullopt : std::optional<std::string>(caller.tenant);
  if (service.Cancel(request.request_id(), CancelCause::kApi, tenant)) return std::nullopt;
  return Refusal{.code = ::grpc::StatusCode::NOT_FOUND,
                 .message = "no generation of yours with this request_id is in progress",
                 .reason = "REQUEST_NOT_FOUND"};
}

}  // namespace

::grpc::ServerWriteReactor<v1::GenerateEvent>* InferenceService::Generate(
    Context* context, const v1::GenerateRequest* request) {
  return GenerateStream::Start(io_, service_, *context, *request).get();
}

::grpc::ServerUnaryReactor* InferenceService::Tokenize(Context* context,
                                                       const v1::TokenizeRequest* request,
                                                       v1::TokenizeResponse* response) {
  return UnaryCall::StartLong(
      io_, service_, *context, "Tokenize", request->ByteSizeLong(),
      [=, this](const Call&) { return AnswerTokenize(service_, *request, *response); });
}

::grpc::ServerUnaryReactor* InferenceService::Detokenize(Context* context,
                                                         const v1::DetokenizeRequest* request,
                                                         v1::DetokenizeResponse* response) {
  return UnaryCall::StartLong(
      io_, service_, *context, "Detokenize", request->ByteSizeLong(),
      [=, this](const Call&) { return AnswerDetokenize(service_, *request, *response); });
}

::grpc::ServerUnaryReactor* InferenceService::CountTokens(Context* context,
                                                          const v1::CountTokensRequest* request,
                                                          v1::CountTokensResponse* response) {
  return UnaryCall::StartLong(
      io_, service_, *context, "CountTokens", request->ByteSizeLong(),
      [=, this](const Call&) { return AnswerCount(service_, *request, *response); });
}

::grpc::ServerUnaryReactor* InferenceService::GetModel(Context* context, const v1::GetModelRequest*,
                                                       v1::Model* response) {
  return UnaryCall::Start(io_, service_, *context, "GetModel", [=, this](const Call&) -> Answer {
    if (service_.engine() == nullptr) return NotReady(service_);
    FillModel(service_, *response);
    return std::nullopt;
  });
}

::grpc::ServerUnaryReactor* InferenceService::GetStats(Context* context, const v1::GetStatsRequest*,
                                                       v1::Stats* response) {
  return UnaryCall::Start(io_, service_, *context, "GetStats", [=, this](const Call&) -> Answer {
    FillStats(service_, *response);
    return std::nullopt;
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
