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

void SensorPoller::Run(const std::stop_token& stop) {
  Sensors sensors(root_);
  if (sensors.empty()) return;
  while (!stop.stop_requested()) {
    const SensorReadings& readings = sensors.Read(Sensors::Clock::now());
    const base::MutexLock lock(mutex_);
    latest_ = readings;
    wake_.wait_for(mutex_, stop, interval_, [] { return false; });
  }
}

}  // namespace thermocline::server
