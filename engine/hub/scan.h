// All models that other programs and `thermocline pull` have left on this machine. Reads folders
// alone, and changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace thermocline::hub {

struct FoundModel {
  std::string name;    // what MODEL arguments take: a name, or the path
  std::string source;  // "hub", "ollama" or "files"
  std::string path;
  std::uint64_t bytes = 0;  // of all parts
};

// All files below `folder`, sorted, links followed for files and not for folders. At most 100,000.
std::vector<std::string> FilesBelow(const std::string& folder);
// The models of one store in Ollama's layout that are complete.
std::vector<FoundModel> ModelsInStore(const std::string& store);
// The models below a folder of the user's, by name: GGUF files, and folders with a config.json. The
// name is the file's without ending, or the folder's; with its folders if two have one name. Files
// that belong to another model ("mmproj") are left out.
std::vector<FoundModel> ModelsIn(const std::string& folder);
// All models on this machine, by source.
std::vector<FoundModel> ScanModels();

}  // namespace thermocline::hub
