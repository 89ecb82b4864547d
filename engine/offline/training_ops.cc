#include "engine/offline/training_ops.h"

#if defined(__x86_64__)
#include "kernels/cpu/x86_features.h"
#endif

namespace thermocline::offline {

extern const TrainingOps kBaseTrainingOps;
#if defined(__x86_64__)
extern const TrainingOps kAvx2TrainingOps;
extern const TrainingOps kAvx512TrainingOps;
#endif

const TrainingTables& AllTrainingOps() {
  static const TrainingTables tables = [] {
    TrainingTables found{};
#if defined(__x86_64__)
    if (kernels::HasAvx512()) found.tables[found.count++] = &kAvx512TrainingOps;
    if (kernels::HasAvx2()) found.tables[found.count++] = &kAvx2TrainingOps;
#endif
    found.tables[found.count++] = &kBaseTrainingOps;
    return found;
  }();
  return tables;
}

}  // namespace thermocline::offline
