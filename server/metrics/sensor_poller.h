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

// Thread-safe. On a thread of its own, which ends at once where there are no sensors: a sensor is
// on a slow bus (an ina3221 takes milliseconds, some firmware longer), which neither probes, nor
// streams, nor the watchdog may wait for; and energy is added up at an even pace, not when somebody
// happens to scrape. A scrape copies what the last reading gave.
class SensorPoller {
 public:
  explicit SensorPoller(std::string root,
                        std::chrono::milliseconds interval = std::chrono::seconds(1));
  // Waits for a reading that is under way.
  ~SensorPoller() = default;
  SensorPoller(const SensorPoller&) = delete;
  SensorPoller& operator=(const SensorPoller&) = delete;

  // Empty before the first reading.
  SensorReadings Latest() const;
  // As EnergyHistory::Between, of MachineJoules.
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
  std::jthread thread_;  // stops first
};

}  // namespace thermocline::server
