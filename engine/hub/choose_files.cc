#include "engine/hub/choose_files.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "engine/base/bytes.h"
#include "engine/base/strings.h"

namespace thermocline::hub {
namespace {

constexpr int kPartsMax = 1000;
constexpr std::size_t kFolderFilesMax = 2000;

std::string Upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  return out;
}

std::string_view NameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsWordEnd(char c) { return c == '.' || c == '-' || c == '_' || c == '/'; }

// True if `quant` is a word of the path: "F16" is none of "BF16".
bool HasQuant(const std::string& path, const std::string& quant) {
  const std::string text = Upper(NameOf(path));
  for (std::size_t at = text.find(quant); at != std::string::npos; at = text.find(quant, at + 1)) {
    const std::size_t end = at + quant.size();
    if ((at == 0 || IsWordEnd(text[at - 1])) && end < text.size() &&
        (text[end] == '.' || text[end] == '-'))
      return true;
  }
  return false;
}

// Companions of a model: a projector, an importance matrix, draft heads.
bool IsCompanion(std::string_view path) {
  const std::string name = Upper(NameOf(path));
  for (const char* word : {"MMPROJ", "IMATRIX", "MTP-", "EAGLE3-", "DFLASH-", "DSPARK-"})
    if (name.find(word) != std::string::npos) return true;
  return false;
}

// Returns the part's number of "NAME-00002-of-00003.gguf" (and the number of parts), else 0.
int PartOf(const std::string& path, int& parts) {
  constexpr std::size_t kSuffix = std::string_view("-00001-of-00003.gguf").size();
  parts = 0;
  if (path.size() <= kSuffix) return 0;
  const std::string_view suffix = std::string_view(path).substr(path.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-" || !suffix.ends_with(".gguf")) return 0;
  const auto part = base::ParseNumber<int>(suffix.substr(1, 5));
  const auto all = base::ParseNumber<int>(suffix.substr(10, 5));
  if (!part.has_value() || !all.has_value() || *all < 1 || *all > kPartsMax || *part < 1 ||
      *part > *all)
    return 0;
  parts = *all;
  return *part;
}

// Safetensors repositories: the files that the reader of such folders needs, at the top level.
std::vector<std::string> FolderFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  bool weights = false, config = false;
  for (const std::string& path : paths) {
    if (path.find('/') != std::string::npos) continue;
    weights = weights || path.ends_with(".safetensors");
    config = config || path == "config.json";
    if (path.ends_with(".safetensors") || path.ends_with(".jinja") || path == "tokenizer.model" ||
        path == "merges.txt" || (path.ends_with(".json") && path != "config.json")) {
      files.push_back(path);
    }
  }
  if (!weights || !config) return {};
  files.emplace_back("config.json");
  return files;
}

std::string Listed(const std::vector<std::string>& gguf) {
  std::set<std::string> quants;
  for (const std::string& path : gguf) {
    const std::string quant = QuantOf(path);
    quants.insert(quant.empty() ? path : quant);
  }
  std::string text;
  for (const std::string& quant : quants) {
    if (text.size() > 600) return text + ", ...";
    text += StrCat(text.empty() ? "" : ", ", quant);
  }
  return text;
}

const std::string* FindQuant(const std::vector<std::string>& gguf, const std::string& quant) {
  const std::string* found = nullptr;
  for (const std::string& path : gguf) {
    if (path == quant) return &path;
    // The shortest name: "UD-Q4_K_M" is another quant than "Q4_K_M".
    if (HasQuant(path, Upper(quant)) && (found == nullptr || path.size() < found->size()))
      found = &path;
  }
  return found;
}

}  // namespace

std::string QuantOf(std::string_view path) {
  const std::string text = Upper(NameOf(path));
  static constexpr std::string_view kWords[] = {"BF16", "F16", "F32", "MXFP4", "NVFP4"};
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '.' && text[i] != '-') continue;
    std::string word = text.substr(begin, i - begin);
    begin = i + 1;
    const std::size_t digit = word.starts_with("IQ") || word.starts_with("TQ") ? 2 : 1;
    const bool quant = (word.starts_with('Q') || digit == 2) && word.size() > digit + 1 &&
                       word[digit] >= '1' && word[digit] <= '8' && word[digit + 1] == '_';
    if (quant || std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords))
      return word;
  }
  return "";
}

std::vector<std::string> PartsOf(const std::string& path) {
  int parts = 0;
  if (PartOf(path, parts) == 0) return {path};
  std::vector<std::string> out;
  const std::string begin = path.substr(0, path.size() - 20);
  for (int i = 1; i <= parts; ++i) {
    char suffix[32];
    std::snprintf(suffix, sizeof(suffix), "-%05d-of-%05d.gguf", i, parts);
    out.push_back(begin + suffix);
  }
  return out;
}

Result<std::vector<std::string>> ChooseFiles(const std::vector<std::string>& paths,
                                             const std::string& quant, const std::string& where) {
  std::vector<std::string> gguf;
  for (const std::string& path : paths)
    if (path.ends_with(".gguf") && (!IsCompanion(path) || path == quant)) gguf.push_back(path);
  std::sort(gguf.begin(), gguf.end());
  if (gguf.empty()) {
    std::vector<std::string> files = FolderFiles(paths);
    if (files.size() > kFolderFilesMax)
      return base::FailedPrecondition(where, ": has ", files.size(), " files; at most ",
                                      kFolderFilesMax, " of a model are fetched");
    if (!files.empty() && quant.empty()) return files;
    return base::NotFound(
        where,
        files.empty()
            ? ": has no GGUF file, and no config.json with safetensors"
            : ": has safetensors and no GGUF file, so it has no quants: name it without one");
  }
  const std::string* found = nullptr;
  for (const std::string& wanted :
       quant.empty() ? std::vector<std::string>{"Q4_K_M", "Q8_0"} : std::vector<std::string>{quant})
    if (found == nullptr) found = FindQuant(gguf, wanted);
  if (found == nullptr && quant.empty()) found = &gguf.front();
  if (found == nullptr)
    return base::NotFound(where, ": has no file of ", quant, "; there are ", Listed(gguf));
  std::vector<std::string> parts = PartsOf(*found);
  for (const std::string& part : parts)
    if (!std::binary_search(gguf.begin(), gguf.end(), part))
      return base::DataLoss(where, ": part ", part, " is missing");
  return parts;
}

}  // namespace thermocline::hub
