#include "server/daemon/life_cycle.h"

#include <csignal>
#include <cstdlib>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>

#include "engine/base/log.h"
#include "server/core/served_models.h"
#include "server/daemon/systemd.h"

namespace thermocline::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kLoadingInterval{250}, kDrainInterval{20};
constexpr int kIdlePolls = 5;                       // of kDrainInterval
constexpr std::chrono::seconds kLastWritesTime{2};  // for the last error events to be written

}  // namespace

LifeCycle::LifeCycle(asio::io_context& io, Service& service, Reloader& reloader)
    : io_(io),
      service_(service),
      reloader_(reloader),
      strand_(asio::make_strand(io)),
      signals_(strand_, SIGTERM, SIGINT, SIGHUP),
      supervision_(strand_),
      drain_poll_(strand_),
      watchdog_period_(WatchdogPeriod()) {
  if (watchdog_period_.has_value()) watch_.emplace(*watchdog_period_);
}

void LifeCycle::Start() {
  service_.SetControl({.reload = [this] { return reloader_.Reload(); },
                       .drain =
                           [weak = weak_from_this()] {
                             if (const auto self = weak.lock()) self->BeginDrain();
                           }});
  WaitForSignal();
  asio::post(strand_, [self = shared_from_this()] { self->Supervise(); });
}

void LifeCycle::Ready() {
  asio::post(strand_, [self = shared_from_this()] {
    self->ready_ = true;
    if (!self->draining_) NotifyReady(self->StatusText());
    self->supervision_.cancel();  // the watchdog's interval applies from now on
  });
}

void LifeCycle::BeginDrain() {
  asio::post(strand_, [self = shared_from_this()] { self->Drain(); });
}

void LifeCycle::WaitForSignal() {
  signals_.async_wait([self = shared_from_this()](error_code error, int signal) {
    if (error) return;
    self->WaitForSignal();
    self->OnSignal(signal);
  });
}

void LifeCycle::OnSignal(int signal) {
  if (signal == SIGHUP) return Reload();
  const bool at_once = draining_ || !ready_;
  at_once ? Stop() : Drain();
}

void LifeCycle::Stop() {
  const bool loading =
      !ready_ && service_.engine() == nullptr && service_.state() != ServiceState::kFailed;
  if (!loading) return io_.stop();
  base::LogInfo("stopped while loading");
  NotifyStopping("stopped while loading");
  base::FlushLog(std::chrono::milliseconds(500));
  std::_Exit(0);  // loading cannot be interrupted, and without the io_context signals are lost
}

void LifeCycle::Reload() {
  const bool tell = ready_ && !draining_;
  if (tell) NotifyReloading();
  const Status status = reloader_.Reload();
  if (!tell) return;
  NotifyReady(status.ok() ? StatusText() : "the old configuration stays: " + status.message());
}

std::string LifeCycle::StatusText() const { return "serving " + service_.model_name(); }

void LifeCycle::Supervise() {
  std::chrono::microseconds next = kLoadingInterval;
  if (!ready_ && !draining_) {
    const double progress = service_.load_progress();
    NotifyLoading(progress, progress != last_progress_);
    last_progress_ = progress;
  } else {
    if (!watch_.has_value()) return;
    next = *watchdog_period_ / 3;
    const auto held = service_.models()->HoldAll();  // the first model's engine is watched
    const Engine* engine = service_.engine();
    const bool alive = engine == nullptr || watch_->Alive(engine->Stats(), Clock::now());
    if (alive) NotifyWatchdog();
    if (!alive && !stalled_) {
      base::LogError("the engine has work and has made no step for ",
                     watchdog_period_->count() / 1'000'000,
                     " s; systemd gets no more signs of life");
    }
    stalled_ = !alive;
  }
  supervision_.expires_after(next);
  supervision_.async_wait([self = shared_from_this()](error_code) { self->Supervise(); });
}

void LifeCycle::Drain() {
  if (draining_) return;
  draining_ = true;
  const int allowed_s = service_.reloadable()->config.drain_timeout_s;
  base::LogInfo("draining: ", service_.active_requests.load(), " requests have ", allowed_s,
                " s to end");
  NotifyStopping("draining");
  service_.models()->BeginDrain();
  for (const auto& hook : drain_hooks_) hook();
  deadline_ = Clock::now() + std::chrono::seconds(allowed_s);
  PollDrain();
}

void LifeCycle::PollDrain() {
  const bool late = Clock::now() >= deadline_;
  // Waits a little, so that connections that were just accepted get their 503.
  idle_polls_ = service_.active_requests == 0 ? idle_polls_ + 1 : 0;
  if (idle_polls_ >= kIdlePolls || (late && cut_off_)) return Stop();
  if (late && !cut_off_) {
    base::LogWarning("drain_timeout_s is over; ", service_.active_requests.load(),
                     " requests are cut off");
    service_.models()->CancelGenerations();
    cut_off_ = true;
    deadline_ += kLastWritesTime;
  }
  drain_poll_.expires_after(kDrainInterval);
  drain_poll_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->PollDrain();
  });
}

}  // namespace thermocline::server
