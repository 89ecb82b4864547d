// The bundles of a mixture of experts: an expert is read as a whole, its matrices in their memory
// layout.
#pragma once

#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"
#include "engine/offline/bundle_writer.h"

namespace thermocline::tools {

// The layout of all experts. Unimplemented names a layer whose types differ.
Result<store::NeuronLayout> ExpertLayoutOf(const model::ModelFile& file,
                                           const model::Weights& weights);

// Adds layer `layer`, the writer's next. A layer without experts becomes zeros, which are never
// read. Errors as model::LoadWeights and BundleWriter::AddNeurons.
Status AddExperts(const model::ModelFile& file, base::WorkerPool& pool, int layer,
                  offline::BundleWriter& writer);

}  // namespace thermocline::tools
