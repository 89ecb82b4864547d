#include "server/metrics/sensor_scan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace thermocline::server {
namespace {

namespace fs = std::filesystem;

// The first line without trailing white space; "" if the file cannot be read.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line(256, '\0');
  file.read(line.data(), line.size());
  line.resize(file.gcount());
  line.resize(std::min(line.size(), line.find('\n')));
  line.resize(line.find_last_not_of(" \t\r") + 1);
  return line;
}

// Returns the full paths of entries of `folder` that begin with `prefix`, with hwmon2 before
// hwmon10.
std::vector<std::string> List(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) paths.push_back(it->path().string());
  }
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return paths;
}

// A chip's channels that have a file with `suffix`: "FOLDER/temp1" for temp1_input.
std::vector<std::string> Channels(const std::string& folder, std::string_view kind,
                                  std::string_view suffix) {
  std::vector<std::string> channels;
  for (std::string& path : List(folder, kind)) {
    if (!path.ends_with(suffix)) continue;
    path.resize(path.size() - suffix.size());
    channels.push_back(std::move(path));
  }
  return channels;
}

std::string NameOf(const std::string& path) { return fs::path(path).filename().string(); }

// Returns the channel's label or, without one, its name: "temp1".
std::string LabelOf(const std::string& channel) {
  const std::string label = ReadLine(channel + "_label");
  return label.empty() ? NameOf(channel) : label;
}

std::string Clean(const std::string& name) {
  constexpr std::size_t kNameBytesMax = 80;
  std::string clean = base::ReplaceInvalidUtf8(name);
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return base::ByteOf(c) < ' ' || c == '\x7f'; }, '_');
  return base::Shorten(clean, kNameBytesMax);
}

// A name that is taken gets a number, for example for two disks of one kind.
void Add(Sensor sensor, std::vector<Sensor>& to) {
  if (to.size() >= kSensorsMax) return;
  const std::string name = Clean(sensor.name);
  sensor.name = name;
  const auto taken = [&](const Sensor& other) { return other.name == sensor.name; };
  for (int i = 2; std::any_of(to.begin(), to.end(), taken); ++i) sensor.name = StrCat(name, "#", i);
  to.push_back(std::move(sensor));
}

void FindZones(const std::string& root, SensorList& out) {
  for (const std::string& zone : List(root + "/class/thermal", "thermal_zone")) {
    const std::string type = ReadLine(zone + "/type");
    Add({.name = type.empty() ? NameOf(zone) : type, .files = {zone + "/temp"}, .exponent = -3},
        out.zones);
  }
}

// Thermal zones also appear as chips, whose names have '_' for '-'.
bool IsZone(const std::string& chip, const std::vector<Sensor>& zones) {
  return std::any_of(zones.begin(), zones.end(), [&](const Sensor& zone) {
    return std::equal(zone.name.begin(), zone.name.end(), chip.begin(), chip.end(),
                      [](char z, char c) { return z == c || (z == '-' && c == '_'); });
  });
}

void FindChannels(const std::string& folder, const std::string& chip, SensorList& out) {
  const auto add = [&](const std::string& channel, const char* suffix, int exponent,
                       std::vector<Sensor>& to) {
    Add({.name = chip + "/" + LabelOf(channel), .files = {channel + suffix}, .exponent = exponent},
        to);
  };
  for (const std::string& power : Channels(folder, "power", "_input"))
    add(power, "_input", -6, out.rails);
  for (const std::string& power : Channels(folder, "power", "_average")) {
    if (!base::PathExists(power + "_input")) add(power, "_average", -6, out.rails);
  }
  for (const std::string& temp : Channels(folder, "temp", "_input"))
    add(temp, "_input", -3, out.zones);
}

// Channels 1 to 3 are rails; later ones are sums and shunts. A channel "NC" is not connected.
void FindRailsOfIna3221(const std::string& folder, SensorList& out) {
  for (int i = 1; i <= 3; ++i) {
    const std::string volts = StrCat(folder, "/in", i), amperes = StrCat(folder, "/curr", i);
    const std::string label = ReadLine(volts + "_label");
    if (label.empty() || label == "NC") continue;
    Add({.name = label, .files = {volts + "_input", amperes + "_input"}, .exponent = -6},
        out.rails);
  }
}

void FindChips(const std::string& root, SensorList& out) {
  const std::vector<Sensor> zones = out.zones;
  for (const std::string& folder : List(root + "/class/hwmon", "hwmon")) {
    std::string chip = ReadLine(folder + "/name");
    if (chip.empty()) chip = NameOf(folder);
    if (chip == "ina3221") {
      FindRailsOfIna3221(folder, out);
    } else if (!IsZone(chip, zones)) {
      FindChannels(folder, chip, out);
    }
  }
}

// Finds "rapl/package-0", and "rapl/package-0/core" for parts with their own counters.
// intel-rapl-mmio is skipped, since it shows the same packages' counters.
void FindEnergyCounters(const std::string& root, SensorList& out) {
  for (const std::string& zone : List(root + "/class/powercap", "intel-rapl:")) {
    const std::string parent = ReadLine(zone.substr(0, zone.rfind(':')) + "/name");
    const auto range =
        base::ParseNumber<std::int64_t>(ReadLine(zone + "/max_energy_range_uj")).value_or(0);
    if (range <= 0) continue;
    Add({.name = StrCat("rapl/", parent, parent.empty() ? "" : "/", ReadLine(zone + "/name")),
         .files = {zone + "/energy_uj"},
         .exponent = -6,
         .range_joules = static_cast<double>(range) / 1e6},
        out.rails);
  }
}

void FindClocks(const std::string& root, SensorList& out) {
  for (const std::string& folder : List(root + "/class/devfreq", "")) {
    const std::string name = NameOf(folder);
    const auto says = [&](std::string_view part) { return name.find(part) != std::string::npos; };
    // Names on a Jetson, by its kernel's age: 17000000.gpu, 17000000.ga10b, 17000000.gv11b.
    const bool gpu = says("gpu") || says("ga10b") || says("gv11b") || says("mali");
    if (gpu) Add({.name = "gpu", .files = {folder + "/cur_freq"}}, out.units);
  }
  for (const std::string& policy : List(root + "/devices/system/cpu/cpufreq", "policy")) {
    const std::string cpu = NameOf(policy).substr(std::string_view("policy").size());
    Add({.name = "cpu" + cpu, .files = {policy + "/scaling_cur_freq"}, .exponent = 3}, out.units);
  }
}

}  // namespace

SensorList FindSensors(const std::string& root) {
  SensorList found;
  FindZones(root, found);
  FindChips(root, found);
  FindEnergyCounters(root, found);
  FindClocks(root, found);
  return found;
}

std::optional<double> ReadSensor(const Sensor& sensor) {
  double value = 1;
  for (const std::string& file : sensor.files) {
    const auto number = base::ParseNumber<std::int64_t>(ReadLine(file));
    if (!number.has_value()) return std::nullopt;
    value *= static_cast<double>(*number);
  }
  // Dividing makes 45250 exactly the double nearest to 45.25.
  const double power = std::pow(10, std::abs(sensor.exponent));
  return sensor.exponent < 0 ? value / power : value * power;
}

}  // namespace thermocline::server
