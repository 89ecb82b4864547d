#define THERMOCLINE_EIGEN EigenForBase
#include "engine/offline/training_ops.inl.h"

namespace thermocline::offline {

extern const TrainingOps kBaseTrainingOps;
const TrainingOps kBaseTrainingOps{"base", Product, LogisticGradient, Adam};

}  // namespace thermocline::offline
