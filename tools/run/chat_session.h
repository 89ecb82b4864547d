// `thermocline run` without a prompt: a chat on the terminal, or of the lines of a pipe.
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
  // Until the input ends or End is called. What fails is told and the chat goes on; of a pipe, the
  // first error is returned at the end.
  Status Run();

  // For commands.
  Engine& engine() { return engine_; }
  RunOptions& options() { return options_; }
  Conversation& conversation() { return conversation_; }
  const std::optional<Usage>& last_usage() const { return last_usage_; }
  // The conversation is another one now.
  void ForgetUsage() { last_usage_.reset(); }
  // Files that this chat has saved or loaded: it may replace them.
  std::set<std::string>& files() { return files_; }
  void End() { ended_ = true; }

 private:
  ChatSession(Engine& engine, RunOptions& options, LineReader& reader,
              std::unique_ptr<ChatFormatter> formatter);
  void Greet();
  // The next message or command; nothing: the input has ended. "" = there is none, read on.
  std::optional<std::string> ReadMessage();
  std::optional<std::string> ReadBlock(std::string text);
  Status Answer(const std::string& line);
  // Tells what failed.
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

// A line of the program's own, beside the chat: on standard error.
void Note(const std::string& text);

}  // namespace thermocline::tools
