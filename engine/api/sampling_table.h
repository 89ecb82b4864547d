// The one table of numeric sampling parameters: their ranges, and their names in each protocol. The
// fields of requests, `run`'s options, the configuration's preferences and the API's description
// are generated from it. A new parameter is a member of SamplingParams, a row here, code in the
// sampler, and a field of gRPC.
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
  const char* gguf;   // in a file's metadata, if makers recommend a value there; otherwise nullptr
  const char* grpc;   // "sampling.dry.base": message and field within Generate's
  Range range;        // inclusive
  // Exactly one of the two is set.
  double SamplingParams::*number = nullptr;
  int SamplingParams::*whole = nullptr;
  // At most one of the two is set, if makers and operators may have a preference.
  std::optional<double> SamplingDefaults::*preferred_number = nullptr;
  std::optional<int> SamplingDefaults::*preferred_whole = nullptr;
  // The title on the chat page; "" if it is not shown there.
  const char* title = "";
  double step = 0;
  const char* help = "";  // a sentence without its final period

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

// In display order.
std::span<const SamplingField> SamplingFields();

}  // namespace thermocline
