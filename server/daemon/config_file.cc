#include "server/daemon/config_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "engine/api/ffn_mode.h"
#include "engine/base/file.h"
#include "server/daemon/config_keys.h"

namespace thermocline::server {
namespace {

// Keys so far, each with its line. yaml-cpp accepts a key twice, and which one it keeps is
// undefined.
using Lines = std::map<std::string, int>;

Status AddKey(const YAML::Node& key, const std::string& name, Lines& lines) {
  const auto [found, fresh] = lines.emplace(name, key.Mark().line + 1);
  if (fresh) return OkStatus();
  return base::InvalidArgument("the key '", name, "' comes twice; it is in line ", found->second,
                               " already");
}

std::optional<std::vector<std::string>> ItemsOf(const YAML::Node& node) {
  if (!node.IsSequence()) return std::nullopt;
  std::vector<std::string> items;
  for (const auto& item : node) {
    if (!item.IsScalar()) return std::nullopt;
    items.push_back(item.Scalar());
  }
  return items;
}

// The error of a value that is a list or section, or of an unknown key.
Status ExpectedSingle(const std::vector<Key>& keys, const std::string& name, const char* what) {
  Status unknown = SetKey(keys, name, "");
  if (unknown.reason() == Reason::kNotFound) return unknown;
  return base::InvalidArgument(name, ": expected a single value, found a ", what);
}

// True if a value of --set is parsed as YAML: it is in quotes, in brackets or in braces. Others are
// taken literally; so is "[x].gguf", a file's name.
bool IsYaml(const std::string& text, bool takes_list) {
  if (text.empty()) return false;
  const char first = text.front(), last = text.back();
  return first == '"' || first == '\'' || (first == '[' && (takes_list || last == ']')) ||
         (first == '{' && last == '}');
}

Status SetOverride(const std::vector<Key>& keys, const std::string& name, const std::string& text) {
  const bool takes_list = TakesList(keys, name);
  if (!IsYaml(text, takes_list)) return SetKey(keys, name, text);
  try {
    // Several quoted texts are a list; yaml-cpp alone would read only the first.
    const bool braces = text.starts_with('{'), brackets = text.starts_with('[');
    const YAML::Node node = YAML::Load(braces || brackets ? text : "[" + text + "]");
    if (braces) return ExpectedSingle(keys, name, "section");
    const auto items = ItemsOf(node);
    if (items.has_value() && items->size() == 1 && !brackets)
      return SetKey(keys, name, items->front());
    if (items.has_value()) return SetKeyList(keys, name, *items);
  } catch (const YAML::Exception&) {
  }
  return base::InvalidArgument(
      name, ": '", text,
      takes_list ? "' is no list; write a, b or [a, \"b\"]" : "' is no single text in quotes");
}

// Sections are maps of scalars and of lists of scalars.
Status ApplyYaml(const YAML::Node& root, const std::string& path, const std::vector<Key>& keys) {
  const auto at = [&](const YAML::Node& node) { return StrCat(path, ":", node.Mark().line + 1); };
  Lines lines;
  if (root.IsNull()) return OkStatus();
  if (!root.IsMap()) return base::InvalidArgument(at(root), ": expected sections like 'server:'");
  for (const auto& section : root) {
    const std::string section_name = section.first.Scalar();
    if (const Status once = AddKey(section.first, section_name, lines); !once.ok())
      return once.Annotate(at(section.first));
    if (!section.second.IsMap()) {
      const Status unknown = SetKey(keys, section_name, "");
      return unknown.ok() ? unknown
                          : base::InvalidArgument(at(section.first), ": '", section_name,
                                                  "' must be a section with keys below it; ",
                                                  unknown.message());
    }
    for (const auto& entry : section.second) {
      const std::string name = section_name + "." + entry.first.Scalar();
      if (const Status once = AddKey(entry.first, name, lines); !once.ok())
        return once.Annotate(at(entry.first));
      if (const auto items = ItemsOf(entry.second); items.has_value()) {
        const Status set = SetKeyList(keys, name, *items);
        if (!set.ok()) return set.Annotate(at(entry.first));
        continue;
      }
      if (!entry.second.IsScalar()) {
        const char* what = entry.second.IsMap()    ? "section"
                           : entry.second.IsNull() ? "null"
                                                   : "list";
        return ExpectedSingle(keys, name, what).Annotate(at(entry.first));
      }
      const Status set = SetKey(keys, name, entry.second.Scalar());
      if (!set.ok()) return set.Annotate(at(entry.first));
    }
  }
  return OkStatus();
}

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

// InvalidArgument: `text` has more than one document. yaml-cpp's LoadAll cannot be used: for a
// comma outside of a list its parser produces empty documents without end.
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

// True for a valid Prometheus metric name. Source: its data model.
bool IsMetricName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
  };
  return std::all_of(name.begin(), name.end(), allowed) &&
         (name.empty() || name[0] < '0' || name[0] > '9');
}

// Checks the feed-forward modes as far as possible without the model, whose number of layers is not
// known yet.
Status CheckFfn(const FfnOptions& ffn) {
  constexpr int kLayersMax = 1 << 16;
  const auto modes = ParseFfnModes(ffn.modes, kLayersMax, FfnMode::kDense);
  if (!modes.ok()) return modes.status().Annotate("engine.ffn_mode");
  const auto also = ParseFfnModeList(ffn.also);
  if (!also.ok()) return also.status().Annotate("engine.ffn_also");
  if (ffn.controller_recall > 0 && ffn.audit_interval == 0) {
    return base::InvalidArgument("engine.controller_recall: the controller goes by audits, and ",
                                 "engine.audit_interval is 0");
  }
  const bool shadow =
      ffn.audit_shadow == AuditShadow::kSign || ffn.audit_shadow == AuditShadow::kLowRank;
  if (shadow && ffn.audit_interval == 0) {
    return base::InvalidArgument(
        "engine.audit_shadow: it is audited, and engine.audit_interval is 0");
  }
  return OkStatus();
}

}  // namespace

Result<ServerConfig> LoadServerConfig(const std::string& path,
                                      const std::vector<std::string>& overrides) {
  ServerConfig config;
  const std::vector<Key> keys = KeysOf(config);
  if (!path.empty()) {
    ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, 1 << 20));
    try {
      RETURN_IF_ERROR(CheckOneDocument(text, path));
      RETURN_IF_ERROR(ApplyYaml(YAML::Load(text), path, keys));
    } catch (const YAML::Exception& error) {
      return base::InvalidArgument(path, ":", error.mark.line + 1, ": ", error.msg);
    }
  }
  for (const std::string& assignment : overrides) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos)
      return base::InvalidArgument("--set ", assignment, ": expected key=value");
    const Status set =
        SetOverride(keys, assignment.substr(0, equals), assignment.substr(equals + 1));
    if (!set.ok()) return set.Annotate("--set");
  }
  if (!IsMetricName(config.metrics_prefix)) {
    return base::InvalidArgument(
        "metrics.prefix: '", config.metrics_prefix,
        "' may hold letters, digits, '_' and ':' and begins with no digit");
  }
  RETURN_IF_ERROR(CheckFfn(config.model.ffn));
  return config;
}

}  // namespace thermocline::server
