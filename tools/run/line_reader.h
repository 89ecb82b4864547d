// What the user writes, line by line.
#pragma once

#include <termios.h>

#include <memory>
#include <optional>
#include <string>

// libedit's.
struct editline;
struct history;

namespace thermocline::tools {

// On a terminal lines are edited (arrows, Emacs' keys, what ~/.editrc says) and remembered in a
// file that only the user can read; elsewhere they are read as they are, without a prompt.
// Thread-compatible; one at a time.
class LineReader {
 public:
  enum class End { kLine, kInterrupted, kEndOfInput };
  struct Line {
    End end;
    std::string text = {};  // without its line end
  };

  // Lines of earlier runs come from `history_path`; "" = they are not kept.
  explicit LineReader(std::string history_path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // kInterrupted: Ctrl-C took the line away.
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

// While it lives keys are not shown: what is typed during an answer comes at the next prompt.
class QuietKeys {
 public:
  explicit QuietKeys(bool terminal);
  ~QuietKeys();
  QuietKeys(const QuietKeys&) = delete;
  QuietKeys& operator=(const QuietKeys&) = delete;

 private:
  std::optional<termios> before_;
};

// Where the lines of chats are kept: $XDG_STATE_HOME/thermocline/history, else
// ~/.local/state/thermocline/history; "" where there is no home. Makes the folder.
std::string ChatHistoryPath();

}  // namespace thermocline::tools
