// What `thermocline doctor` found out about one thing, and the files it looks at.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::tools {

// kOk: as it should be. kNote: nothing to do, good to know. kWarning: it works, slower or less
// safely than it could. kError: it will not work.
enum class Verdict { kOk, kNote, kWarning, kError };

struct Finding {
  std::string name;  // of the check: "huge pages"
  Verdict verdict = Verdict::kOk;
  std::string seen;    // what is there
  std::string advice;  // what to change, and how; "" if nothing
};

const char* VerdictName(Verdict verdict);  // ok, note, warning, error
Json ToJson(const Finding& finding);

// The machine's files below `root`, which is "/" but in tests: root + "sys/...". Thread-compatible.
class MachineFiles {
 public:
  explicit MachineFiles(const std::string& root);
  // The file's text without the white space at its end; nullopt if it cannot be read.
  std::optional<std::string> Read(const std::string& path) const;
  std::optional<double> ReadNumber(const std::string& path) const;
  bool Exists(const std::string& path) const;
  bool CanUse(const std::string& path) const;  // read and write
  // Names in a folder, sorted; none if it cannot be read.
  std::vector<std::string> List(const std::string& folder) const;
  std::string Full(const std::string& path) const { return root_ + path; }
  bool real() const { return root_ == "/"; }  // the machine that this runs on

 private:
  const std::string root_;
};

}  // namespace thermocline::tools
