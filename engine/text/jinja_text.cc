#include "engine/text/jinja_text.h"

#include <unicode/uchar.h>

#include <algorithm>

namespace thermocline::text::jinja {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";
constexpr std::size_t kReplacedBytesMax = std::size_t{16} << 20;

// Maps each character; bytes that are no UTF-8 stay.
template <typename Map>
std::string MapCharacters(std::string_view text, const Map& map) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const char32_t c = base::DecodeUtf8(text, pos);
    if (c == 0xFFFD)
      out.append(text.substr(begin, pos - begin));
    else
      base::AppendUtf8(out, static_cast<char32_t>(map(static_cast<UChar32>(c))));
  }
  return out;
}

}  // namespace

std::string Strip(std::string_view text, const std::string* characters, bool left, bool right) {
  const std::string_view set = characters != nullptr ? std::string_view(*characters) : kWhiteSpace;
  const std::size_t begin = left ? text.find_first_not_of(set) : 0;
  if (begin == std::string_view::npos) return "";
  const std::size_t end = right ? text.find_last_not_of(set) : text.size() - 1;
  return end == std::string_view::npos || text.empty()
             ? ""
             : std::string(text.substr(begin, end - begin + 1));
}

std::vector<std::string> SplitAt(const std::string& text, const std::string& separator,
                                 std::int64_t count_max, bool from_right) {
  std::vector<std::size_t> cuts;
  for (std::size_t at = text.find(separator); at != std::string::npos;
       at = text.find(separator, at + separator.size()))
    cuts.push_back(at);
  if (count_max >= 0 && static_cast<std::int64_t>(cuts.size()) > count_max) {
    if (from_right)
      cuts.erase(cuts.begin(), cuts.end() - count_max);
    else
      cuts.resize(count_max);
  }
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    out.push_back(text.substr(begin, cut - begin));
    begin = cut + separator.size();
  }
  out.push_back(text.substr(begin));
  return out;
}

std::vector<std::string> SplitWords(const std::string& text, std::int64_t count_max) {
  std::vector<std::string> out;
  std::size_t pos = text.find_first_not_of(kWhiteSpace);
  while (pos != std::string::npos) {
    const bool last = count_max >= 0 && static_cast<std::int64_t>(out.size()) == count_max;
    const std::size_t end = last ? text.find_last_not_of(kWhiteSpace) + 1
                                 : std::min(text.find_first_of(kWhiteSpace, pos), text.size());
    out.push_back(text.substr(pos, end - pos));
    pos = last ? std::string::npos : text.find_first_not_of(kWhiteSpace, end);
  }
  return out;
}

Result<Value> ReplaceText(const std::string& text, const std::string& from, const std::string& to,
                          std::int64_t count_max) {
  if (from.empty())
    return base::Unimplemented("replace() of an empty text is not supported in chat templates");
  std::string out;
  std::size_t begin = 0;
  for (std::int64_t count = 0; count_max < 0 || count < count_max; ++count) {
    const std::size_t at = text.find(from, begin);
    if (at == std::string::npos) break;
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
    if (out.size() > kReplacedBytesMax)
      return base::ResourceExhausted("replace() makes more than ", kReplacedBytesMax, " bytes");
  }
  return Value(out.append(text, begin));
}

std::string EscapeHtml(const Value& value) {
  if (value.is_markup()) return value.as_string();
  std::string out;
  for (const char c : value.ToString()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string Upper(std::string_view text) { return MapCharacters(text, u_toupper); }
std::string Lower(std::string_view text) { return MapCharacters(text, u_tolower); }

std::string Title(std::string_view text) {
  bool in_word = false;
  return MapCharacters(text, [&](UChar32 c) {
    const UChar32 mapped = in_word ? u_tolower(c) : u_totitle(c);
    in_word = u_isalpha(c) != 0;
    return mapped;
  });
}

std::string Capitalize(std::string_view text) {
  bool first = true;
  return MapCharacters(text, [&](UChar32 c) {
    const UChar32 mapped = first ? u_totitle(c) : u_tolower(c);
    first = false;
    return mapped;
  });
}

}  // namespace thermocline::text::jinja
