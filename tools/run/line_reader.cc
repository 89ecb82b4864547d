#include "tools/run/line_reader.h"

#include <fcntl.h>
#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace thermocline::tools {

// Callbacks for keys and prompts; libedit's client data is the reader.
struct Keys {
  static LineReader& Of(EditLine* edit) {
    void* reader = nullptr;
    el_get(edit, EL_CLIENTDATA, &reader);
    return *static_cast<LineReader*>(reader);
  }
  static char* Prompt(EditLine* edit) { return Of(edit).prompt_.data(); }
  static unsigned char Interrupt(EditLine* edit, int) {
    Of(edit).interrupted_ = true;
    return CC_NEWLINE;
  }
  static unsigned char Suspend(EditLine* edit, int) {
    el_set(edit, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    el_set(edit, EL_PREP_TERM, 1);
    return CC_REFRESH;
  }
  // Inserts pasted text. Its line ends do not send the message.
  static unsigned char Paste(EditLine* edit, int) {
    const std::wstring end = L"\x1b[201~";
    std::wstring text;
    for (wchar_t c = 0; !text.ends_with(end) && el_wgetc(edit, &c) == 1;)
      text += c == L'\r' ? L'\n' : c;
    if (text.ends_with(end)) text.resize(text.size() - end.size());
    while (text.ends_with(L'\n')) text.pop_back();
    return !text.empty() && el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }
};

namespace {

// Makes the terminal mark pasted text. Source: xterm's control sequences.
constexpr const char* kMarkPastes = "\x1b[?2004h";
constexpr const char* kMarkNone = "\x1b[?2004l";

void Tell(const char* sequence) {
  std::fputs(sequence, stderr);
  std::fflush(stderr);
}

constexpr std::size_t kHistoryLines = 1000;

void BindKeys(EditLine* edit) {
  el_set(edit, EL_EDITOR, "emacs");
  el_set(edit, EL_SIGNAL, 1);  // handles resizing of the window
  // Handles Ctrl-C and Ctrl-Z as keys: libedit's own handling of their signals ends a line only at
  // the second one.
  el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
  el_set(edit, EL_ADDFN, "chat-interrupt", "Take the line away", Keys::Interrupt);
  el_set(edit, EL_ADDFN, "chat-suspend", "Stop the program", Keys::Suspend);
  el_set(edit, EL_ADDFN, "chat-paste", "Insert what is pasted", Keys::Paste);
  el_set(edit, EL_BIND, "\\e[200~", "chat-paste", nullptr);
  el_set(edit, EL_BIND, "^C", "chat-interrupt", nullptr);
  el_set(edit, EL_BIND, "^Z", "chat-suspend", nullptr);
  el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(edit, nullptr);
}

}  // namespace

LineReader::LineReader(std::string history_path)
    : history_path_(std::move(history_path)),
      edit_(nullptr, el_end),
      history_(nullptr, history_end) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return;
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  std::FILE* const out = isatty(STDOUT_FILENO) != 0 ? stdout : stderr;
  edit_.reset(el_init("thermocline", stdin, out, stderr));
  if (edit_ == nullptr) return;
  el_set(edit_.get(), EL_CLIENTDATA, this);
  el_set(edit_.get(), EL_PROMPT, Keys::Prompt);
  BindKeys(edit_.get());
  history_.reset(history_init());
  LoadHistory();
  el_set(edit_.get(), EL_HIST, ::history, history_.get());
}

LineReader::~LineReader() = default;

void LineReader::LoadHistory() {
  history_.reset(history_init());
  HistEvent event;
  ::history(history_.get(), &event, H_SETSIZE, static_cast<int>(kHistoryLines));
  ::history(history_.get(), &event, H_SETUNIQUE, 1);
  std::deque<std::string> lines;
  std::ifstream file(history_path_);
  bool long_file = false;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() <= kHistoryLines) continue;
    lines.pop_front();
    long_file = true;
  }
  std::string all;
  for (const std::string& line : lines) {
    ::history(history_.get(), &event, H_ENTER, line.c_str());
    all += line + '\n';
  }
  if (!long_file) return;
  // New lines are appended to the file; the oldest ones are removed here.
  if (const auto writer = base::FileWriter::Create(history_path_);
      writer.ok() && (*writer)->Append(all).ok())
    (void)(*writer)->Commit();
}

LineReader::Line LineReader::Read(const std::string& prompt) {
  if (terminal()) return ReadEdited(prompt);
  Line line{.end = End::kLine};
  if (!std::getline(std::cin, line.text)) line.end = End::kEndOfInput;
  return line;
}

LineReader::Line LineReader::ReadEdited(const std::string& prompt) {
  prompt_ = prompt;
  interrupted_ = false;
  int length = 0;
  Tell(kMarkPastes);
  const char* const text = el_gets(edit_.get(), &length);
  Tell(kMarkNone);
  if (interrupted_ || text == nullptr) {
    std::fputc('\n', isatty(STDOUT_FILENO) != 0 ? stdout : stderr);
    return {.end = interrupted_ ? End::kInterrupted : End::kEndOfInput};
  }
  Line line{.end = End::kLine, .text = text};
  if (line.text.ends_with('\n')) line.text.pop_back();
  if (line.text.empty()) return line;
  Remember(line.text);
  return line;
}

// Appended to the file at once, so that a chat that is killed, or runs beside another, loses no
// lines.
void LineReader::Remember(const std::string& line) {
  HistEvent event;
  ::history(history_.get(), &event, H_ENTER, line.c_str());
  if (history_path_.empty()) return;
  const int fd = open(history_path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  std::string text = line;
  std::replace(text.begin(), text.end(), '\n', ' ');  // the file has one message per line
  text += '\n';
  (void)!write(fd, text.data(), text.size());
  close(fd);
}

QuietKeys::QuietKeys(bool terminal) {
  termios now = {};
  if (!terminal || tcgetattr(STDIN_FILENO, &now) != 0) return;
  before_ = now;
  now.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  (void)tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

QuietKeys::~QuietKeys() {
  if (before_.has_value()) (void)tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

std::string ChatHistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".local/state";
  } else {
    return "";
  }
  folder /= "thermocline";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? "" : (folder / "history").string();
}

}  // namespace thermocline::tools
