#include "engine/grammar/json_strings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/bytes.h"
#include "engine/grammar/regex.h"

namespace thermocline::grammar {
namespace {

// A name has at most 253 characters in all (RFC 1123): so many in its first label, and 38 with each
// point behind it.
constexpr char kShortLabel[] = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,35}[A-Za-z0-9])?";
constexpr char kLabel[] = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr char kLeapYear[] =
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
constexpr char kDays[] =
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))";
// A leap second occurs in the last minute of a UTC day; other time zones are not supported.
constexpr char kTime[] =
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,18})?"
    "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|23:59:60(?:\\.[0-9]{1,18})?(?:[Zz]|[+-]00:00))";
constexpr char kClock[] =
    "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)";
constexpr char kByte[] = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

std::string Date() { return StrCat("(?:[0-9]{4}-", kDays, "|", kLeapYear, "-02-29)"); }

std::string Ipv4() { return StrCat(kByte, "(?:\\.", kByte, "){3}"); }

// Eight groups, the last two of which may be an IPv4 address, or fewer with "::" for the rest.
// Source: RFC 3986, IPv6address.
std::string Ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}", v4 = Ipv4();
  std::string out = StrCat("(?:", h, ":){7}", h, "|(?:", h, ":){6}", v4, "|(?:", h, ":){7}:");
  for (int before = 0; before <= 6; ++before) {
    const std::string lead =
        before == 0 ? std::string("::") : StrCat(h, "(?::", h, "){", before - 1, "}::");
    out += StrCat("|", lead, "(?:", h, "(?::", h, "){0,", 6 - before, "})?");
    if (before <= 5) out += StrCat("|", lead, "(?:", h, ":){0,", 5 - before, "}", v4);
  }
  return out;
}

// Source: RFC 3986. Its parts are bounded, because small models would not end them: at more
// characters than programs write.
std::string Uri(bool relative) {
  const std::string plain = "A-Za-z0-9._~!$&'()*+,;=", escape = "%[0-9A-Fa-f][0-9A-Fa-f]";
  const auto some = [&](const char* more, const char* count) {
    return StrCat("(?:[", plain, more, "-]|", escape, "){", count, "}");
  };
  const std::string host = StrCat("(?:\\[(?:", Ipv6(), ")\\]|", some("", "0,253"), ")");
  const std::string authority = StrCat("//(?:", some(":", "0,64"), "@)?", host, "(?::[0-9]{0,5})?");
  const std::string rest = some(":@/", "0,512"), begin = some(":@", "1");
  const std::string behind_host = StrCat("(?:/", rest, ")?"),
                    rooted = StrCat("/(?:", begin, rest, ")?");
  const std::string tail =
      StrCat("(?:\\?", some(":@/?", "0,512"), ")?(?:#", some(":@/?", "0,128"), ")?");
  std::string absolute = StrCat("[A-Za-z][A-Za-z0-9+.-]{0,31}:(?:", authority, behind_host, "|",
                                rooted, "|", begin, rest, ")?", tail);
  if (!relative) return absolute;
  const std::string first = some("@", "1,512");  // no colon
  return StrCat("(?:", absolute, "|(?:", authority, behind_host, "|", rooted, "|", first, "(?:/",
                rest, ")?)?", tail, ")");
}

std::string Duration() {
  const std::string day = "[0-9]{1,9}D", month = "[0-9]{1,9}M(?:" + day + ")?";
  return "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:" + month + ")?|" + month + "|" + day + ")(?:" + kClock +
         ")?|" + kClock + ")";
}

Result<Nfa> SearchOf(const std::string& pattern, Budget& budget) {
  ASSIGN_OR_RETURN(const Expression expression, ParseRegex(pattern));
  Nfa nfa;
  const int before = nfa.AddState(), begin = nfa.AddState(), end = nfa.AddState();
  const CodePointSet any{{0, kCodePointMax}};
  nfa.Link(Nfa::kStart, begin);
  nfa.AddSet(Nfa::kStart, any, before);
  nfa.AddSet(before, any, before);
  nfa.Link(before, begin);
  RETURN_IF_ERROR(Emit(expression, begin, nfa, end, budget));
  nfa.AddSet(end, any, end);
  nfa.Link(end, Nfa::kFinal);
  return nfa;
}

Nfa Lengths(std::int64_t min, std::int64_t max) {
  Nfa nfa;
  const CodePointSet any{{0, kCodePointMax}};
  int at = Nfa::kStart;
  for (std::int64_t i = 0; i < std::max(min, max); ++i) {
    const int next = nfa.AddState();
    nfa.AddSet(at, any, next);
    if (i >= min) nfa.Link(at, Nfa::kFinal);
    at = next;
  }
  if (max < 0) nfa.AddSet(at, any, at);
  nfa.Link(at, Nfa::kFinal);
  return nfa;
}

// The escape of a byte that a JSON string must escape.
std::string EscapeOf(std::uint8_t byte) {
  static constexpr std::pair<char, char> kShort[] = {
      {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  for (const auto& [character, letter] : kShort)
    if (byte == static_cast<std::uint8_t>(character)) return std::string("\\") + letter;
  constexpr char kHex[] = "0123456789abcdef";
  return std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
}

// One character as JSON strings spell it; counted characters are without \uHHHH, which would add
// many states to each.
void AddCharacter(int from, bool counted, Nfa& nfa, int to) {
  nfa.AddSet(from, {{0x20, '!'}, {'#', '['}, {']', kCodePointMax}}, to);
  const int escape = nfa.AddState();
  nfa.AddByte(from, '\\', '\\', escape);
  for (const char c : std::string_view("\"\\/bfnrt")) nfa.AddByte(escape, c, c, to);
  if (counted) return;
  const auto hex = [&nfa](int at, std::string_view digits, int next) {
    for (const char c : digits) nfa.AddByte(at, c, c, next);
  };
  constexpr std::string_view kAll = "0123456789abcdefABCDEF";
  const auto tail = [&](int at, int count, int end) {
    for (; count > 0; --count) {
      const int next = count == 1 ? end : nfa.AddState();
      hex(at, kAll, next);
      at = next;
    }
  };
  // \uHHHH: not a surrogate, or two that form a pair.
  const int u = nfa.AddState(), other = nfa.AddState(), d = nfa.AddState(), high = nfa.AddState();
  nfa.AddByte(escape, 'u', 'u', u);
  hex(u, "0123456789abcefABCEF", other);
  tail(other, 3, to);
  hex(u, "dD", d);
  const int low_d = nfa.AddState();
  hex(d, "01234567", low_d);
  tail(low_d, 2, to);
  hex(d, "89abAB", high);
  const int paired = nfa.AddState(), low = nfa.AddState(), low_high = nfa.AddState();
  tail(high, 2, paired);
  const int again = nfa.Literal(paired, "\\u");
  hex(again, "dD", low);
  hex(low, "cdefCDEF", low_high);
  tail(low_high, 2, to);
}

// Between `min` and `max` characters; `max` -1: any number.
void AddCharacters(int min, int max, int from, Nfa& nfa, int to) {
  int at = from;
  for (int i = 0; i < std::max(min, max); ++i) {
    if (i >= min) nfa.Link(at, to);
    const int next = nfa.AddState();
    AddCharacter(at, true, nfa, next);
    at = next;
  }
  if (max < 0) {
    const int loop = nfa.AddState();
    nfa.Link(at, loop);
    AddCharacter(loop, min > 0, nfa, loop);
    at = loop;
  }
  nfa.Link(at, to);
}

// The contents with `escape(byte)` for each byte that has one; "" stands for the byte itself.
template <typename Escape>
void AddSpelled(const Dfa& content, const Escape& escape, int from, Nfa& nfa, int to) {
  std::vector<int> at;
  at.reserve(content.states.size());
  for (int i = 0; i < content.num_states(); ++i) at.push_back(nfa.AddState());
  nfa.Link(from, at[0]);
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (content.states[i].accepting) nfa.Link(at[i], to);
    for (const ByteEdge& edge : content.states[i].bytes) {
      for (int lo = edge.lo; lo <= edge.hi;) {
        if (const std::string escaped = escape(lo); !escaped.empty()) {
          nfa.Link(nfa.Literal(at[i], escaped), at[edge.to]);
          ++lo;
          continue;
        }
        int hi = lo;
        while (hi < edge.hi && escape(hi + 1).empty()) ++hi;
        nfa.AddByte(at[i], static_cast<std::uint8_t>(lo), static_cast<std::uint8_t>(hi),
                    at[edge.to]);
        lo = hi + 1;
      }
    }
  }
}

}  // namespace

Result<std::string> PatternOfFormat(const std::string& format) {
  const std::string atext = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";           // RFC 5322
  const std::string quoted = "\"(?:[ !#-\\[\\]-~]|\\\\[ -~]){1,62}\"";  // RFC 5321
  const std::string hosts = StrCat(kLabel, "(?:\\.", kShortLabel, "){0,5}");
  const std::map<std::string, std::string> patterns = {
      {"date", Date()},
      {"time", kTime},
      {"date-time", StrCat(Date(), "[Tt]", kTime)},
      {"duration", Duration()},
      {"email", StrCat("(?:", atext, "(?:\\.?", atext, "){0,63}|", quoted, ")@(?:", hosts,
                       "|\\[(?:", Ipv4(), "|IPv6:", Ipv6(), ")\\])")},
      {"hostname", hosts},
      {"ipv4", Ipv4()},
      {"ipv6", Ipv6()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"uri", Uri(false)},
      {"uri-reference", Uri(true)},
      {"json-pointer", "(?:/(?:[^~]|~[01]){0,512})?"}};
  if (const auto found = patterns.find(format); found != patterns.end())
    return StrCat("^(?:", found->second, ")$");
  for (const char* other :
       {"int32", "int64", "float", "double", "byte", "binary", "password", "color", "textarea"})
    if (format == other) return std::string();
  std::string known;
  for (const auto& [each, pattern] : patterns) known += (known.empty() ? "" : ", ") + each;
  return base::Unimplemented("format '", base::Shorten(format, 64),
                             "' is not supported; there are ", known);
}

Result<Dfa> ContentOfPattern(const std::string& pattern, Budget& budget) {
  ASSIGN_OR_RETURN(const Nfa nfa, SearchOf(pattern, budget));
  ASSIGN_OR_RETURN(const Dfa dfa, MakeDeterministic(nfa, budget, true));
  return Trimmed(dfa);
}

Result<Dfa> ContentOf(const StringBounds& bounds, Budget& budget) {
  if (bounds.min_length > kLengthsMax || bounds.max_length > kLengthsMax)
    return base::Unimplemented("lengths above ", kLengthsMax,
                               " are not supported together with a pattern or a format, nor as "
                               "minLength");
  ASSIGN_OR_RETURN(Dfa content,
                   MakeDeterministic(Lengths(bounds.min_length, bounds.max_length), budget, true));
  std::vector<std::string> patterns = bounds.patterns;
  for (const std::string& format : bounds.formats) {
    ASSIGN_OR_RETURN(std::string pattern, PatternOfFormat(format));
    if (!pattern.empty()) patterns.push_back(std::move(pattern));
  }
  for (const std::string& pattern : patterns) {
    ASSIGN_OR_RETURN(const Dfa found, ContentOfPattern(pattern, budget));
    ASSIGN_OR_RETURN(content, Intersection(found, content, budget));
  }
  if (IsEmpty(content))
    return base::InvalidArgument("no string satisfies pattern, format and lengths together");
  return content;
}

Result<Dfa> ContentWithout(const std::vector<std::string>& without, Budget& budget) {
  ASSIGN_OR_RETURN(const Dfa all, MakeDeterministic(Lengths(0, -1), budget, true));
  Nfa names;
  for (const std::string& name : without) {
    const int begin = names.AddState();
    names.Link(Nfa::kStart, begin);
    names.Link(names.Literal(begin, name), Nfa::kFinal);
  }
  ASSIGN_OR_RETURN(const Dfa taken, MakeDeterministic(names, budget, true));
  return Difference(all, taken, budget);
}

void AddEscaped(const Dfa& content, char quote, int from, Nfa& nfa, int to) {
  const auto escape = [quote](int byte) -> std::string {
    if (byte == base::ByteOf(quote) || byte == '\\') return {'\\', static_cast<char>(byte)};
    if (byte == '\n') return "\\n";
    if (byte == '\t') return "\\t";
    return byte == '\r' ? "\\r" : "";
  };
  AddSpelled(content, escape, from, nfa, to);
}

void AddQuoted(const Dfa& content, int from, Nfa& nfa, int to) {
  const int open = nfa.AddState(), close = nfa.AddState();
  nfa.AddByte(from, '"', '"', open);
  nfa.AddByte(close, '"', '"', to);
  const auto escape = [](int byte) {
    return byte < 0x20 || byte == '"' || byte == '\\' ? EscapeOf(static_cast<std::uint8_t>(byte))
                                                      : std::string();
  };
  AddSpelled(content, escape, open, nfa, close);
}

void AddAnyString(int from, Nfa& nfa, int to) {
  const int open = nfa.AddState(), close = nfa.AddState();
  nfa.AddByte(from, '"', '"', open);
  AddCharacters(0, -1, open, nfa, close);
  nfa.AddByte(close, '"', '"', to);
}

void AddCountedString(int min, int max, int from, Nfa& nfa, int to) {
  const int open = nfa.AddState(), close = nfa.AddState();
  nfa.AddByte(from, '"', '"', open);
  AddCharacters(min, max, open, nfa, close);
  nfa.AddByte(close, '"', '"', to);
}

void MakeBlock(Nfa& nfa) { AddCharacters(kBlockChars, kBlockChars, Nfa::kStart, nfa, Nfa::kFinal); }
void MakeRest(Nfa& nfa) { AddCharacters(0, kBlockChars - 1, Nfa::kStart, nfa, Nfa::kFinal); }

// The minimum as whole blocks and single characters; then whole blocks, in parallel with a shorter
// rest.
void AddLongString(std::int64_t min, std::int64_t max, const BlockRules& rules, int from, Nfa& nfa,
                   int to) {
  const int open = nfa.AddState(), close = nfa.AddState();
  nfa.AddByte(from, '"', '"', open);
  nfa.AddByte(close, '"', '"', to);
  int at = open;
  const auto next = [&] {
    const int state = nfa.AddState();
    nfa.Call(at, rules.block, state);
    at = state;
  };
  for (std::int64_t left = min; left >= kBlockChars; left -= kBlockChars) next();
  const int singles = static_cast<int>(min % kBlockChars), enough = nfa.AddState();
  AddCharacters(singles, singles, at, nfa, enough);
  at = enough;
  if (max < 0) return AddCharacters(0, -1, at, nfa, close);
  for (std::int64_t left = max - min; left >= kBlockChars; left -= kBlockChars) {
    nfa.Call(at, rules.rest, close);
    next();
  }
  AddCharacters(0, static_cast<int>((max - min) % kBlockChars), at, nfa, close);
}

}  // namespace thermocline::grammar
