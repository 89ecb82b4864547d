#include "server/openai/logprobs.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/bytes.h"

namespace thermocline::openai {
namespace {

using Score = TokenChannel::Score;

// JSON has no infinity. Source: OpenAI's API uses this value for impossible tokens.
Json Logprob(float value) { return std::max(double{value}, -9999.0); }

Json::Object ChatToken(const text::Tokenizer& tokenizer, const Score& score) {
  const std::string& bytes = tokenizer.TokenBytes(score.token, true);
  Json::Array numbers;
  numbers.reserve(bytes.size());
  for (const char byte : bytes) numbers.emplace_back(base::ByteOf(byte));
  return {{"token", base::ReplaceInvalidUtf8(bytes)},
          {"logprob", Logprob(score.logprob)},
          {"bytes", std::move(numbers)}};
}

std::string LegacyToken(const std::string& bytes) {
  if (base::ReplaceInvalidUtf8(bytes) == bytes) return bytes;
  std::string out = "bytes:";
  for (const char byte : bytes) {
    char text[8];
    std::snprintf(text, sizeof(text), "\\x%02x", base::ByteOf(byte));
    out += text;
  }
  return out;
}

std::int64_t Characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char byte) { return (base::ByteOf(byte) & 0xC0) != 0x80; });
}

}  // namespace

base::JsonList TokenLogprobs(const text::Tokenizer& tokenizer, int top,
                             std::span<const Score> scores) {
  const std::size_t stride = top + 1;
  base::JsonList content;
  for (std::size_t i = 0; i + stride <= scores.size(); i += stride) {
    Json::Object token = ChatToken(tokenizer, scores[i]);
    Json::Array others;
    for (const Score& other : scores.subspan(i + 1, stride - 1))
      others.emplace_back(ChatToken(tokenizer, other));
    token.emplace_back("top_logprobs", std::move(others));
    content.Add(std::move(token));
  }
  return content;
}

Json ChatLogprobs(const text::Tokenizer& tokenizer, int top, std::span<const Score> scores) {
  return Json::Object{{"content", TokenLogprobs(tokenizer, top, scores).Take()},
                      {"refusal", nullptr}};
}

std::string LegacyLogprobs::AddToken(int token, bool in_text) {
  const std::string& bytes = tokenizer_.TokenBytes(token, true);
  std::string text = LegacyToken(bytes);
  tokens_.Add(text);
  offsets_.Add(offset_);
  if (!in_text || bytes.empty()) return text;
  offset_ += Characters(bytes) - (drop_space_ && bytes.front() == ' ' ? 1 : 0);
  drop_space_ = false;
  return text;
}

void LegacyLogprobs::AddFirst(int token, bool in_text) {
  AddToken(token, in_text);
  logprobs_.Add(nullptr);
  tops_.Add(nullptr);
}

void LegacyLogprobs::Add(std::span<const Score> scores) {
  const std::size_t stride = top_ + 1;
  for (std::size_t i = 0; i + stride <= scores.size(); i += stride) {
    const std::string own = AddToken(scores[i].token, true);
    logprobs_.Add(Logprob(scores[i].logprob));
    Json top{Json::Object()};
    for (const Score& score : scores.subspan(i + 1, stride - 1)) {
      const std::string text = LegacyToken(tokenizer_.TokenBytes(score.token, true));
      if (top.Find(text) == nullptr) top.Set(text, Logprob(score.logprob));
    }
    top.Set(own, Logprob(scores[i].logprob));
    tops_.Add(top);
  }
}

Json LegacyLogprobs::Take() {
  return Json::Object{{"tokens", tokens_.Take()},
                      {"token_logprobs", logprobs_.Take()},
                      {"top_logprobs", tops_.Take()},
                      {"text_offset", offsets_.Take()}};
}

}  // namespace thermocline::openai
