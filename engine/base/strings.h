// Small string helpers: StrCat for messages, checked number parsing, nearest name for "did you
// mean".
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace thermocline::base {

namespace internal {
inline void AppendPiece(std::string& out, std::string_view piece) { out.append(piece); }
inline void AppendPiece(std::string& out, char piece) { out.push_back(piece); }
template <typename T>
requires std::is_same_v<T, bool>
void AppendPiece(std::string& out, T piece) { out.append(piece ? "true" : "false"); }
template <typename T>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, char> &&
         !std::is_same_v<T, bool>) void AppendPiece(std::string& out, T piece) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), piece);
  out.append(buffer, result.ptr);
}
}  // namespace internal

// Joins strings and numbers into one message.
template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string out;
  (internal::AppendPiece(out, pieces), ...);
  return out;
}

// The whole of `text` as a number, or nullopt: no leading plus sign, no trailing characters.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// Edit distance (Levenshtein) between two short names.
int EditDistance(std::string_view a, std::string_view b);

// The candidate that begins with `name`, or that is near enough to it for a typing error; else "".
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

// `bytes` as "1.5 GiB", for people.
std::string HumanBytes(double bytes);
std::string HumanBytes(std::integral auto bytes) { return HumanBytes(static_cast<double>(bytes)); }
// "8GiB", "512 MB", "1.5g", "4096" as bytes; K, M, G and T are powers of 1024, with or without iB.
// Returns nullopt if the text is not a size or exceeds 63 bits.
std::optional<std::int64_t> ParseBytes(std::string_view text);

// Replaces every ill-formed UTF-8 sequence by U+FFFD (one per maximal subpart, as WHATWG decoders
// do).
std::string ReplaceInvalidUtf8(std::string_view text);

// `text` with JSON escapes for each character that a terminal interprets, or shows at another
// place: control characters (C0, DEL, C1), direction marks and line separators. Ill-formed UTF-8
// becomes U+FFFD.
std::string EscapeControls(std::string_view text);

// Number of bytes at the end of `text` that begin a UTF-8 character but do not complete it (0 to
// 3).
int IncompleteUtf8Suffix(std::string_view text);
// Returns `text`, or, if it is longer than `bytes_max` bytes, its beginning (whole characters) and
// "...".
std::string Shorten(std::string_view text, std::size_t bytes_max);

// Decodes the code point at `text[pos]`, moving `pos` past it; U+FFFD and one byte further if
// ill-formed.
char32_t DecodeUtf8(std::string_view text, std::size_t& pos);
void AppendUtf8(std::string& out, char32_t code_point);

}  // namespace thermocline::base

namespace thermocline {
using base::StrCat;
}
