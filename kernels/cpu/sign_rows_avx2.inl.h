// SignScores4 of sign_predict.inl.h without population counts: ones of a nibble by a table in a
// register, already times the slice's weight, added up in bytes.
//
// Four slices take 30 instructions for a vector of 32 bytes of a row; counting each slice in 32
// bits takes 44. The sum of a byte's columns is at most 8 * (1 + 2 + 4 + 8 + 16) = 248.
// A tree of carry-save adders over the vectors of a row needs about 30, too: rows are short (16
// vectors at D 4096), and each row ends with counts of all its planes.
//
// Included by sign_predict.inl.h.
namespace thermocline::kernels {
namespace {

// Ones of 0..15, times 2^slice.
inline __m256i WeightedOnes(int slice) {
  const __m128i ones = _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  return _mm256_broadcastsi128_si256(_mm_slli_epi16(ones, slice));  // no entry exceeds a byte
}

inline std::int32_t SumOf64(__m256i v) {
  const __m128i pair = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return static_cast<std::int32_t>(_mm_cvtsi128_si64(pair) + _mm_extract_epi64(pair, 1));
}

// Four neighbouring rows share the loads of the input's bits.
template <int kSlices>
void SignScores4(const SignInput& x, const std::uint64_t* sign, int words, std::int32_t* scores) {
  constexpr int kAhead = 8192 / 8;  // words
  const __m256i mask = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
  const auto load = [](const std::uint64_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  };
  __m256i negative[4] = {zero, zero, zero, zero};
  for (int w = 0; w < words; w += 4) {
    const __m256i x_sign = load(x.sign + w);
    __m256i low[4], high[4], ones[4];
    for (int r = 0; r < 4; ++r) {
      low[r] = _mm256_xor_si256(load(sign + r * words + w), x_sign);
      high[r] = _mm256_srli_epi16(low[r], 4);  // the slice's mask clears the next byte's bits
      ones[r] = zero;
      if (w % 8 == 0) Prefetch(sign + r * words + w + kAhead);
    }
#pragma GCC unroll 5
    for (int s = 0; s < kSlices; ++s) {
      const __m256i slice = load(x.slice + s * words + w), table = WeightedOnes(s);
      const __m256i slice_low = _mm256_and_si256(slice, mask),
                    slice_high = _mm256_and_si256(_mm256_srli_epi16(slice, 4), mask);
      for (int r = 0; r < 4; ++r) {
        ones[r] = _mm256_add_epi8(ones[r],
                                  _mm256_shuffle_epi8(table, _mm256_and_si256(low[r], slice_low)));
        ones[r] = _mm256_add_epi8(
            ones[r], _mm256_shuffle_epi8(table, _mm256_and_si256(high[r], slice_high)));
        asm("" : "+x"(ones[r]));  // added up here: later, all counts would wait in memory
      }
    }
    for (int r = 0; r < 4; ++r)
      negative[r] = _mm256_add_epi64(negative[r], _mm256_sad_epu8(ones[r], zero));
  }
  for (int r = 0; r < 4; ++r) scores[r] = x.total - 2 * SumOf64(negative[r]);
}

}  // namespace
}  // namespace thermocline::kernels
