// Tests if a text contains any of several strings, in a single pass.
// Source: Aho and Corasick 1975, "Efficient string matching".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace thermocline::text {

// Immutable. Uses a KiB for each byte of the strings.
class ContainsAny {
 public:
  // Empty strings are ignored.
  explicit ContainsAny(const std::vector<std::string>& strings);

  bool operator()(std::string_view text) const;

 private:
  // The longest prefix of a string that the text read so far ends with; 0 = none.
  using State = std::uint32_t;
  void Add(std::string_view string);
  void Link();

  std::vector<std::array<State, 256>> next_;  // by state and byte
  std::vector<bool> found_;                   // by state: a string ends here
};

}  // namespace thermocline::text
