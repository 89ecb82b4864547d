#include "engine/text/unicode_text.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "engine/base/bytes.h"
#include "engine/base/check.h"
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
  icu::UnicodeString wide = icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
  for (const Normalization form : forms) {
    UErrorCode error = U_ZERO_ERROR;
    wide =
        form == Normalization::kLowercase ? Lowercase(wide) : FormOf(form).normalize(wide, error);
    CHECK(U_SUCCESS(error));
  }
  std::string out;
  return wide.toUTF8String(out);
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
