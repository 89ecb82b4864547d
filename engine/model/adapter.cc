#include "engine/model/adapter.h"

#include <utility>

namespace thermocline::model {

Status AddFactor(AdapterFactor factor, Adapter& adapter) {
  constexpr std::int64_t kSideMax = 1 << 22, kRankMax = 4096;
  AdapterPart& part = adapter.parts[factor.matrix];
  std::vector<float>& to = factor.first ? part.a : part.b;
  if (!to.empty()) return base::DataLoss("matrix '", factor.matrix, "' has two such factors");
  const std::int64_t rank = factor.first ? factor.rows : factor.cols;
  if (rank < 1 || rank > kRankMax || factor.rows > kSideMax || factor.cols > kSideMax)
    return base::DataLoss("matrix '", factor.matrix, "' has a factor of ", factor.rows, " x ",
                          factor.cols, "; ranks are at most ", kRankMax);
  to = std::move(factor.data);
  if (factor.first) part.rank = static_cast<int>(rank);
  (factor.first ? part.cols : part.rows) =
      static_cast<int>(factor.first ? factor.cols : factor.rows);
  return OkStatus();
}

}  // namespace thermocline::model
