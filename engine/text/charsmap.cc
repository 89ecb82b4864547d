#include "engine/text/charsmap.h"

#include <bit>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/interruption.h"

namespace thermocline::text {
namespace {

// The parts of a unit of the double array.
bool HasLeaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t ValueOf(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t LabelOf(std::uint32_t unit) { return unit & 0x800000FF; }
std::uint32_t OffsetOf(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Result<Charsmap> Charsmap::Parse(std::string_view blob) {
  static_assert(std::endian::native == std::endian::little);
  Charsmap out;
  if (blob.empty()) return out;
  std::uint32_t bytes = 0;
  if (blob.size() >= sizeof(bytes)) std::memcpy(&bytes, blob.data(), sizeof(bytes));
  blob.remove_prefix(std::min(blob.size(), sizeof(bytes)));
  if (bytes == 0 || bytes % sizeof(std::uint32_t) != 0 || bytes > blob.size())
    return base::DataLoss("the tokenizer's precompiled map says that its trie has ", bytes,
                          " bytes, of ", blob.size());
  out.units_.resize(bytes / sizeof(std::uint32_t));
  std::memcpy(out.units_.data(), blob.data(), bytes);
  out.texts_ = blob.substr(bytes);
  return out;
}

std::size_t Charsmap::Match(std::string_view text, std::string_view& by) const {
  if (units_.empty()) return 0;
  std::size_t longest = 0;
  std::uint32_t at = OffsetOf(units_[0]);
  for (std::size_t size = 0; size < text.size();) {
    const std::uint8_t byte = base::ByteOf(text[size]);
    at ^= byte;
    if (at >= units_.size() || LabelOf(units_[at]) != byte) break;
    const bool leaf = HasLeaf(units_[at]);
    at ^= OffsetOf(units_[at]);
    ++size;
    if (!leaf || at >= units_.size()) continue;
    const std::size_t place = ValueOf(units_[at]);
    if (place >= texts_.size()) continue;
    const std::size_t end = texts_.find('\0', place);
    by = std::string_view(texts_).substr(place, end == std::string::npos ? end : end - place);
    longest = size;
  }
  return longest;
}

std::string Charsmap::Apply(std::string_view text) const {
  constexpr std::size_t kUnasked = 4096;  // characters between two checks for interruption
  std::string out;
  out.reserve(text.size());
  std::size_t turn = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (++turn % kUnasked == 0 && base::Interrupted()) break;
    std::string_view by;
    std::size_t size = Match(text.substr(at), by);
    if (size == 0) {
      std::size_t end = at;
      base::DecodeUtf8(text, end);
      size = end - at;
      by = text.substr(at, size);
    }
    out += by;
    at += size;
  }
  return out;
}

}  // namespace thermocline::text
