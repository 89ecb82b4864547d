// Parses the bodies of POST /v1/embeddings and /v1/rerank into a Request.
#pragma once

#include <string>
#include <vector>

#include "server/core/generation_request.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// The names of the text fields, and the answer's format.
enum class EmbeddingDialect {
  kOpenAi,  // "input"
  kLlama,   // llama-server's "content", or "input": a list of {"index", "embedding": [vector]}
  kByField  // "content" as kLlama, "input" as kOpenAi, since a client's base URL may lack "/v1"
};

struct EmbeddingRequest {
  server::GenerationRequest generation;
  bool llama = false;   // the answer has llama-server's format
  bool base64 = false;  // false: lists of numbers
  int dimensions = 0;   // keep the first ones, normalized to length 1; 0 = all
};

// `pooling`: the default, recommended by the model's file. `strict_fields`: unknown fields are
// rejected.
Result<EmbeddingRequest> ParseEmbeddingRequest(
    std::string_view body, Pooling pooling, bool strict_fields = false, FieldLog* log = nullptr,
    EmbeddingDialect dialect = EmbeddingDialect::kOpenAi);

struct RerankRequest {
  // The query, then the documents; with `pairs` each of these with the query.
  server::GenerationRequest generation;
  std::vector<std::string> documents;  // returned with the answer
  int top_n = 0;                       // return only the best; 0 = all
  bool pairs = false;                  // the model scores pairs of texts
  bool raw_scores = false;             // without bounds, of pairs
  bool return_documents = false;
  bool tei = false;  // the format of Hugging Face's server: only a list
};

Result<RerankRequest> ParseRerankRequest(std::string_view body, Pooling pooling,
                                         bool strict_fields = false, FieldLog* log = nullptr);

}  // namespace thermocline::protocol
