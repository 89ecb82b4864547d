#include "engine/model/architecture.h"

#include <array>

#include "engine/model/architecture_table.h"

namespace thermocline::model {
namespace {

Status Unsupported(std::string_view what, std::string_view name, bool hugging_face) {
  std::string names;
  for (const Architecture& a : kArchitectures) {
    const std::string_view next = hugging_face ? a.hf_name : a.name;
    if (next.empty() || names.ends_with(next)) continue;  // mistral is a llama
    names += (names.empty() ? "" : ", ") + std::string(next);
  }
  return base::Unimplemented(what, " '", name, "' is not supported; supported are ", names);
}

struct NamedActivation {
  std::string_view name;
  Activation activation;
};
// Aliases beside kActivationNames, which are the names we write.
constexpr std::array kActivationAliases = {
    NamedActivation{"swish", Activation::kSilu},
    NamedActivation{"gelu_new", Activation::kGeluTanh},
    NamedActivation{"gelu_pytorch_tanh", Activation::kGeluTanh},
};

}  // namespace

Result<const Architecture*> FindArchitecture(std::string_view name) {
  for (const Architecture& a : kArchitectures) {
    if (a.name == name) return &a;
  }
  return Unsupported("architecture", name, false);
}

Result<const Architecture*> FindHuggingFaceArchitecture(std::string_view model_type) {
  for (const Architecture& a : kArchitectures) {
    if (a.hf_name == model_type && !model_type.empty()) return &a;
  }
  return Unsupported("model_type", model_type, true);
}

Result<Activation> ParseActivation(std::string_view name) {
  for (std::size_t i = 0; i < kActivationNames.size(); ++i) {
    if (kActivationNames[i] == name) return static_cast<Activation>(i);
  }
  for (const NamedActivation& known : kActivationAliases) {
    if (known.name == name) return known.activation;
  }
  return base::Unimplemented("activation '", name,
                             "' is not supported; supported are silu, relu, fatrelu, drelu, relu2, "
                             "gelu, gelu_tanh, clamped_swiglu");
}

}  // namespace thermocline::model
