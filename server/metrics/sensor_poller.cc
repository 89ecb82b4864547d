#include "server/metrics/sensor_poller.h"

#include <pthread.h>

namespace thermocline::server {

SensorPoller::SensorPoller(std::string root, std::chrono::milliseconds interval)
    : root_(std::move(root)),
      interval_(interval),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {
  pthread_setname_np(thread_.native_handle(), "sensors");
}

SensorReadings SensorPoller::Latest() const {
  const base::MutexLock lock(mutex_);
  return latest_;
}

std::optional<double> SensorPoller::Joules(Sensors::Clock::time_point begin,
                                           Sensors::Clock::time_point end) const {
  const base::MutexLock lock(mutex_);
  return energy_.Between(begin, end);
}

void SensorPoller::Run(const std::stop_token& stop) {
  Sensors sensors(root_);
  if (sensors.empty()) return;
  while (!stop.stop_requested()) {
    const auto now = Sensors::Clock::now();
    const SensorReadings& readings = sensors.Read(now);
    const base::MutexLock lock(mutex_);
    latest_ = readings;
    if (const auto joules = MachineJoules(readings)) energy_.Add(now, *joules);
    wake_.wait_for(mutex_, stop, interval_, [] { return false; });
  }
}

}  // namespace thermocline::server
