// The one table of the numbers of sampling: what they may be, and their names in each protocol. The
// fields of requests, `run`'s options, the configuration's preferences and the API's description
// are made from it. A new one is a member of SamplingParams, a row here, what the sampler does with
// it, and a field of gRPC.
#pragma once

#include <optional>
#include <span>

#include "engine/api/sampling_params.h"

namespace thermocline {

struct Range {
  double min, max;
};

struct SamplingField {
  const char* name;   // in OpenAI's API, files of Hugging Face, the configuration and options
  const char* llama;  // in the APIs of llama-server and Ollama
  const char* gguf;   // in a file's metadata, where makers recommend one; else nullptr
  const char* grpc;   // "sampling.dry.base": message and field within Generate's
  Range range;        // inclusive
  // One of them.
  double SamplingParams::*number = nullptr;
  int SamplingParams::*whole = nullptr;
  // One of them, where makers and operators may have a preference.
  std::optional<double> SamplingDefaults::*preferred_number = nullptr;
  std::optional<int> SamplingDefaults::*preferred_whole = nullptr;
  // As the chat page shows it; "" where it does not.
  const char* title = "";
  double step = 0;
  const char* help = "";  // a sentence without its end

  double Get(const SamplingParams& params) const {
    return number != nullptr ? params.*number : params.*whole;
  }
  // Requires: `value` within the range.
  void Set(SamplingParams& params, double value) const {
    number != nullptr ? (void)(params.*number = value)
                      : (void)(params.*whole = static_cast<int>(value));
  }
  bool has_preference() const { return preferred_number != nullptr || preferred_whole != nullptr; }
  std::optional<double> Preferred(const SamplingDefaults& defaults) const;
  // Requires: has_preference().
  void Prefer(SamplingDefaults& defaults, std::optional<double> value) const;
};

// In the order in which they are shown.
std::span<const SamplingField> SamplingFields();

}  // namespace thermocline
