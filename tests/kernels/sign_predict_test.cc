// Sign scores follow the formula on every table; SparseInfer's rule exactly.
#include <cmath>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct Planes {
  int rows, cols;
  std::vector<float> weights;
  std::vector<std::uint64_t> sign, magnitude;

  Planes(int num_rows, int num_cols)
      : rows(num_rows),
        cols(num_cols),
        weights(RandomFloats(static_cast<std::size_t>(rows * cols), 3)) {
    const auto words = static_cast<std::size_t>(SignWords(cols));
    for (std::size_t i = 0; i < weights.size(); i += 17) weights[i] = 0;
    sign.resize(words * static_cast<std::size_t>(rows));
    magnitude.resize(sign.size());
    for (int r = 0; r < rows; ++r)
      PackSigns(weights.data() + r * cols, cols, sign.data() + static_cast<std::size_t>(r) * words,
                magnitude.data() + static_cast<std::size_t>(r) * words);
  }
  SignPlanes view(bool two) const {
    return {rows, cols, sign.data(), two ? magnitude.data() : nullptr};
  }
};

// The score by its definition, from the floats.
int Score(const Planes& planes, int row, const std::vector<float>& x, int slices, bool two) {
  double square = 0, mean = 0;
  const float* w = planes.weights.data() + row * planes.cols;
  for (const float each : x) square += static_cast<double>(each) * static_cast<double>(each);
  for (int c = 0; c < planes.cols; ++c) mean += std::fabs(w[c]);
  const double rms = std::sqrt(square / static_cast<double>(x.size()));
  mean /= planes.cols;
  int score = 0;
  for (int c = 0; c < planes.cols; ++c) {
    const double step = slices == 1 ? 1 : rms * static_cast<double>(kSliceStep[slices]);
    const int level = static_cast<int>(std::fabs(x[static_cast<std::size_t>(c)]) / step + 0.5);
    const int m = slices == 1 ? 1 : std::min((1 << slices) - 1, level);
    const int b = two && std::fabs(static_cast<double>(w[c])) > mean ? 3 : 1;
    score += ((w[c] < 0) == (x[static_cast<std::size_t>(c)] < 0) ? 1 : -1) * m * b;
  }
  return score;
}

TEST(SignScores, AreWhatTheFormulaSays) {
  std::vector<const OpTable*> tables = FastTables();
  tables.push_back(&ReferenceOps());
  for (const int cols : {32, 200, 512, 1100}) {
    const Planes planes(9, cols);
    const auto x = RandomFloats(static_cast<std::size_t>(cols), 5);
    for (int slices = 1; slices <= kSignSlicesMax; ++slices) {
      std::vector<std::uint64_t> words(static_cast<std::size_t>(SignInputWords(cols, slices)));
      const SignInput input = PackSignInput(x.data(), cols, slices, words.data());
      for (const bool two : {false, true}) {
        for (const OpTable* ops : tables) {
          std::vector<std::int32_t> scores(7);
          ops->sign_scores({.planes = planes.view(two),
                            .input = input,
                            .row_begin = 2,
                            .row_end = 9,
                            .scores = scores.data()});
          for (int row = 2; row < 9; ++row) {
            // A level may round the other way in single precision.
            const int slack = slices == 1 ? 0 : 6;
            ASSERT_NEAR(scores[static_cast<std::size_t>(row - 2)],
                        Score(planes, row, x, slices, two), slack)
                << ops->name << " cols " << cols << " slices " << slices << " planes " << 1 + two;
          }
        }
      }
    }
  }
}

TEST(SignScores, EveryTableGivesTheReferencesScores) {
  const Planes planes(33, 4096);
  const auto x = RandomFloats(4096, 5);
  for (int slices = 1; slices <= kSignSlicesMax; ++slices) {
    std::vector<std::uint64_t> words(static_cast<std::size_t>(SignInputWords(4096, slices)));
    const SignInput input = PackSignInput(x.data(), 4096, slices, words.data());
    for (const bool two : {false, true}) {
      std::vector<std::int32_t> want(33), got(33);
      const auto run = [&](const OpTable& ops, std::vector<std::int32_t>& scores) {
        ops.sign_scores({planes.view(two), input, 0, 33, scores.data()});
      };
      run(ReferenceOps(), want);
      for (const OpTable* ops : FastTables()) {
        run(*ops, got);
        ASSERT_EQ(got, want) << ops->name << " slices " << slices;
      }
    }
  }
}

// Skips if negatives > alpha * positives, in integers.
TEST(SignThreshold, IsSparseInfersRule) {
  for (const int cols : {32, 576, 4096, 5120}) {
    for (const int alpha : {0, 900, 1000, 1005, 1010, 1030, 2000}) {
      for (int negatives = 0; negatives <= cols; ++negatives) {
        const int positives = cols - negatives;
        const bool skip = std::int64_t{1000} * negatives > std::int64_t{alpha} * positives;
        ASSERT_EQ(positives - negatives >= SignThreshold(alpha, cols), !skip)
            << cols << " " << alpha << " " << negatives;
      }
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
