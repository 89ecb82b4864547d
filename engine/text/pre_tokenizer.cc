#include "engine/text/pre_tokenizer.h"

#include <unicode/uchar.h>
#include <unicode/uregex.h>
#include <unicode/utf16.h>

#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/interruption.h"
#include "engine/model/pre_tokenizers.h"

namespace thermocline::text {
namespace {

// ICU's \s is [\t\n\f\r\p{Z}]; the engines that these patterns were written for use White_Space.
std::string WithUnicodeSpaces(std::string pattern) {
  for (const auto& [from, to] :
       {std::pair{"\\s", "\\p{White_Space}"}, std::pair{"\\S", "\\P{White_Space}"}}) {
    for (std::size_t at = pattern.find(from); at != std::string::npos;
         at = pattern.find(from, at + 1))
      pattern.replace(at, 2, to);
  }
  return pattern;
}

// Text in UTF-16, with the byte offset of each code unit's character.
struct Utf16Text {
  std::u16string units;
  std::vector<std::size_t> byte_offsets;  // [units + 1]
};

Utf16Text ToUtf16(std::string_view text) {
  Utf16Text out;
  out.units.reserve(text.size());
  out.byte_offsets.reserve(text.size() + 1);
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const char32_t c = base::DecodeUtf8(text, pos);
    if (c >= 0x10000) {
      out.units.push_back(static_cast<char16_t>(0xD7C0 + (c >> 10)));
      out.units.push_back(static_cast<char16_t>(0xDC00 + (c & 0x3FF)));
      out.byte_offsets.push_back(begin);
    } else {
      out.units.push_back(static_cast<char16_t>(c));
    }
    out.byte_offsets.push_back(begin);
  }
  out.byte_offsets.push_back(text.size());
  return out;
}

struct Span {
  int begin, end;  // code units
};

struct RegexCloser {
  void operator()(URegularExpression* regex) const { uregex_close(regex); }
};
using Regex = std::unique_ptr<URegularExpression, RegexCloser>;

void AppendMatches(URegularExpression* regex, const Utf16Text& text, Span piece,
                   std::vector<Span>& out) {
  UErrorCode error = U_ZERO_ERROR;
  uregex_setText(regex, text.units.data() + piece.begin, piece.end - piece.begin, &error);
  int done = piece.begin;
  while (!base::Interrupted() && uregex_findNext(regex, &error) && U_SUCCESS(error)) {
    const Span match{piece.begin + uregex_start(regex, 0, &error),
                     piece.begin + uregex_end(regex, 0, &error)};
    if (match.begin == match.end) continue;
    if (match.begin > done) out.push_back({done, match.begin});
    out.push_back(match);
    done = match.end;
  }
  if (done < piece.end) out.push_back({done, piece.end});
}

void CutTrailingSpace(const Utf16Text& text, Span piece, std::vector<Span>& out) {
  int begin = piece.end;
  while (begin > piece.begin && u_isUWhiteSpace(text.units[begin - 1]) != 0) --begin;
  if (piece.begin < begin) out.push_back({piece.begin, begin});
  if (begin < piece.end) out.push_back({begin, piece.end});
}

// Cuts a piece of characters of the categories `types` (ICU's mask) before every third one from its
// end. Other pieces stay.
void CutDigits(std::uint32_t types, const Utf16Text& text, Span piece, std::vector<Span>& out) {
  std::vector<int> begins;  // of the digits, and the end
  for (int at = piece.begin; at < piece.end;) {
    begins.push_back(at);
    UChar32 c = 0;
    U16_NEXT(text.units.data(), at, piece.end, c);
    if ((U_GET_GC_MASK(c) & types) == 0) return out.push_back(piece);
  }
  const std::size_t digits = begins.size();
  begins.push_back(piece.end);
  for (std::size_t at = 0; at < digits;) {
    const std::size_t end = at + 1 + (digits - at - 1) % 3;
    out.push_back({begins[at], begins[end]});
    at = end;
  }
}

// A pattern that is applied; no regular expression: CutTrailingSpace.
struct Step {
  Regex regex;
  std::uint32_t cut_types = 0;  // for CutDigits; 0: nothing is cut
};

class RegexPreTokenizer final : public PreTokenizer {
 public:
  RegexPreTokenizer(std::vector<Step> steps, bool ignore_merges)
      : steps_(std::move(steps)), ignore_merges_(ignore_merges) {}

  std::vector<std::string_view> Split(std::string_view text) const override {
    const Utf16Text wide = ToUtf16(text);
    std::vector<Span> pieces;
    if (!text.empty()) pieces.push_back({0, base::IntSize(wide.units)});
    for (const Step& step : steps_) Apply(step, wide, pieces);
    std::vector<std::string_view> out;
    out.reserve(pieces.size());
    for (const Span piece : pieces) {
      const std::size_t begin = wide.byte_offsets[piece.begin];
      out.push_back(text.substr(begin, wide.byte_offsets[piece.end] - begin));
    }
    return out;
  }
  bool ignore_merges() const override { return ignore_merges_; }

 private:
  static void Apply(const Step& step, const Utf16Text& text, std::vector<Span>& pieces) {
    std::vector<Span> cut;
    if (step.regex == nullptr) {
      for (const Span piece : pieces) CutTrailingSpace(text, piece, cut);
    } else {
      UErrorCode error = U_ZERO_ERROR;
      const Regex mine(uregex_clone(step.regex.get(), &error));  // a matcher holds state; clones
                                                                 // share the program
      for (const Span piece : pieces) AppendMatches(mine.get(), text, piece, cut);
    }
    pieces.swap(cut);
    if (step.cut_types == 0) return;
    cut.clear();
    for (const Span piece : pieces) CutDigits(step.cut_types, text, piece, cut);
    pieces.swap(cut);
  }

  std::vector<Step> steps_;
  bool ignore_merges_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(const std::string& name) {
  for (const model::PreTokenizerRecipe& recipe : model::PreTokenizerRecipes()) {
    const bool named = std::any_of(recipe.names.begin(), recipe.names.end(),
                                   [&](const char* n) { return name == n; });
    if (!named) continue;
    std::vector<Step> steps;
    for (const char* pattern : recipe.patterns) {
      const std::string_view form = pattern;
      if (form == model::kTrailingSpace) {
        steps.emplace_back();
        continue;
      }
      const Utf16Text wide = ToUtf16(WithUnicodeSpaces(pattern));
      UErrorCode error = U_ZERO_ERROR;
      UParseError where;
      Regex regex(uregex_open(wide.units.data(), base::IntSize(wide.units), 0, &where, &error));
      if (U_FAILURE(error))
        return base::Internal("pre-tokenizer '", name, "': pattern ", pattern, ": ",
                              u_errorName(error));
      steps.push_back({std::move(regex), form == model::kDigitGroups    ? U_GC_ND_MASK
                                         : form == model::kNumberGroups ? U_GC_N_MASK
                                                                        : 0});
    }
    return std::unique_ptr<PreTokenizer>(
        new RegexPreTokenizer(std::move(steps), recipe.ignore_merges));
  }
  return base::Unimplemented("pre-tokenizer '", name, "' (tokenizer.ggml.pre) is not supported");
}

}  // namespace thermocline::text
