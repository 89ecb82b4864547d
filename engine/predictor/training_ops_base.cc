#define THERMOCLINE_EIGEN EigenForBase
#include "engine/predictor/training_ops.inl.h"

namespace thermocline::predictor {

extern const TrainingOps kBaseTrainingOps;
const TrainingOps kBaseTrainingOps{"base", Product, LogisticGradient, Adam};

}  // namespace thermocline::predictor
