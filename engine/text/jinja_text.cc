#include "engine/text/jinja_text.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <bitset>
#include <cstring>

namespace thermocline::text::jinja {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";
constexpr std::size_t kReplacedBytesMax = std::size_t{16} << 20;

// Maps each character; invalid UTF-8 bytes are kept.
template <typename Map>
TemplateText MapCharacters(const TemplateText& text, const Map& map) {
  TemplateText out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const char32_t c = base::DecodeUtf8(text.bytes(), pos);
    std::string mapped;
    if (c == 0xFFFD)
      mapped = text.bytes().substr(begin, pos - begin);
    else
      base::AppendUtf8(mapped, static_cast<char32_t>(map(static_cast<UChar32>(c))));
    out.Append(mapped, text.IsOwn(begin, pos));
  }
  return out;
}

std::string_view HtmlOf(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&#34;";
    case '\'':
      return "&#39;";
    default:
      return "";
  }
}

// A set of bytes.
class ByteSet {
 public:
  explicit ByteSet(std::string_view bytes) {
    for (const char c : bytes) has_.set(static_cast<unsigned char>(c));
  }
  bool Has(char c) const { return has_.test(static_cast<unsigned char>(c)); }

 private:
  std::bitset<256> has_;
};

}  // namespace

std::size_t FindText(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string::npos;
  const void* found =  // glibc's, by Crochemore and Perrin's two-way search
      ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string::npos : static_cast<const char*>(found) - text.data();
}

std::size_t FindLastText(std::string_view text, std::string_view needle) {
  constexpr std::size_t kBytesOfStep = 64;
  if (!WalkMeter::Walk(text.size() / kBytesOfStep * std::min(needle.size(), text.size())))
    return std::string::npos;
  return text.rfind(needle);
}

TemplateText Strip(const TemplateText& text, const std::string* characters, bool left, bool right) {
  const ByteSet set(characters != nullptr ? std::string_view(*characters) : kWhiteSpace);
  const auto stays = [&set](char c) { return !set.Has(c); };
  const std::string& bytes = text.bytes();
  const std::size_t begin =
      left ? std::find_if(bytes.begin(), bytes.end(), stays) - bytes.begin() : 0;
  if (begin == bytes.size()) return {};
  const std::size_t last =
      right ? bytes.rend() - std::find_if(bytes.rbegin(), bytes.rend(), stays) - 1
            : text.size() - 1;
  if (right && last == std::string::npos) return {};
  return text.Part(begin, last + 1);
}

TextParts SplitAt(const TemplateText& text, const std::string& separator, std::int64_t count_max,
                  bool from_right) {
  std::vector<std::size_t, CountedAllocator<std::size_t>> cuts;
  for (std::size_t at = FindText(text.bytes(), separator); at != std::string::npos;
       at = FindText(text.bytes(), separator, at + separator.size()))
    cuts.push_back(at);
  if (count_max >= 0 && std::ssize(cuts) > count_max) {
    if (from_right)
      cuts.erase(cuts.begin(), cuts.end() - count_max);
    else
      cuts.resize(count_max);
  }
  TextParts out;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    out.push_back(text.Part(begin, cut));
    begin = cut + separator.size();
  }
  out.push_back(text.Part(begin, text.size()));
  return out;
}

TextParts SplitWords(const TemplateText& whole, std::int64_t count_max) {
  const std::string& text = whole.bytes();
  TextParts out;
  std::size_t pos = text.find_first_not_of(kWhiteSpace);
  while (pos != std::string::npos) {
    const bool last = count_max >= 0 && std::ssize(out) == count_max;
    const std::size_t end = last ? text.find_last_not_of(kWhiteSpace) + 1
                                 : std::min(text.find_first_of(kWhiteSpace, pos), text.size());
    out.push_back(whole.Part(pos, end));
    pos = last ? std::string::npos : text.find_first_not_of(kWhiteSpace, end);
  }
  return out;
}

Result<Value> ReplaceText(const TemplateText& text, const std::string& from, const TemplateText& to,
                          std::int64_t count_max) {
  if (from.empty())
    return base::Unimplemented("replace() of an empty text is not supported in chat templates");
  TemplateText out;
  std::size_t begin = 0;
  for (std::int64_t count = 0; count_max < 0 || count < count_max; ++count) {
    const std::size_t at = FindText(text.bytes(), from, begin);
    if (at == std::string::npos) break;
    out.AppendPart(text, begin, at);
    out.Append(to);
    begin = at + from.size();
    if (out.size() > kReplacedBytesMax)
      return base::ResourceExhausted("replace() makes more than ", kReplacedBytesMax, " bytes");
  }
  out.AppendPart(text, begin, text.size());
  return Value(std::move(out));
}

TemplateText EscapeHtml(const Value& value) {
  TemplateText text = value.ToText();
  if (value.is_markup()) return text;
  TemplateText out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view escaped = HtmlOf(text.bytes()[at]);
    if (escaped.empty()) continue;
    out.AppendPart(text, begin, at);
    out.Append(escaped, text.IsOwn(at, at + 1));
    begin = at + 1;
  }
  out.AppendPart(text, begin, text.size());
  return out;
}

TemplateText Upper(const TemplateText& text) { return MapCharacters(text, u_toupper); }
TemplateText Lower(const TemplateText& text) { return MapCharacters(text, u_tolower); }

TemplateText Title(const TemplateText& text) {
  bool in_word = false;
  return MapCharacters(text, [&](UChar32 c) {
    const UChar32 mapped = in_word ? u_tolower(c) : u_totitle(c);
    in_word = u_isalpha(c) != 0;
    return mapped;
  });
}

TemplateText Capitalize(const TemplateText& text) {
  bool first = true;
  return MapCharacters(text, [&](UChar32 c) {
    const UChar32 mapped = first ? u_totitle(c) : u_tolower(c);
    first = false;
    return mapped;
  });
}

}  // namespace thermocline::text::jinja
