// The result of one check of `thermocline doctor`, and access to the machine's files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::tools {

// kOk: as it should be. kNote: information only. kWarning: it works, but slower or less safely than
// it could. kError: it will not work.
enum class Verdict { kOk, kNote, kWarning, kError };

struct Finding {
  std::string name;  // the check's name: "huge pages"
  Verdict verdict = Verdict::kOk;
  std::string seen;    // the state found
  std::string advice;  // the change to make; "" = none
};

const char* VerdictName(Verdict verdict);  // ok, note, warning, error
Json ToJson(const Finding& finding);

// The machine's files below `root`, which is "/" except in tests: root + "sys/...".
// Thread-compatible.
class MachineFiles {
 public:
  explicit MachineFiles(const std::string& root);
  // The file's text without trailing white space; nullopt if it cannot be read.
  std::optional<std::string> Read(const std::string& path) const;
  std::optional<double> ReadNumber(const std::string& path) const;
  bool Exists(const std::string& path) const;
  bool CanUse(const std::string& path) const;  // read and write
  // Sorted names in a folder; empty if it cannot be read.
  std::vector<std::string> List(const std::string& folder) const;
  std::string Full(const std::string& path) const { return root_ + path; }
  bool real() const { return root_ == "/"; }  // true for the running machine

 private:
  const std::string root_;
};

}  // namespace thermocline::tools
