// Sensors in generated sysfs trees: a Jetson Orin's, a PC's, and broken ones.
#include "server/metrics/sensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "server/metrics/energy_history.h"
#include "server/metrics/metrics.h"
#include "server/metrics/sensor_poller.h"

namespace thermocline::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class SensorsTest : public testing::Test {
 protected:
  SensorsTest() : root_(testing::TempDir() + "sysfs." + std::to_string(::getpid())) {
    fs::create_directories(root_);
  }
  ~SensorsTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  // In sysfs a class's folder consists of links.
  void Link(const std::string& path, const std::string& to) {
    fs::create_directories((root_ / path).parent_path());
    fs::create_directory_symlink(root_ / to, root_ / path);
  }
  void Forget(const std::string& path) { fs::remove_all(root_ / path); }
  std::string root() const { return root_.string(); }

  // Reads `ms` after the first reading; "power/NAME", "energy/NAME", "zone/NAME", "unit/NAME".
  static std::map<std::string, double> ReadAt(Sensors& sensors, int ms) {
    std::map<std::string, double> out;
    const auto add = [&](const std::string& name, const std::optional<double>& value) {
      if (value.has_value()) out[name] = *value;
    };
    const auto& readings = sensors.Read(Sensors::Clock::time_point() + milliseconds(1000 + ms));
    for (const auto& rail : readings.rails) {
      add("power/" + rail.name, rail.watts);
      add("energy/" + rail.name, rail.joules);
    }
    for (const auto& zone : readings.zones) add("zone/" + zone.name, zone.value);
    for (const auto& unit : readings.units) add("unit/" + unit.name, unit.value);
    return out;
  }
  using Values = std::map<std::string, double>;
  static void ExpectNear(const Values& got, const Values& wanted) {
    for (const auto& [name, value] : wanted) {
      ASSERT_TRUE(got.contains(name)) << name;
      EXPECT_NEAR(got.at(name), value, 1e-9 * std::max(1.0, std::abs(value))) << name;
    }
    for (const auto& [name, value] : got) EXPECT_TRUE(wanted.contains(name)) << name;
  }

  // An Orin Nano under L4T r36: one ina3221, and zones that fail while their unit is off.
  void WriteJetson() {
    const std::string chip = "devices/platform/bus@0/c240000.i2c/i2c-1/1-0040/hwmon/hwmon1/";
    Write(chip + "name", "ina3221");
    const std::pair<const char*, std::pair<int, int>> rails[] = {
        {"VDD_IN", {5080, 936}}, {"VDD_CPU_GPU_CV", {5072, 160}}, {"VDD_SOC", {5072, 280}}};
    for (int i = 1; i <= 3; ++i) {
      const auto& [label, value] = rails[i - 1];
      Write(chip + "in" + std::to_string(i) + "_label", label);
      Write(chip + "in" + std::to_string(i) + "_input", std::to_string(value.first));
      Write(chip + "curr" + std::to_string(i) + "_input", std::to_string(value.second));
      Write(chip + "in" + std::to_string(i + 3) + "_input", "1");  // the shunt
    }
    Write(chip + "in7_label", "sum of shunt voltages");
    Write(chip + "in7_input", "5");
    Write(chip + "curr4_input", "1376");
    Link("class/hwmon/hwmon1", chip);
    // Another chip without rails: a channel is not connected, another is the sum of all.
    Write("class/hwmon/hwmon2/name", "ina3221");
    for (const auto& [channel, label] : {std::pair{"2", "NC"}, std::pair{"4", "sum"}}) {
      Write(StrCat("class/hwmon/hwmon2/in", channel, "_label"), label);
      Write(StrCat("class/hwmon/hwmon2/in", channel, "_input"), "8");
      Write(StrCat("class/hwmon/hwmon2/curr", channel, "_input"), "8");
    }
    WriteZone(0, "cpu-thermal", "45250");
    WriteZone(1, "gpu-thermal", "");  // EAGAIN while the GPU is off
    WriteZone(2, "cv0-thermal", "-256000");
    WriteZone(10, "tj-thermal", "46000");
    Write("class/hwmon/hwmon0/name", "cpu_thermal");  // the zone again
    Write("class/hwmon/hwmon0/temp1_input", "45250");
    Write("devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "1510400");
    Write("devices/system/cpu/cpufreq/policy4/scaling_cur_freq", "729600");
    Write("class/devfreq/17000000.gpu/cur_freq", "624750000");
    Write("class/devfreq/15340000.vic/cur_freq", "435200000");
  }
  void WriteZone(int number, const std::string& type, const std::string& temp) {
    const std::string zone = "class/thermal/thermal_zone" + std::to_string(number);
    Write(zone + "/type", type);
    Write(zone + "/temp", temp);
  }

  void WriteRapl(const std::string& zone, const std::string& name, const std::string& uj) {
    Write("class/powercap/" + zone + "/name", name);
    Write("class/powercap/" + zone + "/energy_uj", uj);
    Write("class/powercap/" + zone + "/max_energy_range_uj", "262143328850");
  }

  const fs::path root_;
};

TEST_F(SensorsTest, AMachineWithoutSensorsHasNone) {
  EXPECT_TRUE(Sensors(root()).empty());
  EXPECT_TRUE(Sensors(root() + "/none").empty());
}

TEST_F(SensorsTest, OfAJetson) {
  WriteJetson();
  Sensors sensors(root());
  const Values once = {
      {"power/VDD_IN", 4.75488},    {"energy/VDD_IN", 0},       {"power/VDD_CPU_GPU_CV", 0.81152},
      {"energy/VDD_CPU_GPU_CV", 0}, {"power/VDD_SOC", 1.42016}, {"energy/VDD_SOC", 0},
      {"zone/cpu-thermal", 45.25},  {"zone/tj-thermal", 46},    {"unit/gpu", 624750000},
      {"unit/cpu0", 1510400000},    {"unit/cpu4", 729600000}};
  ExpectNear(ReadAt(sensors, 0), once);

  // Half a second later the module takes twice as much, and the GPU is on.
  Write("class/hwmon/hwmon1/curr1_input", "1872");
  WriteZone(1, "gpu-thermal", "41500");
  Values later = once;
  later["power/VDD_IN"] = 2 * 4.75488;
  later["energy/VDD_IN"] = 1.5 * 4.75488 / 2;
  later["energy/VDD_CPU_GPU_CV"] = 0.81152 / 2;
  later["energy/VDD_SOC"] = 1.42016 / 2;
  later["zone/gpu-thermal"] = 41.5;
  ExpectNear(ReadAt(sensors, 500), later);
}

TEST_F(SensorsTest, OfAPc) {
  Write("class/hwmon/hwmon2/name", "coretemp");
  Write("class/hwmon/hwmon2/temp1_input", "52000");
  Write("class/hwmon/hwmon2/temp1_label", "Package id 0");
  Write("class/hwmon/hwmon2/temp1_max", "100000");
  Write("class/hwmon/hwmon3/name", "nvme");
  Write("class/hwmon/hwmon3/temp1_input", "38850");
  Write("class/hwmon/hwmon3/temp1_label", "Composite");
  Write("class/hwmon/hwmon10/name", "nvme");
  Write("class/hwmon/hwmon10/temp1_input", "31850");
  Write("class/hwmon/hwmon10/temp1_label", "Composite");
  Write("class/hwmon/hwmon4/name", "amdgpu");
  Write("class/hwmon/hwmon4/power1_average", "21000000");
  Write("class/hwmon/hwmon4/power1_label", "PPT");
  Write("class/hwmon/hwmon5/name", "corsairpsu");
  Write("class/hwmon/hwmon5/power1_input", "180500000");
  Write("class/hwmon/hwmon5/power1_average", "1");
  WriteRapl("intel-rapl:0", "package-0", "262143000000");
  WriteRapl("intel-rapl:0:0", "core", "1000");
  WriteRapl("intel-rapl-mmio:0", "package-0", "1000");
  Sensors sensors(root());
  Values wanted = {{"zone/coretemp/Package id 0", 52}, {"zone/nvme/Composite", 38.85},
                   {"zone/nvme/Composite#2", 31.85},   {"power/amdgpu/PPT", 21},
                   {"energy/amdgpu/PPT", 0},           {"power/corsairpsu/power1", 180.5},
                   {"energy/corsairpsu/power1", 0},    {"energy/rapl/package-0", 0},
                   {"energy/rapl/package-0/core", 0}};
  ExpectNear(ReadAt(sensors, 0), wanted);

  // A counter wraps: 328850 uJ to its end, then 40 J.
  Write("class/powercap/intel-rapl:0/energy_uj", "40000000");
  Write("class/powercap/intel-rapl:0:0/energy_uj", "5001000");
  wanted["energy/rapl/package-0"] = 40.32885;
  wanted["power/rapl/package-0"] = 40.32885 / 2;
  wanted["energy/rapl/package-0/core"] = 5;
  wanted["power/rapl/package-0/core"] = 2.5;
  wanted["energy/amdgpu/PPT"] = 42;
  wanted["energy/corsairpsu/power1"] = 361;
  ExpectNear(ReadAt(sensors, 2000), wanted);
}

// Suspending the machine or reloading the driver resets the counter.
TEST_F(SensorsTest, ACounterSetToZeroIsNoWrap) {
  WriteRapl("intel-rapl:0", "package-0", "5000000000");
  Sensors sensors(root());
  ReadAt(sensors, 0);
  Write("class/powercap/intel-rapl:0/energy_uj", "7000000");
  ExpectNear(ReadAt(sensors, 1000), {{"energy/rapl/package-0", 0}});
  Write("class/powercap/intel-rapl:0/energy_uj", "17000000");
  ExpectNear(ReadAt(sensors, 2000), {{"energy/rapl/package-0", 10}, {"power/rapl/package-0", 10}});
}

TEST_F(SensorsTest, WhatVanishesIsNotCountedUntilItIsBack) {
  Write("class/hwmon/hwmon0/name", "psu");
  Write("class/hwmon/hwmon0/power1_input", "10000000");
  WriteRapl("intel-rapl:0", "package-0", "1000000");
  Sensors sensors(root());
  ReadAt(sensors, 0);
  Forget("class/hwmon/hwmon0/power1_input");
  Forget("class/powercap/intel-rapl:0/energy_uj");
  const Values gone = {{"energy/psu/power1", 0}, {"energy/rapl/package-0", 0}};
  ExpectNear(ReadAt(sensors, 1000), gone);
  Write("class/hwmon/hwmon0/power1_input", "10000000");
  Write("class/powercap/intel-rapl:0/energy_uj", "900000000");
  Values back = gone;
  back["power/psu/power1"] = 10;
  ExpectNear(ReadAt(sensors, 60'000), back);
  Write("class/powercap/intel-rapl:0/energy_uj", "903000000");
  ExpectNear(ReadAt(sensors, 61'000), {{"power/psu/power1", 10},
                                       {"energy/psu/power1", 10},
                                       {"power/rapl/package-0", 3},
                                       {"energy/rapl/package-0", 3}});
}

TEST_F(SensorsTest, GarbageIsNoReading) {
  const char* const texts[] = {"", "n/a", "12x", "0x10", "1 2", "99999999999999999999", "4.5"};
  for (int i = 0; i < static_cast<int>(std::size(texts)); ++i) {
    WriteZone(i, "zone" + std::to_string(i), texts[i]);
    WriteRapl("intel-rapl:" + std::to_string(i), "package", texts[i]);
  }
  WriteRapl("intel-rapl:8", "without-range", "1");
  Write("class/powercap/intel-rapl:8/max_energy_range_uj", "none");
  fs::create_directories(root_ / "class/thermal/thermal_zone90/temp");
  Write("class/thermal/thermal_zone91/type", std::string(100'000, 'x'));
  Write("class/thermal/thermal_zone91/temp", "1000");
  Sensors sensors(root());
  EXPECT_EQ(ReadAt(sensors, 0).size(), 1u);  // the one whose name is only long
  EXPECT_EQ(ReadAt(sensors, 1000).size(), 1u);
}

TEST_F(SensorsTest, NamesAreTextAndDiffer) {
  WriteZone(0, "hot\xff\tzone\"\\", "1000");
  WriteZone(1, "hot\xff\tzone\"\\", "2000");
  Sensors sensors(root());
  ExpectNear(ReadAt(sensors, 0),
             {{"zone/hot\uFFFD_zone\"\\", 1}, {"zone/hot\uFFFD_zone\"\\#2", 2}});
}

TEST_F(SensorsTest, ThereAreNotTooMany) {
  for (int i = 0; i < static_cast<int>(kSensorsMax) + 10; ++i) {
    WriteZone(i, "zone" + std::to_string(i), "1000");
    Write("devices/system/cpu/cpufreq/policy" + std::to_string(i) + "/scaling_cur_freq", "1000");
  }
  Sensors sensors(root());
  const Values values = ReadAt(sensors, 0);
  EXPECT_EQ(values.size(), 2 * kSensorsMax);
  EXPECT_TRUE(values.contains("unit/cpu63") && !values.contains("unit/cpu64"));
}

class ExposedTest : public SensorsTest {
 protected:
  // A scrape, once the poller has read `line`.
  std::string Await(Metrics& metrics, const std::string& line) {
    std::string text;
    for (int i = 0; i < 2000 && text.find(line) == std::string::npos; ++i) {
      std::this_thread::sleep_for(milliseconds(5));
      text = metrics.Expose(ServiceState::kLoading, nullptr, "m");
    }
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
    return text;
  }
};

TEST_F(ExposedTest, SeriesComeAndGoWithTheSensors) {
  WriteJetson();
  Metrics metrics("t_", {}, std::make_unique<SensorPoller>(root(), milliseconds(1)));
  const std::string text = Await(metrics, "t_power_watts{rail=\"VDD_IN\"} 4.75");
  EXPECT_NE(text.find("\nt_temperature_celsius{zone=\"cpu-thermal\"} 45.25\n"), std::string::npos);
  EXPECT_NE(text.find("\nt_clock_hertz{unit=\"gpu\"} 624750000\n"), std::string::npos);
  EXPECT_NE(text.find("\nt_energy_joules_total{rail=\"VDD_SOC\"} "), std::string::npos);
  EXPECT_EQ(text.find("gpu-thermal"), std::string::npos);
  WriteZone(1, "gpu-thermal", "41500");
  Await(metrics, "\nt_temperature_celsius{zone=\"gpu-thermal\"} 41.5\n");
  Forget("class/hwmon/hwmon1");
  WriteZone(1, "gpu-thermal", "");
  std::string less;
  for (const char* celsius : {"50", "51"}) {  // the second value is read after all of this
    WriteZone(0, "cpu-thermal", celsius + std::string("000"));
    less = Await(metrics, StrCat("\nt_temperature_celsius{zone=\"cpu-thermal\"} ", celsius, "\n"));
  }
  EXPECT_EQ(less.find("t_power_watts"), std::string::npos) << less;
  EXPECT_EQ(less.find("gpu-thermal"), std::string::npos);
  EXPECT_NE(less.find("\nt_energy_joules_total{rail=\"VDD_IN\"} "), std::string::npos);
}

TEST_F(ExposedTest, APollerWithoutSensorsShowsNothingAndEnds) {
  Metrics metrics("t_", {}, std::make_unique<SensorPoller>(root()));
  const std::string text = metrics.Expose(ServiceState::kLoading, nullptr, "m");
  EXPECT_EQ(text.find("t_temperature_celsius{"), std::string::npos);
}

TEST(MachineJoules, TakesTheRailThatHasAllOrTheirSum) {
  const auto joules = [](std::vector<SensorReadings::Rail> rails) {
    return MachineJoules({.rails = std::move(rails), .zones = {}, .units = {}});
  };
  const auto rail = [](const char* name, double j) {
    return SensorReadings::Rail{.name = name, .watts = {}, .joules = j};
  };
  EXPECT_EQ(joules({rail("VDD_IN", 9), rail("VDD_SOC", 2), rail("VDD_CPU_GPU_CV", 5)}), 9);
  EXPECT_EQ(joules({rail("VDD_GPU_SOC", 6), rail("VDD_CPU_CV", 3), rail("VIN_SYS_5V0", 4)}), 13);
  EXPECT_EQ(joules({rail("rapl/package-0", 6), rail("rapl/package-0/core", 5),
                    rail("rapl/package-1", 7), rail("rapl/psys", 20)}),
            13);
  EXPECT_EQ(joules({rail("amdgpu/PPT", 6)}), std::nullopt);
  EXPECT_EQ(joules({}), std::nullopt);
}

TEST(EnergyHistory, IsLinearBetweenReadingsAndBeyondTheLast) {
  EnergyHistory history;
  const auto at = [](double s) {
    return EnergyHistory::Clock::time_point(
        std::chrono::duration_cast<EnergyHistory::Clock::duration>(
            std::chrono::duration<double>(100 + s)));
  };
  EXPECT_EQ(history.Between(at(0), at(1)), std::nullopt);
  history.Add(at(0), 0);
  EXPECT_EQ(history.Between(at(0), at(1)), std::nullopt);  // no power yet
  history.Add(at(1), 10);
  history.Add(at(2), 30);
  EXPECT_NEAR(*history.Between(at(0), at(2)), 30, 1e-6);
  EXPECT_NEAR(*history.Between(at(0.5), at(1.5)), 15, 1e-6);
  EXPECT_NEAR(*history.Between(at(2), at(2.5)), 10, 1e-6);  // as in the last second
  EXPECT_EQ(history.Between(at(-1), at(1)), std::nullopt);
  for (int s = 3; s < 2000; ++s) history.Add(at(s), 30.0 + 20 * (s - 2));
  EXPECT_EQ(history.Between(at(1000), at(1001)), std::nullopt);  // forgotten
  EXPECT_NEAR(*history.Between(at(1990), at(1999)), 180, 1e-6);
}

}  // namespace
}  // namespace thermocline::server
