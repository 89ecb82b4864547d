#include "server/protocol/structured_output.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "server/core/request_limits.h"

namespace thermocline::protocol {
namespace {

using Kind = GrammarSpec::Kind;
using server::kChoiceBytesMax;
using server::kChoiceTextsMax;

// Collects the formats that the request's fields give; only one is allowed.
class Reader {
 public:
  explicit Reader(Fields& fields) : fields_(fields) {}

  std::optional<GrammarSpec> Run() {
    ReadResponseFormat();
    ReadText("grammar", fields_.Find("grammar"), Kind::kGbnf);
    ReadSchema("json_schema", fields_.Find("json_schema"));
    ReadStructuredOutputs();
    ReadSchema("guided_json", fields_.Find("guided_json"));
    ReadText("guided_regex", fields_.Find("guided_regex"), Kind::kRegex);
    ReadChoices("guided_choice", fields_.Find("guided_choice"));
    ReadText("guided_grammar", fields_.Find("guided_grammar"), Kind::kGbnf);
    return std::move(out_);
  }

 private:
  void Take(GrammarSpec spec) {
    if (out_.has_value()) {
      return fields_.Fail(spec.field, StrCat("'", out_->field, "' and '", spec.field,
                                             "' both say what the answer must be; give one"));
    }
    out_ = std::move(spec);
  }

  void ReadText(const std::string& field, const Json* value, Kind kind) {
    if (value == nullptr) return;
    if (!value->is_string() || value->as_string().empty())
      return fields_.Fail(field, StrCat("'", field, "' must be a string with a ",
                                        kind == Kind::kRegex ? "regular expression" : "grammar"));
    Take({.kind = kind, .text = value->as_string(), .field = field});
  }

  // Reads a schema, or its JSON in a string.
  void ReadSchema(const std::string& field, const Json* value) {
    if (value == nullptr) return;
    if (!value->is_object() && !value->is_string() && !value->is_bool())
      return fields_.Fail(
          field, StrCat("'", field, "' must be a JSON schema, not a ", value->type_name()));
    Take({.kind = Kind::kJsonSchema,
          .text = value->is_string() ? value->as_string() : value->Dump(),
          .field = field});
  }

  void ReadChoices(const std::string& field, const Json* value) {
    if (value == nullptr) return;
    GrammarSpec spec{.kind = Kind::kChoice, .field = field};
    bool good = value->is_array() && !value->as_array().empty() &&
                value->as_array().size() <= kChoiceTextsMax;
    for (std::size_t i = 0; good && i < value->as_array().size(); ++i) {
      const Json& each = value->as_array()[i];
      good = each.is_string() && !each.as_string().empty() &&
             each.as_string().size() <= kChoiceBytesMax;
      if (good) spec.choices.push_back(each.as_string());
    }
    if (!good) {
      return fields_.Fail(field, StrCat("'", field, "' must be a list of 1 to ", kChoiceTextsMax,
                                        " strings of 1 to ", kChoiceBytesMax, " bytes"));
    }
    Take(std::move(spec));
  }

  void ReadResponseFormat() {
    const Json* format = fields_.Find("response_format");
    if (format == nullptr) return;
    const Json* type = format->Find("type");
    const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
    fields_.IgnoreOthers(
        "response_format", *format,
        {"type", "schema", "value", "json_schema", "name", "strict", "description"});
    if (name == "text") return IgnoreSchemas(*format);
    if (name != "json_object" && name != "json_schema") {
      return fields_.FailUnsupported(
          "response_format",
          "'response_format.type' other than text, json_object or json_schema is not supported");
    }
    const auto schemas = SchemasOf(*format);
    if (schemas.size() > 1)
      return fields_.Fail("response_format",
                          StrCat("'", schemas[0].first, "' and '", schemas[1].first,
                                 "' both say what the answer must be; give "
                                 "one"));
    if (!schemas.empty()) return ReadSchema(schemas[0].first, schemas[0].second);
    if (name == "json_schema")
      return fields_.Fail("response_format",
                          "'response_format' of type json_schema needs json_schema.schema");
    if (format->Find("strict") != nullptr) fields_.Ignore("response_format.strict");
    Take({.kind = Kind::kJsonObject, .field = "response_format"});
  }

  // The schemas of a format: OpenAI's, llama-server's, and huggingface_hub's.
  std::vector<std::pair<std::string, const Json*>> SchemasOf(const Json& format) {
    std::vector<std::pair<std::string, const Json*>> out;
    if (const Json* inner = format.Find("json_schema")) {
      fields_.IgnoreOthers("response_format.json_schema", *inner,
                           {"schema", "name", "strict", "description"});
      if (const Json* schema = inner->Find("schema"))
        out.emplace_back("response_format.json_schema.schema", schema);
    }
    for (const char* name : {"schema", "value"})
      if (const Json* schema = format.Find(name))
        out.emplace_back(StrCat("response_format.", name), schema);
    return out;
  }

  // Reports the schemas of a text format, which are ignored.
  void IgnoreSchemas(const Json& format) {
    for (const char* name : {"json_schema", "schema", "value", "strict"})
      if (format.Find(name) != nullptr) fields_.Ignore(StrCat("response_format.", name));
  }

  void ReadStructuredOutputs() {
    const Json* outputs = fields_.Find("structured_outputs");
    if (outputs == nullptr) return;
    if (!outputs->is_object())
      return fields_.Fail("structured_outputs", "'structured_outputs' must be an object");
    for (const auto& [key, value] : outputs->as_object()) {
      const std::string field = "structured_outputs." + key;
      if (value.is_null()) continue;
      if (key == "json") {
        ReadSchema(field, &value);
      } else if (key == "regex") {
        ReadText(field, &value, Kind::kRegex);
      } else if (key == "choice") {
        ReadChoices(field, &value);
      } else if (key == "grammar") {
        ReadText(field, &value, Kind::kGbnf);
      } else if (key == "json_object") {
        if (!value.is_bool()) fields_.Fail(field, StrCat("'", field, "' must be a boolean"));
        if (value.is_bool() && value.as_bool()) Take({.kind = Kind::kJsonObject, .field = field});
      } else {
        fields_.FailUnsupported(field, StrCat("'", field,
                                              "' is not supported; there are json, "
                                              "regex, choice, grammar and json_object"));
      }
    }
  }

  Fields& fields_;
  std::optional<GrammarSpec> out_;
};

}  // namespace

std::optional<GrammarSpec> ReadStructuredOutput(Fields& fields) { return Reader(fields).Run(); }

}  // namespace thermocline::protocol
