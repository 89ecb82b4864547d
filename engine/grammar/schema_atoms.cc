#include "engine/grammar/schema_atoms.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace thermocline::grammar {
namespace {

// A schema or a reference for a message: shortened, and with references as the client wrote them.
std::string Shown(std::string text) {
  constexpr std::size_t kBytesMax = 120;
  const std::string moved = StrCat("#/$defs/", kOuterSchema);
  for (std::size_t at = 0; (at = text.find(moved, at)) != std::string::npos; ++at)
    text.replace(at, moved.size(), "#");
  return base::Shorten(text, kBytesMax);
}

constexpr int kAtomsMax = 256;

// Keywords that cannot be ignored, because values that the schema forbids would be accepted.
constexpr std::array<std::string_view, 14> kUnsupported = {"not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "dependentRequired",
                                                           "dependentSchemas",
                                                           "dependencies",
                                                           "unevaluatedItems",
                                                           "$dynamicRef",
                                                           "$recursiveRef",
                                                           "extends"};

std::string Unescaped(std::string_view part) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '~' && i + 1 < part.size()) {
      out.push_back(part[++i] == '1' ? '/' : '~');
    } else if (part[i] == '%' && i + 2 < part.size()) {
      unsigned value = 0;
      std::from_chars(part.data() + i + 1, part.data() + i + 3, value, 16);
      out.push_back(static_cast<char>(value));
      i += 2;
    } else {
      out.push_back(part[i]);
    }
  }
  return out;
}

}  // namespace

Status MalformedSchema(std::string_view keyword, std::string_view expected) {
  return base::InvalidArgument("the schema's '", keyword, "' must be ", expected);
}

const Json* FindReference(const Json& root, std::string_view pointer) {
  if (!pointer.starts_with('#')) return nullptr;
  pointer.remove_prefix(1);
  const Json* at = &root;
  while (!pointer.empty() && at != nullptr) {
    if (pointer[0] != '/') return nullptr;
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string name = Unescaped(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    if (at->is_array()) {
      const auto index = base::ParseNumber<std::size_t>(name);
      at = index.has_value() && *index < at->as_array().size() ? &at->as_array()[*index] : nullptr;
    } else {
      at = at->FindRaw(name);
    }
  }
  return at;
}

Status SchemaAtoms::Collect(const Json& schema) {
  RETURN_IF_ERROR(budget_.Check(0));
  if (++count_ > kAtomsMax)
    return base::InvalidArgument("the schema joins more than ", kAtomsMax,
                                 " schemas by allOf and $ref in one place");
  if (schema.is_bool()) {
    never_ = never_ || !schema.as_bool();
    return OkStatus();
  }
  if (!schema.is_object())
    return base::InvalidArgument("a schema must be an object or a boolean, not ",
                                 Shown(schema.Dump()));
  const std::string text = schema.Dump();
  if (open_.contains(text))
    return base::InvalidArgument("the schema refers to itself without anything in between: ",
                                 Shown(text));
  if (!seen_.insert(text).second) return OkStatus();
  open_.insert(text);
  for (const std::string_view keyword : kUnsupported) {
    if (schema.FindRaw(keyword) != nullptr)
      return base::Unimplemented("the schema's '", keyword, "' is not supported");
  }
  if (const Json* reference = schema.Find("$ref")) RETURN_IF_ERROR(Follow(*reference));
  if (const Json* all = schema.Find("allOf")) {
    if (!all->is_array()) return MalformedSchema("allOf", "a list of schemas");
    for (const Json& each : all->as_array()) RETURN_IF_ERROR(Collect(each));
  }
  found_.push_back(&schema);
  open_.erase(text);
  return OkStatus();
}

Status SchemaAtoms::Follow(const Json& reference) {
  if (!reference.is_string()) return MalformedSchema("$ref", "a string");
  const std::string& pointer = reference.as_string();
  const Json* target = FindReference(root_, pointer);
  if (target == nullptr)
    return base::InvalidArgument("the schema's $ref '", Shown(pointer),
                                 "' refers to nothing in it; it must be a place like "
                                 "#/$defs/name");
  return Collect(*target);
}

}  // namespace thermocline::grammar
