#include "server/openai/logprobs.h"

#include <algorithm>
#include <cstdio>

namespace thermocline::openai {
namespace {

using Score = TokenChannel::Score;

// JSON has no infinity. Source: what OpenAI's API says of tokens that cannot come.
Json Logprob(float value) { return std::max(static_cast<double>(value), -9999.0); }

Json::Object ChatToken(const text::Tokenizer& tokenizer, const Score& score) {
  const std::string& bytes = tokenizer.TokenBytes(score.token, true);
  Json::Array numbers;
  numbers.reserve(bytes.size());
  for (const char byte : bytes)
    numbers.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return {{"token", base::ReplaceInvalidUtf8(bytes)},
          {"logprob", Logprob(score.logprob)},
          {"bytes", std::move(numbers)}};
}

std::string LegacyToken(const std::string& bytes) {
  if (base::ReplaceInvalidUtf8(bytes) == bytes) return bytes;
  std::string out = "bytes:";
  for (const char byte : bytes) {
    char text[8];
    std::snprintf(text, sizeof(text), "\\x%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(byte)));
    out += text;
  }
  return out;
}

std::int64_t Characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

}  // namespace

Json ChatLogprobs(const text::Tokenizer& tokenizer, int top, std::span<const Score> scores) {
  const auto stride = static_cast<std::size_t>(top) + 1;
  Json::Array content;
  for (std::size_t i = 0; i + stride <= scores.size(); i += stride) {
    Json::Object token = ChatToken(tokenizer, scores[i]);
    Json::Array others;
    for (const Score& other : scores.subspan(i + 1, stride - 1))
      others.emplace_back(ChatToken(tokenizer, other));
    token.emplace_back("top_logprobs", std::move(others));
    content.emplace_back(std::move(token));
  }
  return Json::Object{{"content", std::move(content)}, {"refusal", nullptr}};
}

void LegacyLogprobs::AddToken(int token, bool in_text) {
  const std::string& bytes = tokenizer_.TokenBytes(token, true);
  tokens_.emplace_back(LegacyToken(bytes));
  offsets_.emplace_back(offset_);
  if (!in_text || bytes.empty()) return;
  offset_ += Characters(bytes) - (drop_space_ && bytes.front() == ' ' ? 1 : 0);
  drop_space_ = false;
}

void LegacyLogprobs::AddFirst(int token, bool in_text) {
  AddToken(token, in_text);
  logprobs_.emplace_back(nullptr);
  tops_.emplace_back(nullptr);
}

void LegacyLogprobs::Add(std::span<const Score> scores) {
  const auto stride = static_cast<std::size_t>(top_) + 1;
  for (std::size_t i = 0; i + stride <= scores.size(); i += stride) {
    AddToken(scores[i].token, true);
    logprobs_.emplace_back(Logprob(scores[i].logprob));
    Json top{Json::Object()};
    for (const Score& score : scores.subspan(i + 1, stride - 1)) {
      const std::string text = LegacyToken(tokenizer_.TokenBytes(score.token, true));
      if (top.Find(text) == nullptr) top.Set(text, Logprob(score.logprob));
    }
    top.Set(tokens_.back().as_string(), Logprob(scores[i].logprob));
    tops_.emplace_back(std::move(top));
  }
}

Json LegacyLogprobs::Take() {
  return Json::Object{{"tokens", std::exchange(tokens_, {})},
                      {"token_logprobs", std::exchange(logprobs_, {})},
                      {"top_logprobs", std::exchange(tops_, {})},
                      {"text_offset", std::exchange(offsets_, {})}};
}

}  // namespace thermocline::openai
