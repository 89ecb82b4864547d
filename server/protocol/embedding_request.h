// From the bodies of POST /v1/embeddings and /v1/rerank to a Request.
#pragma once

#include <string>
#include <vector>

#include "server/core/asked.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// The fields for texts, and the answer's shape.
enum class EmbeddingDialect {
  kOpenAi,  // "input"
  kLlama,   // llama-server's "content", or "input": a list of {"index", "embedding": [vector]}
  kByField  // "content" as kLlama, "input" as kOpenAi: a client's base URL may lack "/v1"
};

struct EmbeddingRequest {
  server::Asked asked;
  bool llama = false;   // the answer has llama-server's shape
  bool base64 = false;  // else lists of numbers
  int dimensions = 0;   // the first ones, made a vector of length 1 again; 0 = all
};

// `pooling`: the one that the model's file recommends, for requests that name none.
// `strict_fields`: unknown fields are refused.
Result<EmbeddingRequest> ParseEmbeddingRequest(
    std::string_view body, Pooling pooling, bool strict_fields = false, FieldLog* log = nullptr,
    EmbeddingDialect dialect = EmbeddingDialect::kOpenAi);

struct RerankRequest {
  server::Asked asked;                 // the query, then the documents
  std::vector<std::string> documents;  // to be given back
  int top_n = 0;                       // the best of them; 0 = all
  bool return_documents = false;
  bool tei = false;  // the shape of Hugging Face's server: a list alone
};

Result<RerankRequest> ParseRerankRequest(std::string_view body, Pooling pooling,
                                         bool strict_fields = false, FieldLog* log = nullptr);

}  // namespace thermocline::protocol
