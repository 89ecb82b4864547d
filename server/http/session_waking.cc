// The part of Session that waits for the model of a request.
#include <algorithm>
#include <chrono>

#include <boost/asio/post.hpp>

#include "engine/base/strings.h"
#include "server/core/held_model.h"
#include "server/core/submission.h"
#include "server/http/refusal.h"
#include "server/http/session.h"

namespace thermocline::http {
namespace {

constexpr std::chrono::seconds kWakingInterval{1};  // after the first comment

}  // namespace

void Session::RouteToModel(const std::string& named, const server::BodyCost& cost) {
  // A download may take hours, and operators act while a model cannot be had.
  if (router_.HoldsNoModel(reader_.request())) return RouteByWorker(cost);
  const std::string name = base::ReplaceInvalidUtf8(named);
  const bool wakes = router_.UsesModel(reader_.request());
  const server::ModelRights& rights = request_context_->head().models;
  const Status listed = server::CheckListed(service_, name, rights);
  // Routes that use no model may read another name in the body; they see the first model.
  const bool other_name =
      !wakes && (named.empty() || named == server::ModelOf(reader_.request().body(), true));
  if (!listed.ok() && !other_name) return OnRouted(Refusal(listed));
  using Purpose = server::ServedModels::Purpose;
  model_ =
      server::HoldOf(service_, listed.ok() ? name : "", wakes ? Purpose::kRequest : Purpose::kLook,
                     rights, request_context_->caller().tenant);
  if (model_ == nullptr && !router_.IsWithoutModel(reader_.request()))
    return OnRouted(Refusal(
        listed.ok() ? base::NotFound("the model '", name, "' is not served any more") : listed));
  if (model_ != nullptr) request_context_->SetModel(*model_);
  if (!wakes || !several()) return RouteByWorker(cost);
  if (model_->Readiness().ok() &&
      !service_.models()->HeldBack(*model_, request_context_->caller().tenant)) {
    service_.models()->KeepAlive(*model_, std::nullopt);
    return RouteByWorker(cost);
  }
  WaitForModel(cost);
}

void Session::WaitForModel(const server::BodyCost& cost) {
  routing_ = true;
  WatchForDisconnect();
  const std::chrono::seconds silence(request_context_->reloadable().config.sse_keepalive_s);
  if (silence.count() > 0 && router_.AnswersWithEvents(reader_.request()) &&
      server::AsksForStream(reader_.request().body()))
    TellWakingAfter(silence);
  const auto on_woken = [self = shared_from_this(), cost,
                         executor = connection_->get_executor()](const Status& woken) {
    asio::post(executor, [self, cost, woken] {
      self->keep_alive_timer_.cancel();
      self->Guarded([&] {
        if (self->disconnected_ || woken.ok()) return self->RouteByWorker(cost);
        self->OnRouted(RefusalResponse(self->model(), self->request_context_->head(), woken));
      });
    });
  };
  const auto gone = [self = shared_from_this()] { return self->disconnected_.load(); };
  const int allowed_s = request_context_->reloadable().config.request_timeout_s;
  server::WakeHeld(
      model_, {.woken = on_woken,
               .gone = gone,
               .client = request_context_->caller().tenant,
               .deadline = server::DeadlineOf(request_context_->head().arrived, allowed_s, 0)});
}

void Session::TellWakingAfter(std::chrono::seconds silence) {
  keep_alive_timer_.expires_after(silence);
  keep_alive_timer_.async_wait([weak = weak_from_this(), held = model_](ErrorCode error) {
    const auto self = error ? nullptr : weak.lock();
    if (self == nullptr || !self->routing_ || self->model_ != held) return;
    self->Guarded([&] {
      if (!self->disconnected_) self->TellWaking();
    });
  });
}

// Begins the stream of events: an error of the model will be an event.
void Session::TellWaking() {
  if (!stream_.has_value())
    stream_.emplace(*connection_, request_context_->head(), "text/event-stream",
                    request_context_->write_limits());
  if (!stream_->writing()) {
    const bool loads = model().state() == server::ServiceState::kLoading;
    const std::string comment =
        loads ? StrCat(": loading ", static_cast<int>(model().load_progress() * 100), "%\n\n")
              : ": waiting for the model\n\n";
    stream_->Write(comment, false,
                   [self = shared_from_this()](ErrorCode error) { self->OnWakingWritten(error); });
    sent_ = true;
  }
  TellWakingAfter(kWakingInterval);
}

void Session::OnWakingWritten(ErrorCode error) {
  if (answer_ != nullptr) return OnStreamWritten(error);
  disconnected_ = disconnected_ || error;
  if (routing_ || !(error || stream_->ended())) return;
  if (!error) return StreamDone();
  model_.reset();
  Close();
}

// The answer to a request whose stream has begun without an answer: an event, and the end.
void Session::EndStreamWith(const HttpResponse& response) {
  Log(response.result_int());
  request_context_->EndConnection();
  std::string_view body = response.body();
  while (body.ends_with('\n')) body.remove_suffix(1);
  const std::string events = StrCat(request_context_->head().errors->event, "data: ", body, "\n\n");
  request_context_->CountBytes(events.size());
  stream_->Write(events, true,
                 [self = shared_from_this()](ErrorCode error) { self->OnWakingWritten(error); });
}

}  // namespace thermocline::http
