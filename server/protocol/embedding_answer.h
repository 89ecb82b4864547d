// Answers of /v1/embeddings and /v1/rerank.
#pragma once

#include <string>
#include <vector>

#include "server/core/answer_format.h"
#include "server/protocol/embedding_request.h"

namespace thermocline::protocol {

// The common part of both: they return embeddings and are never streamed.
class VectorsAnswer : public server::AnswerFormat {
 public:
  std::string OnStart(int) override { return ""; }
  std::string OnDelta(const server::ChoiceDelta& delta) override {
    vectors_.insert(vectors_.end(), delta.embeddings.begin(), delta.embeddings.end());
    return "";
  }
  std::string OnEnd(const server::ChoiceEnd&) override { return ""; }
  std::string Fail(const Status&, CancelCause) override { return ""; }

 protected:
  std::vector<std::vector<float>> vectors_;  // in the prompts' order, each of length 1
};

class EmbeddingAnswer final : public VectorsAnswer {
 public:
  EmbeddingAnswer(std::string model, const EmbeddingRequest& request)
      : model_(std::move(model)),
        llama_(request.llama),
        base64_(request.base64),
        dimensions_(request.dimensions) {}
  Json FullResponse(const Usage& total) override;

 private:
  const std::string model_;
  const bool llama_, base64_;
  const int dimensions_;
};

// Scores are (1 + the cosine of query and document) / 2 or, of a model that scores pairs, the
// sigmoid of its score.
class RerankAnswer final : public VectorsAnswer {
 public:
  RerankAnswer(std::string model, const RerankRequest& request)
      : model_(std::move(model)),
        documents_(request.documents),
        top_n_(request.top_n),
        with_text_(request.return_documents),
        pairs_(request.pairs),
        raw_(request.raw_scores),
        tei_(request.tei) {}
  Json FullResponse(const Usage& total) override;

 private:
  const std::string model_;
  const std::vector<std::string> documents_;
  const int top_n_;
  std::vector<double> Scores() const;

  const bool with_text_, pairs_, raw_, tei_;
};

// The first `count` dimensions of a vector, normalized to length 1; 0 = all of them.
std::vector<float> Shortened(std::vector<float> vector, int count);

// A vector as a list of numbers, and a list of such lists. Only Json::Dump can read these values.
Json VectorJson(const std::vector<float>& vector);
Json VectorsJson(const std::vector<std::vector<float>>& vectors);

}  // namespace thermocline::protocol
