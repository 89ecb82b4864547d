#include "engine/model/architecture.h"

#include <array>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/model/architecture_table.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kEncoder =
    "it is an encoder of another kind than bert, jina-bert, nomic-bert, modern-bert and "
    "gemma-embedding, which make vectors of texts here";
constexpr std::string_view kDrafter =
    "it drafts for another model, of which it reads the insides; drafts of a small model of the same "
    "vocabulary are there (docs/speculation-use.md)";

// Kinds of models that are no language models of this daemon, by the begin of their names.
struct OtherKind {
  std::string_view begin, what;
};
constexpr std::array kOtherKinds = {
    OtherKind{"clip",
              "it reads images for a model of text: give the model's own file, beside which "
              "it lies"},
    OtherKind{"mmproj",
              "it reads images for a model of text: give the model's own file, beside "
              "which it lies"},
    OtherKind{"nomic-bert-moe", kEncoder},
    OtherKind{"neo-bert", kEncoder},
    OtherKind{"roberta", kEncoder},
    OtherKind{"xlm-roberta", kEncoder},
    OtherKind{"distilbert", kEncoder},
    OtherKind{"mpnet", kEncoder},
    OtherKind{"eurobert", kEncoder},
    OtherKind{"t5", "its encoder and decoder are separate"},
    OtherKind{"bart", "its encoder and decoder are separate"},
    OtherKind{"whisper", "it reads sound"},
    OtherKind{"mamba", "it has no layer of attention"},
    OtherKind{"rwkv", "it has no layer of attention"},
    OtherKind{"gemma4_assistant", kDrafter},
    OtherKind{"gemma4-assistant", kDrafter},
    OtherKind{"eagle3", kDrafter},
    OtherKind{"dflash", kDrafter},
};

// Returns the supported names that `name` is nearest to: those with the same begin, or one that is
// a few letters off.
std::string NearestTo(std::string_view name, bool hugging_face) {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures) {
    const std::string_view next = hugging_face ? a.hf_name : a.name;
    if (!next.empty() && (names.empty() || names.back() != next)) names.emplace_back(next);
  }
  const std::size_t digits = name.find_first_of("0123456789-_");
  const std::string_view family = name.substr(0, digits);
  std::string out;
  for (const std::string& each : names) {
    if (family.size() > 2 && each.starts_with(family)) out += (out.empty() ? "" : ", ") + each;
  }
  return out.empty() ? base::NearestName(name, names) : out;
}

Status Unsupported(std::string_view what, std::string_view name, bool hugging_face) {
  for (const OtherKind& kind : kOtherKinds) {
    if (name.starts_with(kind.begin))
      return base::Unimplemented(what, " '", name, "' is not supported: ", kind.what);
  }
  const std::string nearest = NearestTo(name, hugging_face);
  return base::Unimplemented(
      what, " '", name, "' is not supported; ",
      nearest.empty() ? "" : StrCat("of near names there are ", nearest, "; "),
      "docs/models.md has all families");
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

const Architecture* WithNorm(const Architecture& architecture, Norm norm) {
  if (architecture.norm == norm) return &architecture;
  for (const Architecture& a : kArchitectures) {
    if (a.name == architecture.name && a.norm == norm) return &a;
  }
  return &architecture;
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
                             "gelu, gelu_tanh, clamped_swiglu, xielu");
}

}  // namespace thermocline::model
