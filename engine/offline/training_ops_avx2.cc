#define THERMOCLINE_EIGEN EigenForAvx2
#include "engine/offline/training_ops.inl.h"

namespace thermocline::offline {

extern const TrainingOps kAvx2TrainingOps;
const TrainingOps kAvx2TrainingOps{"avx2", Product, LogisticGradient, Adam};

}  // namespace thermocline::offline
