#define THERMOCLINE_EIGEN EigenForAvx512
#include "engine/offline/training_ops.inl.h"

namespace thermocline::offline {

extern const TrainingOps kAvx512TrainingOps;
const TrainingOps kAvx512TrainingOps{"avx512", Product, LogisticGradient, Adam};

}  // namespace thermocline::offline
