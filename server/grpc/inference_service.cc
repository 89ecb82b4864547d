#include "server/grpc/inference_service.h"

#include <atomic>
#include <chrono>

#include <boost/asio/post.hpp>

#include "engine/base/index.h"
#include "engine/base/interruption.h"
#include "engine/base/log.h"
#include "server/core/held_model.h"
#include "server/core/prompt.h"
#include "server/core/refusal_table.h"
#include "server/core/submission.h"
#include "server/grpc/generate_stream.h"
#include "server/grpc/message_cost.h"
#include "server/grpc/refusal.h"
#include "server/grpc/streamed_method.h"
#include "server/grpc/unread_answer.h"

namespace thermocline::rpc {
namespace {

// The parts of the daemon that a call needs.
struct Place {
  boost::asio::io_context& io;
  server::Service& service;
  ConnectionCredit& credit;
};

// A call with one message and one answer. `handler` runs on a thread of ours. gRPC keeps the call
// until Finish, so Finish is called exactly once, even if the client disconnected.
template <typename Request, typename Response, typename Handler>
class UnaryCall : public ::grpc::ServerBidiReactor<Request, Response> {
 public:
  // `is_long`: the work grows with the request.
  UnaryCall(const Place& place, ::grpc::CallbackServerContext& context, const char* path,
            bool is_long, Handler handler)
      : place_(place),
        context_(context),
        is_long_(is_long),
        handler_(std::move(handler)),
        request_context_(place.service, place.credit, context, path),
        unread_(place.io, place.service.request_memory(), request_context_.caller().tenant,
                context) {
    request_context_.refusal().ok() ? this->StartRead(&request_)
                                    : PostRefusal(request_context_.refusal());
  }

 private:
  void OnReadDone(bool ok) override {
    if (ended_) return;
    try {
      const Status begun = ok ? Begin() : NoMessage();
      if (!begun.ok()) PostRefusal(begun);
    } catch (const std::exception& error) {
      Fail(error);
    }
  }
  Status Begin() {
    request_context_.OnMessage(request_.ByteSizeLong());
    if (!is_long_) {
      RETURN_IF_ERROR(HoldModel(server::ServedModels::Purpose::kLook));
      boost::asio::post(place_.io, [this] { Run(); });
      return OkStatus();
    }
    const server::BodyCost cost = CostOf(request_);
    RETURN_IF_ERROR(server::CheckCost(cost, place_.service.request_sizes()));
    RETURN_IF_ERROR(HoldModel(server::ServedModels::Purpose::kRequest));
    const auto woken = [this, cost](const Status& status) {
      status.ok() ? RunOnWorker(cost) : PostRefusal(status);
    };
    server::WakeHeld(model_, {.woken = woken,
                              .gone = [this] { return client_left_.load(); },
                              .client = request_context_.caller().tenant,
                              .deadline = request_context_.time_limit()});
    return OkStatus();
  }
  Status HoldModel(server::ServedModels::Purpose purpose) {
    std::string name;
    if constexpr (requires { request_.model(); }) name = request_.model();
    const server::ModelRights& rights = request_context_.caller().models;
    RETURN_IF_ERROR(server::CheckListed(place_.service, name, rights));
    model_ =
        server::HoldOf(place_.service, name, purpose, rights, request_context_.caller().tenant);
    // The list may have changed since it was looked at.
    if (model_ == nullptr) return base::NotFound("the model '", name, "' is not served any more");
    request_context_.SetModel(*model_);
    return OkStatus();
  }
  void RunOnWorker(const server::BodyCost& cost) {
    const auto run = [this] { Run(); };
    place_.service.workers(request_.ByteSizeLong())
        .Post(
            request_context_.caller().tenant, place_.io.get_executor(),
            [run, bytes = cost.bytes] {
              run();
              server::TrimHeap(bytes);
            },
            {}, [this] { Refuse(server::ShuttingDown()); }, cost.bytes);
  }

  void Run() {
    // The client cancelled while it waited.
    if (context_.IsCancelled()) return End(server::ClientGone());
    try {
      const base::InterruptScope scope(client_left_);
      Status status = handler_(*model_, request_context_, request_, response_);
      if (client_left_) return End(server::ClientGone());
      if (base::Interrupted()) status = server::ShuttingDown();
      Request().Swap(&request_);
      if (status.ok()) status = Answer();
      status.ok() ? End(status) : Refuse(status);
    } catch (const std::exception& error) {  // of libraries; ends this call only
      Fail(error);
    }
  }
  // The message is counted twice, because the library makes a serialized copy.
  Status Answer() {
    return unread_.Begin(
        response_.SpaceUsedLong() + response_.ByteSizeLong(),
        std::chrono::seconds(request_context_.reloadable().config.write_timeout_s));
  }
  void Fail(const std::exception& error) {
    base::LogError("id=", request_context_.id(), ": ", error.what());
    Refuse(base::Internal(""));
  }
  void PostRefusal(const Status& status) {
    boost::asio::post(place_.io,
                      [this, status = std::make_shared<Status>(status)] { Refuse(*status); });
  }
  void Refuse(const Status& status) {
    if (client_left_) return End(server::ClientGone());
    server::CountRejection((model_ != nullptr ? *model_ : place_.service).metrics(), status);
    End(status);
  }
  void End(const Status& status) {
    ended_ = true;
    const ::grpc::Status told = ToGrpc(place_.service, status);
    request_context_.End(status);
    model_.reset();  // a client that does not take its answer does not keep it awake
    if (!status.ok()) {
      Response().Swap(&response_);
      return this->Finish(told);
    }
    this->StartWriteAndFinish(&response_, ::grpc::WriteOptions(), told);
  }
  void OnCancel() override { client_left_ = true; }
  void OnDone() override { delete this; }

  const Place place_;
  ::grpc::CallbackServerContext& context_;
  const bool is_long_;
  const Handler handler_;
  RequestContext request_context_;
  UnreadAnswer unread_;
  std::shared_ptr<server::Service> model_;  // that the message names
  Request request_;
  Response response_;
  std::atomic<bool> client_left_ = false;  // the handler checks it, too
  std::atomic<bool> ended_ = false;        // a read may complete afterwards
};

// The tokens of a request with text or chat, without a limit.
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

// Cancels only the caller's own generations, unless it is an administrator.
Status AnswerCancel(server::Service& service, const Caller& caller,
                    const v1::CancelRequest& request) {
  const auto tenant = caller.admin ? std::nullopt : std::optional<std::string>(caller.tenant);
  for (const auto& model : server::HoldAllOf(service, caller.models))
    if (model->Cancel(request.request_id(), CancelCause::kApi, tenant)) return OkStatus();
  return base::NotFound("no generation of yours with this request_id is in progress")
      .WithReason(Reason::kRequestNotFound);
}

}  // namespace

template <typename Request, typename Response, typename Handler>
void InferenceService::AddUnary(const char* path, Work work, Handler handler) {
  const bool is_long = work == Work::kLong;
  AddMethod(MakeMethod<Request, Response>(path, [this, path, is_long, handler](Context* context) {
    return new UnaryCall<Request, Response, Handler>({io_, service_, credit_}, *context, path,
                                                     is_long, handler);
  }));
}

void InferenceService::AddGenerate() {
  AddMethod(
      MakeMethod<v1::GenerateRequest, v1::GenerateEvent>(kGeneratePath, [this](Context* context) {
        return GenerateStream::Start(strands_.Next(), service_, credit_, *context).get();
      }));
}

InferenceService::InferenceService(boost::asio::io_context& io, server::Service& service,
                                   ConnectionCredit& credit)
    : io_(io), strands_(io), service_(service), credit_(credit) {
  AddGenerate();
  AddUnary<v1::TokenizeRequest, v1::TokenizeResponse>(
      "/thermocline.v1.Inference/Tokenize", Work::kLong,
      [](server::Service& model, const RequestContext&, const auto& request, auto& response) {
        return AnswerTokenize(model, request, response);
      });
  AddUnary<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      "/thermocline.v1.Inference/Detokenize", Work::kLong,
      [](server::Service& model, const RequestContext&, const auto& request, auto& response) {
        return AnswerDetokenize(model, request, response);
      });
  AddUnary<v1::CountTokensRequest, v1::CountTokensResponse>(
      "/thermocline.v1.Inference/CountTokens", Work::kLong,
      [](server::Service& model, const RequestContext&, const auto& request, auto& response) {
        return AnswerCount(model, request, response);
      });
  AddUnary<v1::GetModelRequest, v1::Model>(
      "/thermocline.v1.Inference/GetModel", Work::kShort,
      [](server::Service& model, const RequestContext&, const auto&, auto& response) -> Status {
        if (model.engine() == nullptr) return model.Readiness();
        FillModel(model, response);
        return OkStatus();
      });
  AddUnary<v1::GetStatsRequest, v1::Stats>(
      "/thermocline.v1.Inference/GetStats", Work::kShort,
      [](server::Service& model, const RequestContext&, const auto&, auto& response) -> Status {
        FillStats(model, response);
        return OkStatus();
      });
  AddUnary<v1::CancelRequest, v1::CancelResponse>(
      "/thermocline.v1.Inference/Cancel", Work::kShort,
      [](server::Service& model, const RequestContext& context, const auto& request, auto&) {
        return AnswerCancel(model, context.caller(), request);
      });
}

}  // namespace thermocline::rpc
