#define THERMOCLINE_EIGEN EigenForAvx2
#include "engine/predictor/training_ops.inl.h"

namespace thermocline::predictor {

extern const TrainingOps kAvx2TrainingOps;
const TrainingOps kAvx2TrainingOps{"avx2", Product, LogisticGradient, Adam};

}  // namespace thermocline::predictor
