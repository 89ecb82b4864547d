// The messages of a chat, and the file that stores them.
#pragma once

#include <string>

#include "engine/base/index.h"
#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::tools {

class Conversation {
 public:
  explicit Conversation(std::string system = "") : system_(std::move(system)) {}
  // Reads a file that Save wrote, or any with {"messages": [{"role", "content"}]} of texts. Errors
  // as ReadFileToString; InvalidArgument names the malformed message.
  static Result<Conversation> Load(const std::string& path);
  // Replaces an existing file. Errors as FileWriter.
  Status Save(const std::string& path) const;

  // The system message; "" = none.
  const std::string& system() const { return system_; }
  void SetSystem(std::string text) { system_ = std::move(text); }
  // The number of messages of users and assistants.
  int size() const { return base::IntSize(turns_); }
  void Add(const char* role, const std::string& text);
  void DropLast() { turns_.pop_back(); }
  void Clear() { turns_.clear(); }  // the system message stays
  // {"messages": [...]}, the format of chat templates and saved files.
  Json ToJson() const;

 private:
  std::string system_;
  Json::Array turns_;
};

}  // namespace thermocline::tools
