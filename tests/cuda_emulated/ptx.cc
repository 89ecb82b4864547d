// Matrix fragments by the layouts of the PTX ISA, element by element.
#include "tests/cuda_emulated/ptx.h"

#include "kernels/quantize.h"

namespace ptx {
namespace {

// A lane's operands; K / 8 words of a, K / 16 of b.
struct Fragments {
  const unsigned* a;
  const unsigned* b;
  int* c;
};

int Byte(unsigned word, int i) { return static_cast<std::int8_t>(word >> (8 * i)); }

const Fragments& Of(void* const* lanes, int lane) { return *static_cast<Fragments*>(lanes[lane]); }

template <int kWords>  // each covers 16 values of k
void Multiply(void* const* lanes, unsigned) {
  std::int8_t a[16][16 * kWords], b[16 * kWords][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < kWords; ++half) {
      for (int i = 0; i < 4; ++i) {
        const int k = 16 * half + 4 * t + i;
        a[g][k] = static_cast<std::int8_t>(Byte(Of(lanes, lane).a[2 * half], i));
        a[g + 8][k] = static_cast<std::int8_t>(Byte(Of(lanes, lane).a[2 * half + 1], i));
        b[k][g] = static_cast<std::int8_t>(Byte(Of(lanes, lane).b[half], i));
      }
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      int sum = 0;
      for (int k = 0; k < 16 * kWords; ++k) sum += a[row][k] * b[k][column];
      Of(lanes, lane).c[i] += sum;
    }
  }
}

}  // namespace

void MmaK32(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  Fragments mine{a, b, c};
  cuda_emulated::Gather(0xFFFFFFFFU, &mine, Multiply<2>);
}
void MmaK16(int (&c)[4], const unsigned (&a)[2], unsigned b) {
  Fragments mine{a, &b, c};
  cuda_emulated::Gather(0xFFFFFFFFU, &mine, Multiply<1>);
}
std::uint16_t FloatToHalf(float value) { return thermocline::kernels::FloatToHalf(value); }

}  // namespace ptx
