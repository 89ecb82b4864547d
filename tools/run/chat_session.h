// `thermocline run` without a prompt: a chat on the terminal, or with the lines of a pipe.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "engine/chat.h"
#include "engine/engine.h"
#include "tools/run/conversation.h"
#include "tools/run/line_reader.h"
#include "tools/run/run_options.h"

namespace thermocline::tools {

// Thread-compatible.
class ChatSession {
 public:
  // Borrows all three. FailedPrecondition if the model has no chat template.
  static Result<std::unique_ptr<ChatSession>> Create(Engine& engine, RunOptions& options,
                                                     LineReader& reader);
  // Runs until the input ends or End is called. Errors are printed and the chat continues; with a
  // pipe, the first error is returned at the end.
  Status Run();

  // Access for commands.
  Engine& engine() { return engine_; }
  RunOptions& options() { return options_; }
  Conversation& conversation() { return conversation_; }
  const std::optional<Usage>& last_usage() const { return last_usage_; }
  // Called when the conversation is replaced.
  void ForgetUsage() { last_usage_.reset(); }
  // Files that this chat has saved or loaded, which it may replace.
  std::set<std::string>& files() { return files_; }
  void End() { ended_ = true; }

 private:
  ChatSession(Engine& engine, RunOptions& options, LineReader& reader,
              std::unique_ptr<ChatFormatter> formatter);
  void Greet();
  // The next message or command; nullopt at the end of the input; "" for an empty one.
  std::optional<std::string> ReadMessage();
  std::optional<std::string> ReadBlock(std::string text);
  Status Answer(const std::string& line);
  // Prints an error.
  void Fail(const Status& status);
  Status Ask(const std::string& message);

  Engine& engine_;
  RunOptions& options_;
  LineReader& reader_;
  const std::unique_ptr<ChatFormatter> formatter_;
  Conversation conversation_;
  std::optional<Usage> last_usage_;
  std::set<std::string> files_;
  Status first_error_;
  bool ended_ = false;
};

// Prints a message of the program itself on standard error.
void Note(const std::string& text);

}  // namespace thermocline::tools
