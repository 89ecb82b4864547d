#include "loadtest/client/http_client.h"

#include "loadtest/client/openai_answer.h"

namespace thermocline::loadtest {
namespace {

constexpr std::size_t kFetchBytesMax = 16u << 20;

std::string PathOf(const HttpTarget& target, Route route) {
  return ApiPath(target.options.url, route == Route::kChat ? "chat/completions" : "completions");
}

}  // namespace

struct HttpClient::PendingRequest {
  PendingRequest(const Request& request, double t_scheduled, double t_sent, Done on_done)
      : answer(request, t_scheduled, t_sent),
        done(std::move(on_done)),
        paused(request.read_pause_s > 0) {}
  OpenAiAnswer answer;
  std::shared_ptr<HttpCall> call = nullptr;
  const Done done;
  const bool paused;  // its connection has a small window and is not reused
  std::optional<Outcome> ended_as = std::nullopt;
};

HttpClient::HttpClient(asio::io_context& io, Options options)
    : io_(io), options_(std::move(options)), path_(PathOf(options_.target, options_.body.route)) {}

HttpClient::~HttpClient() = default;

void HttpClient::Send(Request request, double t_scheduled, Done done) {
  const std::uint64_t number = next_++;
  auto owned =
      std::make_unique<PendingRequest>(request, t_scheduled, clock_.Now(), std::move(done));
  PendingRequest& pending = *owned;
  under_way_.emplace(number, std::move(owned));
  std::string text = RequestBody(request, options_.body);
  text.insert(0, RequestHeader(options_.target.options, "POST", path_, text.size()));
  pending.call = std::make_shared<HttpCall>(
      io_, options_.target,
      HttpCall::Setup{.request = std::move(text),
                      .timeout_s = options_.timeout_s,
                      .read_pause_s = request.read_pause_s,
                      .leave_when_sent = request.leave_after_chunks == 0},
      EventsOf(pending, number));
  std::shared_ptr<Wire> wire;
  if (!pending.paused && !idle_.empty()) {
    wire = std::move(idle_.back());
    idle_.pop_back();
  }
  pending.call->Start(std::move(wire));
}

HttpCall::Events HttpClient::EventsOf(PendingRequest& pending, std::uint64_t number) {
  return {.on_header =
              [this, &pending](const HttpParser& parser) {
                pending.answer.OnHeader(clock_.Now(), parser.status(),
                                        parser.Field("Content-Type"));
              },
          .on_body = [this, &pending](std::string_view bytes) { OnBody(pending, bytes); },
          .on_end = [this, number](
                        const Status& status,
                        std::shared_ptr<Wire> wire) { OnEnd(number, status, std::move(wire)); }};
}

void HttpClient::OnBody(PendingRequest& pending, std::string_view bytes) {
  const std::int64_t before = pending.answer.chunks();
  pending.answer.OnBody(clock_.Now(), bytes);
  chunk_counter_.chunks += static_cast<std::uint64_t>(pending.answer.chunks() - before);
  if (pending.answer.should_disconnect()) {
    pending.call->End(base::Cancelled("the client left"));
  } else if (pending.answer.complete()) {
    pending.call->Complete();
  }
}

void HttpClient::OnEnd(std::uint64_t number, const Status& status, std::shared_ptr<Wire> wire) {
  const auto found = under_way_.find(number);
  const std::unique_ptr<PendingRequest> pending = std::move(found->second);
  under_way_.erase(found);
  if (wire != nullptr && !pending->paused && options_.keep_alive) idle_.push_back(std::move(wire));
  Answer answer = pending->answer.Finish(clock_.Now(), status);
  if (pending->ended_as.has_value()) {
    answer.outcome = *pending->ended_as;
    if (answer.outcome == Outcome::kCancelled) answer.error.clear();
  }
  pending->done(std::move(answer));
}

void HttpClient::EndAll(Outcome outcome) {
  std::vector<PendingRequest*> all;
  for (auto& [number, pending] : under_way_) all.push_back(pending.get());
  for (PendingRequest* pending : all) {
    pending->ended_as = outcome;
    pending->call->End(base::DeadlineExceeded("the run has ended"));
  }
}

Result<HttpResponse> Fetch(const HttpTarget& target, std::string_view path, double timeout_s) {
  asio::io_context io;
  HttpResponse response;
  Status result = base::Unavailable("no answer");
  std::shared_ptr<HttpCall> call;
  HttpCall::Events events{
      .on_header =
          [&](const HttpParser& parser) {
            response.status = parser.status();
            response.server = parser.Field("Server");
          },
      .on_body =
          [&](std::string_view bytes) {
            response.body.append(bytes);
            if (response.body.size() > kFetchBytesMax)
              call->End(base::DataLoss(path, ": the body never ends"));
          },
      .on_end = [&](const Status& status, const std::shared_ptr<Wire>&) { result = status; }};
  const HttpCall::Setup setup{.request = RequestHeader(target.options, "GET", path, -1),
                              .timeout_s = timeout_s};
  call = std::make_shared<HttpCall>(io, target, setup, std::move(events));
  call->Start(nullptr);
  io.run();
  RETURN_IF_ERROR(result);
  return response;
}

}  // namespace thermocline::loadtest
