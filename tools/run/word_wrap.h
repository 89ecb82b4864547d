// Text on a terminal as it comes, with no word broken at the right edge.
#pragma once

#include <cstdio>
#include <cwchar>
#include <string>
#include <string_view>

namespace thermocline::tools {

// Pieces are printed at once. A word that then reaches the edge is taken back and begins the next
// line. Lines between ``` fences stay as they are, for the terminal to break. Control characters
// but line ends and tabs are left out: text cannot move the cursor. Thread-compatible.
// Source: Ollama's `run` prints so.
class WordWrap {
 public:
  // `columns` of the terminal; 0: `out` is none, and all text goes through as it is.
  WordWrap(std::FILE* out, int columns) : out_(out), columns_(columns) {}
  // UTF-8, which may end within a character.
  void Write(std::string_view text);
  // Ends the line, if something is on it.
  void Finish();

 private:
  void Put(wchar_t c, std::string_view bytes);
  void EndLine();
  void PutInWord(int width, std::string_view bytes);

  std::FILE* const out_;
  const int columns_;
  std::mbstate_t partial_ = {};
  std::string bytes_;  // of a character that has not ended
  std::string word_;   // since the last space
  std::string line_;   // of the text, to find fences
  int column_ = 0, word_columns_ = 0;
  bool fenced_ = false, written_ = false;
};

// Columns of the terminal that `out` is; 0 = it is none.
int ColumnsOf(std::FILE* out);

}  // namespace thermocline::tools
