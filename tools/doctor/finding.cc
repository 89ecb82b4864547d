#include "tools/doctor/finding.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/strings.h"

namespace thermocline::tools {

const char* VerdictName(Verdict verdict) {
  static constexpr const char* kNames[] = {"ok", "note", "warning", "error"};
  return kNames[base::Index(verdict)];
}

Json ToJson(const Finding& finding) {
  return Json::Object{{"check", finding.name},
                      {"verdict", VerdictName(finding.verdict)},
                      {"seen", finding.seen},
                      {"advice", finding.advice}};
}

MachineFiles::MachineFiles(const std::string& root)
    : root_(root.ends_with('/') ? root : root + "/") {}

// Read as a stream, because files of /proc and /sys have no size.
std::optional<std::string> MachineFiles::Read(const std::string& path) const {
  std::ifstream in(Full(path));
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) return std::nullopt;
  std::string out = text.str();
  std::replace(out.begin(), out.end(), '\0', ' ');  // the device tree's strings end with NUL
  while (!out.empty() && base::ByteOf(out.back()) <= ' ') out.pop_back();
  return out;
}

std::optional<double> MachineFiles::ReadNumber(const std::string& path) const {
  const auto text = Read(path);
  return text.has_value() ? base::ParseNumber<double>(*text) : std::nullopt;
}

bool MachineFiles::Exists(const std::string& path) const {
  return ::access(Full(path).c_str(), F_OK) == 0;
}

bool MachineFiles::CanUse(const std::string& path) const {
  return ::access(Full(path).c_str(), R_OK | W_OK) == 0;
}

std::vector<std::string> MachineFiles::List(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(Full(folder), error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace thermocline::tools
