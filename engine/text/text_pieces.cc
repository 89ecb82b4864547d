#include "engine/text/text_pieces.h"

#include "engine/base/strings.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/unicode_text.h"

namespace thermocline::text {
namespace {

bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The character before `pos`. Requires: pos > 0.
char32_t CodePointBefore(std::string_view text, std::size_t pos) {
  std::size_t begin = CharacterBefore(text, pos);
  return base::DecodeUtf8(text, begin);
}

}  // namespace

bool IsBetweenWords(std::string_view text, std::size_t pos) {
  return text[pos] == ' ' && IsAsciiLetter(text[pos - 1]) && pos + 1 < text.size() &&
         IsAsciiLetter(text[pos + 1]);
}

void MarkCuts::AddToken(std::string_view token) {
  for (std::size_t at = token.find(kSpaceMark, 1); at != std::string_view::npos;
       at = token.find(kSpaceMark, at + 1))
    before_marks_.insert(CodePointBefore(token, at));
}

bool MarkCuts::operator()(std::string_view text, std::size_t pos) const {
  return text.compare(pos, kSpaceMark.size(), kSpaceMark) == 0 &&
         before_marks_.count(CodePointBefore(text, pos)) == 0;
}

}  // namespace thermocline::text
