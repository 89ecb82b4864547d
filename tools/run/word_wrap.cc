#include "tools/run/word_wrap.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/base/index.h"

namespace thermocline::tools {

void WordWrap::Write(std::string_view text) {
  if (columns_ == 0) {
    std::fwrite(text.data(), 1, text.size(), out_);
    if (!text.empty()) written_ = text.back() != '\n';
    std::fflush(out_);
    return;
  }
  for (const char byte : text) {
    bytes_ += byte;
    wchar_t c = 0;
    const std::size_t taken = std::mbrtowc(&c, &byte, 1, &partial_);
    if (taken == static_cast<std::size_t>(-2)) continue;
    if (taken == static_cast<std::size_t>(-1)) {
      partial_ = {};
    } else {
      Put(c, bytes_);
    }
    bytes_.clear();
  }
  std::fflush(out_);
}

void WordWrap::Finish() {
  if (columns_ == 0 ? written_ : column_ > 0) std::fputc('\n', out_);
  std::fflush(out_);
}

void WordWrap::EndLine() {
  if (line_.find_first_not_of(' ') == line_.find("```") && line_.find("```") != std::string::npos)
    fenced_ = !fenced_;
  line_.clear();
  word_.clear();
  column_ = word_columns_ = 0;
  std::fputc('\n', out_);
}

void WordWrap::Put(wchar_t c, std::string_view bytes) {
  if (c == L'\n') return EndLine();
  if (c == L'\t') bytes = "    ", c = L' ';
  const int width = c == L' ' ? base::IntSize(bytes) : wcwidth(c);
  if (width < 0 || c == L'\0') return;  // a control character
  line_ += bytes;
  if (c != L' ' || fenced_) return PutInWord(width, bytes);
  word_.clear();
  word_columns_ = 0;
  column_ += width;
  if (column_ >= columns_) return;  // the word moves to the next line
  std::fwrite(bytes.data(), 1, bytes.size(), out_);
}

void WordWrap::PutInWord(int width, std::string_view bytes) {
  if (width == 2) word_.clear(), word_columns_ = 0;  // Chinese and similar scripts break anywhere
  if (column_ + width >= columns_ && !fenced_) {
    const bool fits = word_columns_ < column_ && word_columns_ + width < columns_;
    if (fits && word_columns_ > 0) std::fprintf(out_, "\033[%dD\033[K", word_columns_);
    std::fputc('\n', out_);
    if (!fits) word_.clear(), word_columns_ = 0;
    std::fwrite(word_.data(), 1, word_.size(), out_);
    column_ = word_columns_;
  }
  word_ += bytes;
  word_columns_ += width;
  column_ += width;
  std::fwrite(bytes.data(), 1, bytes.size(), out_);
}

int ColumnsOf(std::FILE* out) {
  if (isatty(fileno(out)) == 0) return 0;
  winsize size = {};
  const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

}  // namespace thermocline::tools
