#include "loadtest/run/driver.h"

#include <csignal>

#include <boost/asio/post.hpp>

namespace thermocline::loadtest {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
constexpr std::chrono::milliseconds kTick{500};
// A user whose request failed waits before the next one, so that a rejecting server is not flooded.
constexpr double kFailurePause = 0.1;

bool Failed(Outcome outcome) {
  return outcome == Outcome::kError || outcome == Outcome::kRateLimited ||
         outcome == Outcome::kUnavailable;
}

}  // namespace

Driver::Driver(asio::io_context& io, Client& client, Workload& workload, const LoadShape& shape,
               Listener listener)
    : io_(io),
      client_(client),
      workload_(workload),
      shape_(shape),
      listener_(std::move(listener)),
      arrival_(io),
      tick_(io),
      end_(io),
      signals_(io) {}

void Driver::Run() {
  io_.restart();
  guard_.emplace(io_.get_executor());
  signals_.add(SIGINT);
  signals_.add(SIGTERM);
  signals_.async_wait([this](error_code error, int) {
    if (error || done_) return;
    interrupted_ = true;
    EndEarly(Outcome::kCancelled);
  });
  clock_ = RunClock();
  client_.SetClock(clock_);
  asio::post(io_, [this] { Begin(); });
  io_.run();
}

void Driver::Begin() {
  end_.expires_at(clock_.At(shape_.duration_s + shape_.drain_s));
  end_.async_wait([this](error_code error) {
    if (!error && !done_) EndEarly(Outcome::kTimeout);
  });
  Tick();
  if (closed()) {
    arrivals_done_ = true;
    for (int i = 0; i < shape_.users; ++i) BeginUser();
  } else {
    NextArrival();
  }
  EndIfDone();
}

bool Driver::MayCount() const {
  return !stopping_ && started_ + waiting_.size() < shape_.requests_max.value_or(UINT64_MAX);
}

bool Driver::MayBegin() const { return MayCount() && clock_.Now() < shape_.duration_s; }

void Driver::BeginUser() {
  if (!MayBegin()) return;
  Request request = NextRequest();
  Send(std::move(request), clock_.Now());
}

void Driver::NextArrival() {
  // Due requests count even if this program is late and the end has passed.
  const std::optional<double> time = MayCount() ? shape_.arrivals->Next() : std::nullopt;
  if (!time.has_value() || *time >= shape_.duration_s) {
    arrivals_done_ = true;
    return;
  }
  arrival_.expires_at(clock_.At(*time));
  arrival_.async_wait([this, at = *time](error_code error) {
    if (error || stopping_) return;
    OnArrival(at);
    NextArrival();
    EndIfDone();
  });
}

void Driver::OnArrival(double t_scheduled) {
  if (in_flight_ >= shape_.in_flight_max) {
    waiting_.push_back(t_scheduled);
    return;
  }
  Send(NextRequest(), t_scheduled);
}

void Driver::Send(Request request, double t_scheduled) {
  ++started_;
  ++in_flight_;
  client_.Send(std::move(request), t_scheduled, [this](const Answer& answer) { OnAnswer(answer); });
}

void Driver::OnAnswer(const Answer& answer) {
  --in_flight_;
  listener_.on_answer(answer);
  AfterAnswer(answer);
  if (!stopping_ && !waiting_.empty() && in_flight_ < shape_.in_flight_max) {
    const double t_scheduled = waiting_.front();
    waiting_.pop_front();
    Send(NextRequest(), t_scheduled);
  }
  EndIfDone();
}

void Driver::AfterAnswer(const Answer& answer) {
  if (stopping_) return;
  auto follow_up = workload_.After(answer, shape_.first_id + next_id_);
  if (follow_up.has_value()) {
    ++next_id_;
    const double at = clock_.Now() + follow_up->think_s;
    if (!MayBegin() || at >= shape_.duration_s) return;
    if (follow_up->think_s <= 0) return Send(std::move(follow_up->request), at);
    Pause(follow_up->think_s, [this, at, request = std::move(follow_up->request)] {
      if (MayBegin()) Send(request, at);
    });
  } else if (closed()) {
    if (!Failed(answer.outcome)) return BeginUser();
    Pause(kFailurePause, [this] { BeginUser(); });
  }
}

void Driver::Pause(double seconds, std::function<void()> then) {
  const auto timer = std::make_shared<asio::steady_timer>(io_, ToDuration(seconds));
  pauses_.insert(timer);
  timer->async_wait([this, timer, then = std::move(then)](error_code) {
    pauses_.erase(timer);
    then();
    EndIfDone();
  });
}

void Driver::Tick() {
  listener_.on_tick({.now_s = clock_.Now(),
                     .started = started_,
                     .in_flight = in_flight_,
                     .waiting = waiting_.size()});
  tick_.expires_after(kTick);
  // A wait that is over when the run ends is not cancelled: its handler is in the queue.
  tick_.async_wait([this](error_code error) {
    if (!error && !done_) Tick();
  });
}

void Driver::EndEarly(Outcome outcome) {
  stopping_ = true;
  arrivals_done_ = true;
  arrival_.cancel();
  for (const auto& timer : pauses_) timer->cancel();
  // Requests that were scheduled and never sent count, too.
  for (const double t_scheduled : std::exchange(waiting_, {})) {
    Answer answer;
    answer.id = shape_.first_id + started_++;
    answer.kind = "unsent";
    answer.t_scheduled = t_scheduled;
    answer.t_sent = answer.t_last = clock_.Now();
    answer.outcome = outcome;
    if (outcome != Outcome::kCancelled) answer.error = "the run ended before it was sent";
    listener_.on_answer(answer);
  }
  client_.EndAll(outcome);
  EndIfDone();
}

void Driver::EndIfDone() {
  if (done_ || !arrivals_done_ || in_flight_ > 0 || !waiting_.empty() || !pauses_.empty()) return;
  done_ = true;
  tick_.cancel();
  end_.cancel();
  signals_.cancel();
  guard_.reset();
}

}  // namespace thermocline::loadtest
