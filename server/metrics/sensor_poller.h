// Reads the machine's sensors once a second.
#pragma once

#include <chrono>
#include <condition_variable>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "server/metrics/energy_history.h"
#include "server/metrics/sensors.h"

namespace thermocline::server {

// Thread-safe. Reads on a thread of its own, which ends at once if there are no sensors. Sensors
// are on slow buses (an ina3221 takes milliseconds, some firmware longer), which must not delay
// probes, streams or the watchdog, and energy must be summed at a steady rate, independent of
// scrapes. A scrape copies the last reading.
class SensorPoller {
 public:
  explicit SensorPoller(std::string root,
                        std::chrono::milliseconds interval = std::chrono::seconds(1));
  // Waits for a reading in progress.
  ~SensorPoller() = default;
  SensorPoller(const SensorPoller&) = delete;
  SensorPoller& operator=(const SensorPoller&) = delete;

  // Empty before the first reading.
  SensorReadings Latest() const;
  // EnergyHistory::Between of MachineJoules.
  std::optional<double> Joules(Sensors::Clock::time_point begin,
                               Sensors::Clock::time_point end) const;

 private:
  void Run(const std::stop_token& stop);

  const std::string root_;
  const std::chrono::milliseconds interval_;
  mutable base::Mutex mutex_;
  SensorReadings latest_ GUARDED_BY(mutex_);
  EnergyHistory energy_ GUARDED_BY(mutex_);
  std::condition_variable_any wake_;
  std::jthread thread_;  // declared last, so that it stops first
};

}  // namespace thermocline::server
