// The solver against GLPK, which solves the model as an integer linear program: a variable for
// every batch of neurons, as in PowerInfer.
#include <glpk.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <optional>

#include "engine/placement/solver.h"
#include "tests/engine/placement/random_problems.h"

namespace thermocline::placement {
namespace {

using Terms = std::map<int, double>;  // column -> factor

class Programme {
 public:
  Programme() : lp_(glp_create_prob()) { glp_term_out(GLP_OFF); }
  ~Programme() { glp_delete_prob(lp_); }
  Programme(const Programme&) = delete;
  Programme& operator=(const Programme&) = delete;

  int Binary(double cost) {
    const int column = glp_add_cols(lp_, 1);
    glp_set_col_kind(lp_, column, GLP_BV);
    glp_set_obj_coef(lp_, column, cost);
    return column;
  }
  int Positive(double cost) {
    const int column = glp_add_cols(lp_, 1);
    glp_set_col_bnds(lp_, column, GLP_LO, 0, 0);
    glp_set_obj_coef(lp_, column, cost);
    return column;
  }
  void AtLeast(const Terms& terms, double bound) { Row(terms, GLP_LO, bound); }
  void AtMost(const Terms& terms, double bound) { Row(terms, GLP_UP, bound); }
  bool Solve() {
    glp_iocp options;
    glp_init_iocp(&options);
    options.presolve = GLP_ON;
    options.tol_obj = 1e-12;
    return glp_intopt(lp_, &options) == 0 && glp_mip_status(lp_) == GLP_OPT;
  }
  bool IsOne(int column) const { return glp_mip_col_val(lp_, column) > 0.5; }

 private:
  void Row(const Terms& terms, int kind, double bound) {
    std::vector<int> columns = {0};
    std::vector<double> factors = {0};
    for (const auto& [column, factor] : terms) {
      columns.push_back(column);
      factors.push_back(factor);
    }
    const int row = glp_add_rows(lp_, 1);
    glp_set_row_bnds(lp_, row, kind, bound, bound);
    glp_set_mat_row(lp_, row, static_cast<int>(terms.size()), columns.data(), factors.data());
  }
  glp_prob* lp_;
};

// The best placement with or without the deciding rows in memory; nullopt if none fits.
std::optional<Counts> SolveIlp(const Problem& p, bool held) {
  const Machine& m = p.machine;
  Programme lp;
  const int head = lp.Binary(0), any = lp.Binary(0);
  Terms hot_memory, memory;
  double memory_room = static_cast<double>(m.memory_bytes - p.memory_fixed_bytes);
  // Bytes that are hot if `column` is 1, else in RAM.
  const auto side_bytes = [&](int column, double bytes) {
    hot_memory[column] += bytes;
    memory[column] -= bytes;
    memory_room -= bytes;
  };
  const auto dense = [](const Processor& side, std::int64_t bytes) {
    return static_cast<double>(bytes) / side.dense_bytes_per_s;
  };
  std::vector<int> homes;
  std::vector<std::vector<int>> hots(p.layers.size()), kepts(p.layers.size());
  for (std::size_t l = 0; l < p.layers.size(); ++l) {
    const LayerShape& s = p.layers[l];
    const bool rows_held = held && s.reading != Reading::kDense;
    const std::int64_t home_bytes = s.home_bytes + s.kv_bytes;
    const int home = lp.Binary(dense(*m.hot, home_bytes) + m.hot->layer_s -
                               dense(m.cold, home_bytes) - m.cold.layer_s);
    side_bytes(home, static_cast<double>(home_bytes));
    if (l > 0) lp.AtMost({{home, 1}, {homes.back(), -1}}, 0);
    homes.push_back(home);
    const int time = lp.Positive(1);
    Terms hot_time = {{time, 1}}, cold_time = {{time, 1}};
    double all_cold = 0;
    for (std::int64_t i = 0; i < s.neurons(); i += p.batch) {
      const std::int64_t end = std::min<std::int64_t>(s.neurons(), i + p.batch);
      double hot_s = 0, cold_s = 0, read_s = 0;
      for (std::int64_t n = i; n < end; ++n) {
        const double f = s.frequency[static_cast<std::size_t>(n)];
        hot_s += NeuronSeconds(s, *m.hot, f);
        cold_s += NeuronSeconds(s, m.cold, f);
        if (m.flash_reads_per_s > 0) read_s += ReadSeconds(s, m, rows_held, f);
      }
      const int hot = lp.Binary(0), kept = lp.Binary(-read_s);
      const auto neurons = static_cast<double>(end - i);
      const double bytes = neurons * static_cast<double>(s.row_bytes() + s.predictor_bytes);
      const double on_flash =
          neurons * static_cast<double>(s.predictor_bytes + (rows_held ? s.deciding_bytes : 0));
      hot_memory[hot] += bytes;
      memory[hot] -= bytes;
      memory[kept] += bytes - on_flash;
      memory_room -= on_flash;
      hot_time[hot] -= hot_s;
      cold_time[hot] += cold_s;
      all_cold += cold_s;
      lp.AtMost({{hot, 1}, {kept, -1}}, 0);
      if (m.flash_reads_per_s == 0) lp.AtLeast({{kept, 1}}, 1);
      if (i > 0) lp.AtMost({{hot, 1}, {hots[l].back(), -1}}, 0);
      if (i > 0) lp.AtMost({{kept, 1}, {kepts[l].back(), -1}}, 0);
      hots[l].push_back(hot);
      kepts[l].push_back(kept);
    }
    // Hot work in a layer with a cold home; cold work in a layer with a hot one.
    const double sync = 2 * m.sync_s + static_cast<double>(p.sync_bytes) / m.link_bytes_per_s;
    const int hot_guest = lp.Binary(sync), cold_guest = lp.Binary(sync);
    lp.AtLeast({{hot_guest, 1}, {hots[l].front(), -1}, {home, 1}}, 0);
    lp.AtLeast({{cold_guest, 1}, {home, -1}, {hots[l].back(), 1}}, 0);
    hot_time[hot_guest] -= m.hot->layer_s;
    cold_time[cold_guest] -= m.cold.layer_s;
    lp.AtLeast(hot_time, 0);
    lp.AtLeast(cold_time, all_cold);
    lp.AtMost({{hots[l].front(), 1}, {any, -1}}, 0);
  }
  const int head_gain = lp.Binary(dense(*m.hot, p.head_bytes) - dense(m.cold, p.head_bytes));
  lp.AtLeast({{head_gain, 1}, {head, -1}}, 0);
  lp.AtMost({{head_gain, 1}, {head, -1}}, 0);
  side_bytes(head, static_cast<double>(p.head_bytes));
  const int switch_homes = lp.Binary(m.sync_s), switch_head = lp.Binary(m.sync_s);
  if (homes.size() > 1) lp.AtLeast({{switch_homes, 1}, {homes.front(), -1}, {homes.back(), 1}}, 0);
  lp.AtLeast({{switch_head, 1}, {head, -1}, {homes.back(), 1}}, 0);
  lp.AtLeast({{switch_head, 1}, {homes.back(), -1}, {head, 1}}, 0);
  lp.AtMost({{homes.front(), 1}, {any, -1}}, 0);
  lp.AtMost({{head, 1}, {any, -1}}, 0);
  hot_memory[any] += static_cast<double>(p.hot_fixed_bytes);
  lp.AtMost(hot_memory, static_cast<double>(m.hot_bytes));
  lp.AtMost(memory, memory_room);
  if (!lp.Solve()) return std::nullopt;
  Counts out{.head_hot = lp.IsOne(head), .deciding_held = held};
  for (std::size_t l = 0; l < p.layers.size(); ++l) {
    out.hot_homes += lp.IsOne(homes[l]);
    std::int64_t hot = 0, end = 0;
    for (const int column : hots[l]) hot += lp.IsOne(column) ? p.batch : 0;
    for (const int column : kepts[l]) end += lp.IsOne(column) ? p.batch : 0;
    out.hot.push_back(std::min(hot, p.layers[l].neurons()));
    out.end.push_back(std::min(end, p.layers[l].neurons()));
  }
  return out;
}

TEST(Solver, IsNearAnIntegerProgramme) {
  Random random(2);
  int solved = 0, refused = 0, slower = 0;
  while (solved + refused < 400) {
    Problem p = RandomProblem(random, 6, 12);
    p.machine.unified = false;
    ++p.head_bytes;
    for (LayerShape& layer : p.layers) ++layer.home_bytes;
    if (!p.machine.hot.has_value()) continue;
    double best = std::numeric_limits<double>::infinity();
    for (const bool held : {false, true}) {
      const std::optional<Counts> counts = SolveIlp(p, held);
      if (!counts.has_value()) continue;
      const Outcome outcome = Compute(p, *counts);
      ASSERT_TRUE(outcome.fits);
      best = std::min(best, outcome.seconds);
    }
    const auto placement = Solve(p);
    if (!placement.ok()) {
      EXPECT_EQ(best, std::numeric_limits<double>::infinity()) << placement.status().message();
      ++refused;
      continue;
    }
    EXPECT_GE(placement->token_s, best * (1 - 1e-9)) << solved;
    EXPECT_LE(placement->token_s, best * 1.03) << solved;
    EXPECT_LE(placement->token_s * (1 - placement->gap), best * (1 + 1e-9)) << solved;
    slower += placement->token_s > best * 1.01;
    ++solved;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_LE(slower, solved / 100);
  EXPECT_GT(solved, 200);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace thermocline::placement
