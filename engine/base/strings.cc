#include "engine/base/strings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/index.h"

namespace thermocline::base {

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string NearestName(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  int best_distance = base::IntSize(name) / 4 + 2;
  for (const std::string& candidate : candidates) {
    const int distance = candidate.starts_with(name) ? 1 : EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string HumanBytes(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kUnits[unit]);
  return buffer;
}

namespace {

// The meaning of a lead byte: the number of continuation bytes, and the range of the first of them
// (which excludes overlong forms, surrogates and values above U+10FFFF).
struct LeadByte {
  int continuation = -1;
  unsigned char low = 0x80, high = 0xBF;
};

LeadByte ClassifyLead(unsigned char byte) {
  if (byte < 0x80) return {0};
  if (byte >= 0xC2 && byte <= 0xDF) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {};
}

// Length of the longest valid prefix of a sequence at `pos`; `complete` is set if it is a whole
// sequence.
int ValidPrefix(std::string_view text, std::size_t pos, bool& complete) {
  const LeadByte lead = ClassifyLead(text[pos]);
  complete = lead.continuation == 0;
  if (lead.continuation <= 0) return 1;
  int length = 1;
  for (int i = 1; i <= lead.continuation; ++i) {
    const std::size_t at = pos + i;
    if (at >= text.size()) return length;
    const unsigned char byte = text[at];
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return length;
    ++length;
  }
  complete = true;
  return length;
}

}  // namespace

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    bool complete = false;
    const int length = ValidPrefix(text, pos, complete);
    if (complete) {
      out.append(text.substr(pos, length));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    pos += length;
  }
  return out;
}

int IncompleteUtf8Suffix(std::string_view text) {
  const int longest = static_cast<int>(std::min<std::size_t>(3, text.size()));
  for (int back = 1; back <= longest; ++back) {
    const std::size_t pos = text.size() - back;
    const LeadByte lead = ClassifyLead(text[pos]);
    if (lead.continuation < 0) continue;
    bool complete = false;
    const int valid = ValidPrefix(text, pos, complete);
    return !complete && valid == back ? back : 0;
  }
  return 0;
}

char32_t DecodeUtf8(std::string_view text, std::size_t& pos) {
  bool complete = false;
  const int length = ValidPrefix(text, pos, complete);
  if (!complete) {
    ++pos;
    return 0xFFFD;
  }
  const unsigned char first = text[pos];
  char32_t value = length == 1 ? first : first & (0x7FU >> length);
  for (int i = 1; i < length; ++i) {
    value = (value << 6) | (base::ByteOf(text[pos + i]) & 0x3FU);
  }
  pos += length;
  return value;
}

void AppendUtf8(std::string& out, char32_t code_point) {
  const auto push = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | (code_point >> 12));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | (code_point >> 18));
    push(0x80 | ((code_point >> 12) & 0x3F));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

std::string EscapeControls(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = DecodeUtf8(text, at);
    const bool obeyed = c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x61C || c == 0x200E ||
                        c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    if (!obeyed) {
      AppendUtf8(out, c);
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c) & 0xFFFFU);
    out += escape;
  }
  return out;
}

std::optional<std::int64_t> ParseBytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ') unit.push_back(static_cast<char>(std::toupper(base::ByteOf(*c))));
  }
  constexpr std::string_view kUnits = "KMGT";
  if (!unit.empty() && kUnits.find(unit[0]) != std::string_view::npos) {
    value *= std::exp2(10.0 * static_cast<double>(kUnits.find(unit[0]) + 1));
    unit.erase(0, 1);
    if (unit == "IB") unit.clear();
  }
  if (!unit.empty() && unit != "B") return std::nullopt;
  if (value >= 9.2e18) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string Shorten(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  text = text.substr(0, bytes_max);
  text.remove_suffix(IncompleteUtf8Suffix(text));
  return std::string(text) + "...";
}

}  // namespace thermocline::base
