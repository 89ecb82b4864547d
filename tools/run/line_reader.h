// Reads the user's input line by line.
#pragma once

#include <termios.h>

#include <memory>
#include <optional>
#include <string>

// Types of libedit.
struct editline;
struct history;

namespace thermocline::tools {

// On a terminal, lines can be edited (arrows, Emacs' keys, ~/.editrc) and are stored in a history
// file that only the user can read; elsewhere lines are read unchanged, without a prompt.
// Thread-compatible; one at a time.
class LineReader {
 public:
  enum class End { kLine, kInterrupted, kEndOfInput };
  struct Line {
    End end;
    std::string text = {};  // without the line break
  };

  // `history_path`: the history of earlier runs; "" = none is kept.
  explicit LineReader(std::string history_path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // kInterrupted: Ctrl-C discarded the line.
  Line Read(const std::string& prompt);
  bool terminal() const { return edit_ != nullptr; }

 private:
  Line ReadEdited(const std::string& prompt);
  void LoadHistory();
  void Remember(const std::string& line);

  const std::string history_path_;
  std::unique_ptr<editline, void (*)(editline*)> edit_;
  std::unique_ptr<history, void (*)(history*)> history_;
  std::string prompt_;
  bool interrupted_ = false;
  friend struct Keys;
};

// Keys are not echoed while it lives; those typed during an answer appear at the next prompt.
class QuietKeys {
 public:
  explicit QuietKeys(bool terminal);
  ~QuietKeys();
  QuietKeys(const QuietKeys&) = delete;
  QuietKeys& operator=(const QuietKeys&) = delete;

 private:
  std::optional<termios> before_;
};

// The history file of chats: $XDG_STATE_HOME/thermocline/history, else
// ~/.local/state/thermocline/history; "" without a home folder. Creates the folder.
std::string ChatHistoryPath();

}  // namespace thermocline::tools
