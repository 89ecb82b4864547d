#include "server/protocol/embedding_answer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/index.h"
#include "engine/base/json_list.h"
#include "server/core/base64.h"
#include "server/protocol/answer_parts.h"

namespace thermocline::protocol {
namespace {

// The bytes of 32-bit floats, least significant first.
std::string Base64Of(const std::vector<float>& vector) {
  const auto* bytes = reinterpret_cast<const char*>(vector.data());
  return server::Base64({bytes, vector.size() * sizeof(float)});
}

Json UsageOf(const Usage& usage) {
  return Json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"total_tokens", usage.prompt_tokens}};
}

}  // namespace

std::vector<float> Shortened(std::vector<float> vector, int count) {
  if (count <= 0 || count >= base::IntSize(vector)) return vector;
  vector.resize(count);
  double squares = 0;
  for (const float value : vector) squares += double{value} * value;
  for (float& value : vector)
    if (squares > 0) value = static_cast<float>(value / std::sqrt(squares));
  return vector;
}

Json VectorJson(const std::vector<float>& vector) {
  base::JsonList out;
  for (const float value : vector) out.Add(double{value});
  return out.Take();
}

Json VectorsJson(const std::vector<std::vector<float>>& vectors) {
  base::JsonList out;
  for (const std::vector<float>& vector : vectors) out.Add(VectorJson(vector));
  return out.Take();
}

Json EmbeddingAnswer::FullResponse(const Usage& total) {
  base::JsonList data;
  for (std::size_t index = 0; index < vectors_.size(); ++index) {
    const std::vector<float> vector = Shortened(std::move(vectors_[index]), dimensions_);
    Json value = base64_ ? Json(Base64Of(vector)) : VectorJson(vector);
    if (llama_) {  // a list of embeddings, because without pooling each token would have one
      data.Add(Json::Object{{"index", index}, {"embedding", Json::Array{std::move(value)}}});
    } else {
      data.Add(
          Json::Object{{"object", "embedding"}, {"index", index}, {"embedding", std::move(value)}});
    }
  }
  if (llama_) return data.Take();
  return Json::Object{{"id", NewId("embd-")},
                      {"object", "list"},
                      {"data", data.Take()},
                      {"model", model_},
                      {"usage", UsageOf(total)}};
}

std::vector<double> RerankAnswer::Scores() const {
  std::vector<double> scores;
  for (std::size_t i = pairs_ ? 0 : 1; i < vectors_.size(); ++i) {
    if (pairs_) {
      const double score = vectors_[i][0];
      scores.push_back(raw_ ? score : 1 / (1 + std::exp(-score)));
      continue;
    }
    const double cosine =
        std::inner_product(vectors_[0].begin(), vectors_[0].end(), vectors_[i].begin(), 0.0);
    scores.push_back(std::clamp((1 + cosine) / 2, 0.0, 1.0));
  }
  return scores;
}

Json RerankAnswer::FullResponse(const Usage& total) {
  const std::vector<double> scores = Scores();
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  if (top_n_ > 0 && top_n_ < base::IntSize(order)) order.resize(top_n_);
  Json::Array results;
  for (const std::size_t index : order) {
    Json::Object result{{"index", index}, {tei_ ? "score" : "relevance_score", scores[index]}};
    if (with_text_ && tei_) result.emplace_back("text", documents_[index]);
    if (with_text_ && !tei_)
      result.emplace_back("document", Json::Object{{"text", documents_[index]}});
    results.emplace_back(std::move(result));
  }
  if (tei_) return results;
  return Json::Object{{"id", NewId("rerank-")},
                      {"object", "list"},
                      {"model", model_},
                      {"results", std::move(results)},
                      {"usage", UsageOf(total)}};
}

}  // namespace thermocline::protocol
