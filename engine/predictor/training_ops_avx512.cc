#define THERMOCLINE_EIGEN EigenForAvx512
#include "engine/predictor/training_ops.inl.h"

namespace thermocline::predictor {

extern const TrainingOps kAvx512TrainingOps;
const TrainingOps kAvx512TrainingOps{"avx512", Product, LogisticGradient, Adam};

}  // namespace thermocline::predictor
