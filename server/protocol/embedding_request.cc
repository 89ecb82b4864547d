#include "server/protocol/embedding_request.h"

#include <algorithm>
#include <memory>
#include <set>

#include "server/core/request_limits.h"

namespace thermocline::protocol {
namespace {

using server::kEmbeddedTextsMax;

constexpr std::size_t kRankFieldsMax = 32, kRankFieldBytesMax = 256;

// Reads a text, token ids, or a list of either.
std::vector<server::Prompt> ReadTexts(Fields& fields, const std::string& name) {
  const Json* input = fields.Find(name);
  std::vector<server::Prompt> out;
  const auto add = [&out](const Json& value) {
    if (value.is_string()) {
      out.emplace_back(value.as_string());
      return true;
    }
    auto ids = ToInts(value);
    if (!ids.has_value() || ids->empty()) return false;
    out.emplace_back(*std::move(ids));
    return true;
  };
  bool good = input != nullptr;
  if (good && !add(*input)) {
    good = input->is_array() && !input->as_array().empty() &&
           input->as_array().size() <= kEmbeddedTextsMax;
    for (std::size_t i = 0; good && i < input->as_array().size(); ++i)
      good = add(input->as_array()[i]);
  }
  if (!good)
    fields.Fail(name, StrCat("'", name, "' must be a text, a list of token ids, or a list of 1 to ",
                             kEmbeddedTextsMax, " of either"));
  return out;
}

void ReadShared(Fields& fields, Pooling pooling, server::GenerationRequest& generation) {
  generation.model = fields.String("model", "");
  generation.embed = pooling;
  // A field of Hugging Face's server and of Ollama.
  if (fields.Bool("truncate", false)) generation.text_tokens_max = INT32_MAX;
  generation.request.prompt_only = true;
  generation.request.priority = fields.Int32("priority", 0, kPriorityMin, kPriorityMax);
  const std::string name = fields.String("pooling", PoolingName(pooling));
  const auto named = pooling == Pooling::kRank ? pooling : ParsePooling(name);
  if (named.has_value()) {
    generation.embed = named;
  } else {
    fields.Fail("pooling", "'pooling' must be mean, cls or last");
  }
}

// A document is a text, or an object with one. Cohere's "rank_fields" name the members of an object
// to use, which become its lines.
std::optional<std::string> DocumentText(const Json& document,
                                        const std::vector<std::string>& rank_fields) {
  if (document.is_object() && !rank_fields.empty()) {
    std::string lines;
    for (const std::string& name : rank_fields) {  // the names are unique
      const Json* value = document.Find(name);
      if (value == nullptr) continue;
      lines += StrCat(name, ": ", value->is_string() ? value->as_string() : value->Dump(), "\n");
    }
    return lines.empty() ? std::nullopt : std::optional(lines);
  }
  const Json* text = document.is_object() ? document.Find("text") : &document;
  if (text == nullptr || !text->is_string()) return std::nullopt;
  return text->as_string();
}

void RemoveRepeated(std::vector<std::string>& names) {
  std::set<std::string> seen;
  std::erase_if(names, [&seen](const std::string& name) { return !seen.insert(name).second; });
}

// Rejects a rank field that no document has as a member, since it is a typing error.
void CheckRankFields(Fields& fields, const Json::Array& documents,
                     const std::vector<std::string>& rank_fields) {
  const auto is_object = [](const Json& document) { return document.is_object(); };
  if (std::none_of(documents.begin(), documents.end(), is_object)) return;
  for (const std::string& name : rank_fields) {
    const auto has = [&name](const Json& each) {
      return each.is_object() && each.Find(name) != nullptr;
    };
    if (std::none_of(documents.begin(), documents.end(), has))
      fields.Fail("rank_fields", StrCat("'rank_fields' names '", base::Shorten(name, 64),
                                        "', which is a member of no document"));
  }
}

void ReadDocuments(Fields& fields, const Json* list, RerankRequest& out) {
  const std::string& field = out.generation.prompt_field;
  auto rank_fields = fields.Strings("rank_fields", kRankFieldsMax, kRankFieldBytesMax)
                         .value_or(std::vector<std::string>());
  if (list == nullptr || !list->is_array() || list->as_array().empty() ||
      list->as_array().size() >= kEmbeddedTextsMax)
    return fields.Fail(
        field, StrCat("'", field, "' must be a list of 1 to ", kEmbeddedTextsMax - 1, " texts"));
  const Json::Array& documents = list->as_array();
  RemoveRepeated(rank_fields);
  CheckRankFields(fields, documents, rank_fields);
  for (std::size_t i = 0; fields.ok() && i < documents.size(); ++i) {
    auto text = DocumentText(documents[i], rank_fields);
    if (text.has_value()) {
      out.documents.push_back(*std::move(text));
    } else if (documents[i].is_object() && !rank_fields.empty()) {
      fields.Fail("rank_fields",
                  StrCat(field, "[", i, "] has none of the members that 'rank_fields' names"));
    } else {
      fields.Fail(field,
                  StrCat(field, "[", i, "] must be a text, or an object whose 'text' is one",
                         documents[i].is_object() ? "; 'rank_fields' names other members" : ""));
    }
  }
}

}  // namespace

Result<EmbeddingRequest> ParseEmbeddingRequest(std::string_view body, Pooling pooling,
                                               bool strict_fields, FieldLog* log,
                                               EmbeddingDialect dialect) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Fields fields(json, log);
  EmbeddingRequest out;
  const bool openai = dialect == EmbeddingDialect::kOpenAi;
  const bool content = !openai && fields.Find("content") != nullptr;
  if (content && fields.Find("input") != nullptr)
    fields.Fail("content", "'content' and 'input' exclude each other");
  out.llama = content || dialect == EmbeddingDialect::kLlama;
  out.generation.prompt_field = content ? "content" : "input";
  out.generation.prompts = ReadTexts(fields, out.generation.prompt_field);
  ReadShared(fields, pooling, out.generation);
  if (!openai && fields.Int("embd_normalize", 2, -1, INT32_MAX) != 2)
    fields.FailUnsupported("embd_normalize",
                           "'embd_normalize' other than 2 is not supported: a vector has length 1");
  const std::string format = fields.String("encoding_format", "float");
  if (format != "float" && format != "base64")
    fields.Fail("encoding_format", "'encoding_format' must be float or base64");
  out.base64 = format == "base64";
  if (out.base64 && out.llama)
    fields.FailUnsupported("encoding_format", "base64 is not supported here; ask /v1/embeddings");
  out.dimensions = fields.Int32("dimensions", 0, 1, 1 << 20);
  fields.CheckUnknown(strict_fields);
  out.generation.ignored_fields = fields.ignored();
  RETURN_IF_ERROR(fields.status());
  return out;
}

Result<RerankRequest> ParseRerankRequest(std::string_view body, Pooling pooling, bool strict_fields,
                                         FieldLog* log) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Fields fields(json, log);
  RerankRequest out;
  const Json *texts = fields.Find("texts"), *documents = fields.Find("documents");
  out.tei = texts != nullptr;
  const Json* list = out.tei ? texts : documents;
  out.generation.prompt_field = out.tei ? "texts" : "documents";
  const std::string query = fields.String("query", "");
  if (query.empty()) fields.Fail("query", "'query' must be a text");
  out.pairs = pooling == Pooling::kRank;
  if (!out.pairs) out.generation.prompts.emplace_back(query);
  ReadDocuments(fields, list, out);
  // Cohere's clients limit a document's length and number of chunks. Chunks are not supported, so
  // the limit on them is ignored.
  const auto most = fields.Int("max_tokens_per_doc", 0, 1, INT32_MAX);
  (void)fields.Int("max_chunks_per_doc", 1, 1, INT32_MAX);
  const auto shared_query = std::make_shared<const std::string>(query);
  for (const std::string& text : out.documents) {
    if (out.pairs) out.generation.prompts.emplace_back(server::RankedPair{shared_query, text});
    if (!out.pairs) out.generation.prompts.emplace_back(text);
  }
  ReadShared(fields, pooling, out.generation);
  if (most > 0) out.generation.text_tokens_max = static_cast<int>(most);
  out.top_n = fields.Int32("top_n", 0, 1, INT32_MAX);
  out.return_documents =
      fields.Bool("return_documents", false) || fields.Bool("return_text", false);
  out.raw_scores = fields.Bool("raw_scores", false);
  if (out.raw_scores && !out.pairs)
    fields.FailUnsupported("raw_scores",
                           "'raw_scores' are not supported by this model: scores are similarities");
  fields.CheckUnknown(strict_fields);
  out.generation.ignored_fields = fields.ignored();
  RETURN_IF_ERROR(fields.status());
  return out;
}

}  // namespace thermocline::protocol
