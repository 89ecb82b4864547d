#include "server/daemon/yaml_text.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

namespace thermocline::server {
namespace {

// Counts documents, and records the line of the last one.
class DocumentStarts final : public YAML::EventHandler {
 public:
  int count() const { return count_; }
  int line() const { return line_; }

 private:
  void OnDocumentStart(const YAML::Mark& mark) override {
    ++count_;
    line_ = mark.line + 1;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  int count_ = 0, line_ = 0;
};

}  // namespace

// yaml-cpp's LoadAll cannot be used: for a comma outside of a list its parser produces empty
// documents without end.
Status CheckOneDocument(const std::string& text, const std::string& path) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStarts starts;
  while (starts.count() < 2 && parser.HandleNextDocument(starts)) continue;
  if (starts.count() < 2) return OkStatus();
  return base::InvalidArgument(path, ":", starts.line(),
                               ": a second YAML document begins here, or a comma stands alone; "
                               "nobody would read what follows");
}

const char* HintOf(const std::string& text, int line) {
  std::istringstream lines(text);
  std::string at;
  for (int i = 0; i <= line && std::getline(lines, at); ++i) continue;
  const std::size_t indent = std::min(at.find_first_not_of(" \t"), at.size());
  return at.find('\t') < indent ? " (a tab begins the line: YAML is indented by spaces)" : "";
}

}  // namespace thermocline::server
