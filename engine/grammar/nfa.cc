#include "engine/grammar/nfa.h"

#include <algorithm>

namespace thermocline::grammar {
namespace {

// Writes `code_point` in UTF-8; returns the number of bytes.
int EncodeCodePoint(char32_t code_point, std::uint8_t* out) {
  const auto byte = [](char32_t value) { return static_cast<std::uint8_t>(value); };
  const auto tail = [&](int shift) { return byte(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    out[0] = byte(code_point);
    return 1;
  }
  if (code_point < 0x800) {
    out[0] = byte(0xC0 | (code_point >> 6));
    out[1] = tail(0);
    return 2;
  }
  if (code_point < 0x10000) {
    out[0] = byte(0xE0 | (code_point >> 12));
    out[1] = tail(6);
    out[2] = tail(0);
    return 3;
  }
  out[0] = byte(0xF0 | (code_point >> 18));
  out[1] = tail(12);
  out[2] = tail(6);
  out[3] = tail(0);
  return 4;
}

bool AllAre(const std::uint8_t* bytes, int count, std::uint8_t value) {
  return std::all_of(bytes, bytes + count, [value](std::uint8_t byte) { return byte == value; });
}

}  // namespace

CodePointSet Normalized(CodePointSet set) {
  std::sort(set.begin(), set.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.lo < b.lo; });
  CodePointSet out;
  for (const CodePointRange& range : set) {
    if (!out.empty() && range.lo <= out.back().hi + 1) {
      out.back().hi = std::max(out.back().hi, range.hi);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodePointSet Complement(const CodePointSet& set) {
  CodePointSet out;
  char32_t next = 0;
  for (const CodePointRange& range : Normalized(set)) {
    if (range.lo > next) out.push_back({next, range.lo - 1});
    next = range.hi + 1;
  }
  if (next <= kCodePointMax) out.push_back({next, kCodePointMax});
  return out;
}

int Nfa::Literal(int from, std::string_view bytes) {
  for (const char c : bytes) {
    const int next = AddState();
    const std::uint8_t byte = c;
    AddByte(from, byte, byte, next);
    from = next;
  }
  return from;
}

void Nfa::AddSet(int from, const CodePointSet& set, int to) {
  for (const CodePointRange& range : set) AddRange(from, range.lo, range.hi, to);
}

void Nfa::AddRange(int from, char32_t lo, char32_t hi, int to) {
  // Ranges of characters with the same number of bytes; surrogates are between two of them.
  static constexpr CodePointRange kParts[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kCodePointMax}};
  for (const CodePointRange& part : kParts) {
    const char32_t first = std::max(lo, part.lo), last = std::min(hi, part.hi);
    if (first > last) continue;
    std::uint8_t low[4], high[4];
    const int count = EncodeCodePoint(first, low);
    EncodeCodePoint(last, high);
    AddSequence(from, low, high, count, to);
  }
}

// All sequences of `count` bytes from `lo` to `hi`, whose bytes after the first range from 80 to
// BF.
void Nfa::AddSequence(int from, const std::uint8_t* lo, const std::uint8_t* hi, int count, int to) {
  if (count == 1) return AddByte(from, lo[0], hi[0], to);
  static constexpr std::uint8_t kLowest[] = {0x80, 0x80, 0x80}, kHighest[] = {0xBF, 0xBF, 0xBF};
  const auto behind = [&](std::uint8_t first, std::uint8_t last, const std::uint8_t* low,
                          const std::uint8_t* high) {
    const int next = AddState();
    AddByte(from, first, last, next);
    AddSequence(next, low, high, count - 1, to);
  };
  if (lo[0] == hi[0]) return behind(lo[0], lo[0], lo + 1, hi + 1);
  int first = lo[0], last = hi[0];
  if (!AllAre(lo + 1, count - 1, 0x80)) behind(lo[0], lo[0], lo + 1, kHighest), ++first;
  if (!AllAre(hi + 1, count - 1, 0xBF)) behind(hi[0], hi[0], kLowest, hi + 1), --last;
  if (first <= last)
    behind(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), kLowest, kHighest);
}

void Nfa::Insert(int from, const Nfa& other, int to) {
  const int offset = num_states_;
  num_states_ += other.num_states_;
  const std::size_t count = other.edges_.size();
  edges_.reserve(edges_.size() + count + 2);
  for (std::size_t i = 0; i < count; ++i) {
    Edge edge = other.edges_[i];
    edge.from += offset;
    edge.to += offset;
    edges_.push_back(edge);
  }
  Link(from, offset + kStart);
  Link(offset + kFinal, to);
}

}  // namespace thermocline::grammar
