#include "loadtest/client/grpc_client.h"

#include <grpcpp/grpcpp.h>

#include <unordered_map>

#include "engine/base/file.h"
#include "loadtest/client/grpc_call.h"

namespace thermocline::loadtest {
namespace {

Result<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const GrpcOptions& options) {
  if (!options.url.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions tls;
  if (!options.ca_file.empty()) {
    ASSIGN_OR_RETURN(tls.pem_root_certs, base::ReadFileToString(options.ca_file, 16u << 20));
  }
  return grpc::SslCredentials(tls);
}

// Makes a separate connection. `slow`: a small window, so that unread data stays with the server.
std::shared_ptr<grpc::Channel> MakeChannel(
    const GrpcOptions& options, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    bool slow) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  if (slow) {
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5);  // the minimum
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  return grpc::CreateCustomChannel(options.url.authority(), credentials, arguments);
}

// Puts a fault into a message; kNotJson is replaced by a fault that gRPC can have.
void SpoilMessage(Fault fault, v1::GenerateRequest& message) {
  switch (fault) {
    case Fault::kNone:
      return;
    case Fault::kNotJson:
    case Fault::kNoInput:
      message.clear_input();
      return;
    case Fault::kWrongType:
      message.mutable_token_ids()->add_ids(-1);
      return;
    case Fault::kBadRole:
      message.mutable_chat()->mutable_messages(0)->set_role("nobody");
      return;
    case Fault::kHotSampling:
      message.mutable_sampling()->set_temperature(1000);
      return;
    case Fault::kHugeNumber:
      message.set_n(1'000'000'000);
      return;
    case Fault::kDeepNesting:
      for (int i = 0; i < 1000; ++i) message.mutable_stop()->add_stop("stop");
      return;
    case Fault::kNegativeTokens:
    case Fault::kBadUtf8:
      message.mutable_stop()->set_max_tokens(-2);
      return;
  }
}

v1::GenerateRequest MessageOf(const Request& request, const GrpcOptions& options) {
  v1::GenerateRequest message;
  for (const Message& turn : request.messages) {
    v1::ChatMessage& out = *message.mutable_chat()->add_messages();
    out.set_role(turn.role);
    out.set_content(base::ReplaceInvalidUtf8(turn.content));
  }
  if (request.max_tokens > 0) message.mutable_stop()->set_max_tokens(request.max_tokens);
  if (request.ignore_eos) message.mutable_stop()->set_ignore_eos(true);
  if (options.temperature.has_value())
    message.mutable_sampling()->set_temperature(*options.temperature);
  SpoilMessage(request.fault, message);
  return message;
}

// Each running request has its own connection, as each user has over HTTP.
class GrpcClient : public Client {
 public:
  GrpcClient(boost::asio::io_context& io, GrpcOptions options,
             std::shared_ptr<grpc::ChannelCredentials> credentials)
      : io_(io), options_(std::move(options)), credentials_(std::move(credentials)) {}

  void Send(Request request, double t_scheduled, Done done) override {
    const std::uint64_t number = next_++;
    const bool slow = request.read_pause_s > 0;
    UnderWay& entry = under_way_[number];
    entry.stub = TakeStub(slow);
    entry.call =
        std::make_shared<GrpcCall>(io_,
                                   GrpcCall::Setup{.message = MessageOf(request, options_),
                                                   .api_key = options_.api_key,
                                                   .timeout_s = options_.timeout_s,
                                                   .clock = clock_},
                                   request, t_scheduled, chunk_counter_,
                                   [this, number, slow, done = std::move(done)](Answer answer) {
                                     auto node = under_way_.extract(number);
                                     if (!slow) idle_.push_back(std::move(node.mapped().stub));
                                     done(std::move(answer));
                                   });
    entry.call->Start(*entry.stub);
  }

  void EndAll(Outcome outcome) override {
    for (auto& [number, entry] : under_way_) entry.call->End(outcome);
  }
  void SetClock(RunClock clock) override { clock_ = clock; }
  const ChunkCounter& chunk_counter() const override { return chunk_counter_; }

 private:
  using Stub = std::unique_ptr<v1::Inference::Stub>;
  struct UnderWay {
    Stub stub;
    std::shared_ptr<GrpcCall> call;  // shared with gRPC's threads
  };

  Stub TakeStub(bool slow) {
    if (slow || idle_.empty())
      return v1::Inference::NewStub(MakeChannel(options_, credentials_, slow));
    Stub stub = std::move(idle_.back());
    idle_.pop_back();
    return stub;
  }

  boost::asio::io_context& io_;
  const GrpcOptions options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  RunClock clock_;
  ChunkCounter chunk_counter_;
  std::vector<Stub> idle_;
  std::unordered_map<std::uint64_t, UnderWay> under_way_;
  std::uint64_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Client>> MakeGrpcClient(boost::asio::io_context& io,
                                               const GrpcOptions& options) {
  ASSIGN_OR_RETURN(auto credentials, CredentialsOf(options));
  return std::unique_ptr<Client>(std::make_unique<GrpcClient>(io, options, std::move(credentials)));
}

Result<std::string> GrpcModelName(const GrpcOptions& options) {
  constexpr std::chrono::seconds kPatience{10};
  ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(options));
  const auto stub = v1::Inference::NewStub(MakeChannel(options, credentials, false));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  if (!options.api_key.empty()) context.AddMetadata("authorization", "Bearer " + options.api_key);
  v1::Model model;
  const grpc::Status status = stub->GetModel(&context, v1::GetModelRequest(), &model);
  if (status.error_code() == grpc::UNAVAILABLE && status.error_details().empty())
    return base::Unavailable("cannot connect to ", options.url.authority(), ": ",
                             base::Shorten(status.error_message(), kErrorBytesMax));
  return model.name();
}

}  // namespace thermocline::loadtest
