// Interprets GGUF's metadata keys.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Reads the configuration under "<architecture>.*". Needs the tensor list to see if the head is
// tied. InvalidArgument names a missing or mistyped key; Unimplemented an unsupported architecture
// or feature.
Result<ModelConfig> ConfigFromMetadata(const ModelFile& model);

// Reads the vocabulary under "tokenizer.*"; kind kNone if the file has none.
Result<Vocabulary> VocabularyFromMetadata(const Json& metadata);

}  // namespace thermocline::model
