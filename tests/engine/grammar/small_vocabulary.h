// A tokenizer with given tokens, and grammars bound to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/grammar/compiled_grammar.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/matcher.h"
#include "engine/text/tokenizer.h"

namespace thermocline::grammar {

inline constexpr int kEnd = 0;  // the token that ends an answer

// Token 0 is "</s>", tokens 1 to 256 are the bytes, then come `words`, then the control token
// "<call>".
inline std::unique_ptr<text::Tokenizer> SmallTokenizer(const std::vector<std::string>& words) {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kSentencePiece;
  const auto add = [&v](const std::string& token, model::TokenType type) {
    v.tokens.push_back(token);
    v.types.push_back(type);
    v.scores.push_back(0);
  };
  add("</s>", model::TokenType::kControl);
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", model::TokenType::kByte);
  for (const std::string& word : words) add(word, model::TokenType::kNormal);
  add("<call>", model::TokenType::kControl);
  v.eos = kEnd;
  auto tokenizer = text::Tokenizer::Create(v);
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

inline constexpr std::size_t kBytesMax = 64 << 20;  // for compiling one grammar

class SmallVocabulary {
 public:
  explicit SmallVocabulary(const std::vector<std::string>& words)
      : tokenizer_(SmallTokenizer(words)),
        index_(std::make_shared<const VocabularyIndex>(*tokenizer_,
                                                       tokenizer_->vocabulary().size() + 3)) {}

  Result<std::shared_ptr<const CompiledGrammar>> Gbnf(const std::string& text,
                                                      std::size_t table_bytes = 1 << 20) const {
    Budget budget(20'000, 60, kBytesMax);
    ASSIGN_OR_RETURN(
        const Grammar parsed,
        ParseGbnf(text, {.find_token = [this](const std::string& t) { return index_->Find(t); }},
                  budget));
    return CompiledGrammar::Create(
        parsed, {.vocabulary = index_, .counters = nullptr, .table_bytes_max = table_bytes},
        budget);
  }
  Result<std::shared_ptr<const CompiledGrammar>> Schema(const std::string& text,
                                                        std::size_t states = 100'000) const {
    Budget budget(states, 60, kBytesMax);
    ASSIGN_OR_RETURN(const Json schema, base::ParseJson(text));
    ASSIGN_OR_RETURN(const Grammar parsed, GrammarOfSchema(schema, budget));
    return CompiledGrammar::Create(parsed, {.vocabulary = index_, .counters = nullptr}, budget);
  }
  const VocabularyIndex& index() const { return *index_; }
  int size() const { return index_->vocab_size(); }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::shared_ptr<const VocabularyIndex> index_;
};

// True if the grammar accepts `text` as byte tokens.
inline bool Takes(const std::shared_ptr<const CompiledGrammar>& grammar, const std::string& text) {
  Matcher matcher(static_cast<int>(text.size()) + 1);
  matcher.Begin(grammar);
  for (const char c : text) {
    const int token = 1 + static_cast<unsigned char>(c);
    if (!HasBit(matcher.Mask(), token)) return false;
    matcher.Accept(token);
  }
  return matcher.complete() || matcher.IsOver(text.size());
}

}  // namespace thermocline::grammar
