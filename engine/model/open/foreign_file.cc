#include "engine/model/open/foreign_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace thermocline::model {
namespace {

namespace fs = std::filesystem;

// A kind of file by its first bytes.
struct Kind {
  std::string_view magic, what;
};
constexpr std::array kKinds = {
    Kind{"version https://git-lfs",
         "a pointer of Git LFS, not the file it stands for: run `git lfs pull` in its folder, or "
         "`thermocline pull`"},
    Kind{"<!DOCTYPE",
         "a web page: its address led to a page that shows the file, or asks for a "
         "login; `thermocline pull` fetches the file itself"},
    Kind{"<!doctype",
         "a web page: its address led to a page that shows the file, or asks for a "
         "login; `thermocline pull` fetches the file itself"},
    Kind{"<html",
         "a web page: its address led to a page that shows the file, or asks for a "
         "login; `thermocline pull` fetches the file itself"},
    Kind{std::string_view("PK\x03\x04", 4),
         "a zip archive, as PyTorch writes checkpoints (.bin, .pt, .pth): take the model's "
         "safetensors folder, or a GGUF file of it"},
    Kind{std::string_view("\x80\x02", 2),
         "a pickle, as old PyTorch checkpoints are: take the model's safetensors folder, or a GGUF "
         "file of it"},
    Kind{"lmgg", "a GGML file of before GGUF (2023): take a GGUF file of the model"},
    Kind{"fmgg", "a GGML file of before GGUF (2023): take a GGUF file of the model"},
    Kind{"tjgg", "a GGML file of before GGUF (2023): take a GGUF file of the model"},
    Kind{std::string_view("\x1f\x8b", 2), "a gzip archive: unpack it first"},
    Kind{std::string_view("\x28\xb5\x2f\xfd", 4), "a zstd archive: unpack it first"},
    Kind{std::string_view("7z\xbc\xaf", 4), "a 7z archive: unpack it first"},
    Kind{"Invalid username",
         "the answer of a hub that wants a login: set HF_TOKEN and use "
         "`thermocline pull`"},
};

// Safetensors begin with the length of a JSON object, in 8 bytes.
bool IsSafetensors(std::string_view begin) {
  return begin.size() > 9 && begin[8] == '{' && begin[7] == 0 && begin[6] == 0 && begin[5] == 0;
}

// Returns the names of a folder's files that end with `ending`, sorted.
std::vector<std::string> Names(const std::string& folder, std::string_view ending) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(ending)) out.push_back(std::move(name));
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Returns the first names, and how many more there are.
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i)
    out += StrCat(i == 0 ? "" : ", ", names[i]);
  return names.size() > kNamed ? StrCat(out, " and ", names.size() - kNamed, " more") : out;
}

}  // namespace

std::string WhatFileIs(const std::string& path, std::string_view begin) {
  for (const Kind& kind : kKinds) {
    if (begin.starts_with(kind.magic)) return std::string(kind.what);
  }
  if (IsSafetensors(begin)) {
    const std::string folder = fs::path(path).parent_path().string();
    return StrCat("a safetensors file by itself: give the folder that holds it with config.json (",
                  folder.empty() ? "." : folder, ")");
  }
  if (begin.starts_with("{") && path.ends_with(".json"))
    return "a JSON file: give the folder that holds it with the model";
  return "";
}

Status ForeignFolder(const std::string& folder) {
  if (base::PathExists(folder + "/adapter_config.json"))
    return base::InvalidArgument(
        folder,
        ": a LoRA adapter: give it as --lora (the daemon: model.lora) of the model that it was "
        "made for");
  if (const auto files = Names(folder, ".gguf"); !files.empty())
    return base::InvalidArgument(folder,
                                 ": a folder of GGUF files, without config.json: give one of ",
                                 "them (", FirstOf(files), ")");
  if (base::PathExists(folder + "/params.json"))
    return base::InvalidArgument(
        folder,
        ": weights as their publisher's own program reads them (params.json): take the "
        "Hugging Face form of the model, or a GGUF file");
  if (!Names(folder, ".safetensors").empty())
    return base::InvalidArgument(folder, ": config.json is missing beside the safetensors");
  return base::InvalidArgument(folder, ": a folder without config.json is no model");
}

}  // namespace thermocline::model
