// Loops whose index is a constant in each turn. g++ 12 keeps an array of vectors in memory if a
// variable chooses from it, even where it unrolls the loop later.
#pragma once

namespace thermocline::kernels {
namespace {

// body.operator()<i>() for i = first, ..., first + count - 1.
template <int first, int count, typename Body>
[[gnu::always_inline]] inline void Unroll(const Body& body) {
  if constexpr (count > 0) {
    body.template operator()<first>();
    Unroll<first + 1, count - 1>(body);
  }
}

}  // namespace
}  // namespace thermocline::kernels
