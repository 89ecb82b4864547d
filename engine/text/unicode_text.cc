#include "engine/text/unicode_text.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/check.h"
#include "engine/base/interruption.h"
#include "engine/base/strings.h"

namespace thermocline::text {
namespace {

using model::Normalization;

const icu::Normalizer2& FormOf(Normalization form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case Normalization::kNfd:
      found = icu::Normalizer2::getNFDInstance(error);
      break;
    case Normalization::kNfkc:
      found = icu::Normalizer2::getNFKCInstance(error);
      break;
    case Normalization::kNfkd:
      found = icu::Normalizer2::getNFKDInstance(error);
      break;
    default:
      found = icu::Normalizer2::getNFCInstance(error);
  }
  CHECK(U_SUCCESS(error) && found != nullptr);
  return *found;
}

// Character by character, as the tokenizers library does: a sigma at a word's end is not special.
icu::UnicodeString Lowercase(const icu::UnicodeString& text) {
  constexpr UChar32 kCapitalDottedI = 0x130;
  icu::UnicodeString out;
  for (std::int32_t at = 0; at < text.length(); at = text.moveIndex32(at, 1)) {
    const UChar32 c = text.char32At(at);
    out.append(c == kCapitalDottedI ? UChar32{'i'} : u_tolower(c));
    if (c == kCapitalDottedI) out.append(UChar32{0x307});
  }
  return out;
}

// Without marks that take no space; letters with accents have been decomposed.
icu::UnicodeString StripAccents(const icu::UnicodeString& text) {
  icu::UnicodeString out;
  for (std::int32_t at = 0; at < text.length(); at = text.moveIndex32(at, 1)) {
    const UChar32 c = text.char32At(at);
    if (u_charType(c) != U_NON_SPACING_MARK) out.append(c);
  }
  return out;
}

// Characters that the canonical order may move, also those that only begin with such a mark when
// they are decomposed.
bool IsMoved(UChar32 c) {
  return c >= 0x300 && u_getIntPropertyValue(c, UCHAR_LEAD_CANONICAL_COMBINING_CLASS) != 0;
}

// True if more marks follow each other than any writing has. ICU puts a run in order in a time that
// grows with its square.
bool HasLongRun(const icu::UnicodeString& text) {
  constexpr int kMarksMax = 64;
  int run = 0;
  for (std::int32_t at = 0; at < text.length(); at = text.moveIndex32(at, 1)) {
    run = IsMoved(text.char32At(at)) ? run + 1 : 0;
    if (run > kMarksMax) return true;
  }
  return false;
}

// Decomposes each character, and sorts each run of marks by class. Source: the canonical ordering
// algorithm, Unicode 3.11.
icu::UnicodeString Decomposed(const icu::Normalizer2& form, const icu::UnicodeString& text) {
  std::vector<std::pair<std::uint8_t, UChar32>> characters;
  for (std::int32_t at = 0; at < text.length(); at = text.moveIndex32(at, 1)) {
    icu::UnicodeString parts;
    if (!form.getDecomposition(text.char32At(at), parts)) parts = text.char32At(at);
    for (std::int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1))
      characters.emplace_back(form.getCombiningClass(parts.char32At(i)), parts.char32At(i));
  }
  icu::UnicodeString out;
  for (auto run = characters.begin(); run != characters.end();) {
    const auto end =
        std::find_if(run + 1, characters.end(), [](const auto& c) { return c.first == 0; });
    std::stable_sort(run->first == 0 ? run + 1 : run, end,
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (; run != end; ++run) out.append(run->second);
  }
  return out;
}

const icu::Normalizer2& DecompositionOf(Normalization form) {
  const bool compatible = form == Normalization::kNfkc || form == Normalization::kNfkd;
  return FormOf(compatible ? Normalization::kNfkd : Normalization::kNfd);
}

icu::UnicodeString After(Normalization form, const icu::UnicodeString& text) {
  if (form == Normalization::kLowercase) return Lowercase(text);
  if (form == Normalization::kStripAccents) return StripAccents(text);
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString ordered =
      HasLongRun(text) ? Decomposed(DecompositionOf(form), text) : text;
  icu::UnicodeString out = FormOf(form).normalize(ordered, error);
  CHECK(U_SUCCESS(error));
  return out;
}

// Bytes of the first piece of a text that is normalized in pieces: no form changes anything across
// a space before which it is cut.
std::size_t PieceBytes(std::string_view text) {
  constexpr std::size_t kPiece = 64 << 10;
  if (text.size() <= kPiece) return text.size();
  std::size_t cut = text.rfind(' ', kPiece);
  if (cut == std::string_view::npos || cut == 0) cut = text.find(' ', kPiece);
  return cut == std::string_view::npos ? text.size() : cut;
}

}  // namespace

std::size_t CharacterBefore(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (base::ByteOf(text[at]) & 0xC0) == 0x80);
  return at;
}

bool IsSpace(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; }

bool IsWord(char32_t c) {
  constexpr std::uint32_t kWord = U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & kWord) != 0;
}

std::string Normalized(std::string_view text, const std::vector<Normalization>& forms) {
  if (forms.empty()) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const std::size_t size = PieceBytes(text);
    icu::UnicodeString wide = icu::UnicodeString::fromUTF8(
        icu::StringPiece(text.data(), static_cast<std::int32_t>(size)));
    for (const Normalization form : forms) wide = After(form, wide);
    wide.toUTF8String(out);
    text.remove_prefix(size);
    if (!text.empty() && base::Interrupted()) break;
  }
  return out;
}

std::size_t SpaceBytesAtBegin(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!IsSpace(base::DecodeUtf8(text, at))) break;
    end = at;
  }
  return end;
}

std::size_t SpaceBytesAtEnd(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    const std::size_t before = CharacterBefore(text, begin);
    std::size_t at = before;
    if (!IsSpace(base::DecodeUtf8(text, at))) break;
    begin = before;
  }
  return text.size() - begin;
}

}  // namespace thermocline::text
