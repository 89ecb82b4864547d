#include "server/openai/embedding_answer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/index.h"
#include "server/core/base64.h"
#include "server/openai/response.h"

namespace thermocline::openai {
namespace {

// The bytes of 32-bit floats, the least significant first.
std::string Base64Of(const std::vector<float>& vector) {
  const auto* bytes = reinterpret_cast<const char*>(vector.data());
  return server::Base64({bytes, vector.size() * sizeof(float)});
}

Json ListOf(const std::vector<float>& vector) {
  Json::Array out;
  out.reserve(vector.size());
  for (const float value : vector) out.emplace_back(double{value});
  return out;
}

Json UsageOf(const Usage& usage) {
  return Json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"total_tokens", usage.prompt_tokens}};
}

}  // namespace

std::vector<float> Shortened(std::vector<float> vector, int count) {
  if (count <= 0 || count >= base::IntSize(vector)) return vector;
  vector.resize(static_cast<std::size_t>(count));
  double squares = 0;
  for (const float value : vector) squares += double{value} * value;
  for (float& value : vector)
    if (squares > 0) value = static_cast<float>(value / std::sqrt(squares));
  return vector;
}

Json EmbeddingAnswer::Whole(const Usage& total) {
  Json::Array data;
  for (std::vector<float>& each : vectors_) {
    const std::vector<float> vector = Shortened(std::move(each), dimensions_);
    Json value = base64_ ? Json(Base64Of(vector)) : ListOf(vector);
    if (llama_) {  // a list of vectors, because without pooling each token would have one
      data.push_back(
          Json::Object{{"index", data.size()}, {"embedding", Json::Array{std::move(value)}}});
    } else {
      data.push_back(Json::Object{
          {"object", "embedding"}, {"index", data.size()}, {"embedding", std::move(value)}});
    }
  }
  if (llama_) return data;
  return Json::Object{{"id", NewId("embd-")},
                      {"object", "list"},
                      {"data", std::move(data)},
                      {"model", model_},
                      {"usage", UsageOf(total)}};
}

Json RerankAnswer::Whole(const Usage& total) {
  std::vector<double> scores;
  for (std::size_t i = 1; i < vectors_.size(); ++i) {
    const double cosine =
        std::inner_product(vectors_[0].begin(), vectors_[0].end(), vectors_[i].begin(), 0.0);
    scores.push_back(std::clamp((1 + cosine) / 2, 0.0, 1.0));
  }
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  if (top_n_ > 0 && top_n_ < base::IntSize(order)) order.resize(static_cast<std::size_t>(top_n_));
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

}  // namespace thermocline::openai
