// Wraps streamed text on a terminal at word boundaries.
#pragma once

#include <cstdio>
#include <cwchar>
#include <string>
#include <string_view>

namespace thermocline::tools {

// Pieces are printed at once. A word that then reaches the right edge is erased and moved to the
// next line. Lines between ``` fences are not wrapped. Control characters other than line breaks
// and tabs are removed, so that text cannot move the cursor. Thread-compatible. Source: Ollama's
// `run` prints so.
class WordWrap {
 public:
  // `columns`: the terminal's width; 0 if `out` is not a terminal, which passes text unchanged.
  WordWrap(std::FILE* out, int columns) : out_(out), columns_(columns) {}
  // Writes UTF-8, which may end within a character.
  void Write(std::string_view text);
  // Ends the current line, unless it is empty.
  void Finish();

 private:
  void Put(wchar_t c, std::string_view bytes);
  void EndLine();
  void PutInWord(int width, std::string_view bytes);

  std::FILE* const out_;
  const int columns_;
  std::mbstate_t partial_ = {};
  std::string bytes_;  // of an incomplete character
  std::string word_;   // since the last space
  std::string line_;   // of the text, for finding fences
  int column_ = 0, word_columns_ = 0;
  bool fenced_ = false, written_ = false;
};

// The width of the terminal `out`; 0 if it is not one.
int ColumnsOf(std::FILE* out);

}  // namespace thermocline::tools
