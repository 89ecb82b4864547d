// Compiled grammars stay within their memory limit, in the cache and in use.
#include "engine/grammar/grammar_compiler.h"

#include <gtest/gtest.h>

#include "tests/engine/grammar/small_vocabulary.h"

namespace thermocline::grammar {
namespace {

constexpr std::int64_t kMemory = 8 << 20;

class GrammarCompilerTest : public testing::Test {
 protected:
  Result<std::shared_ptr<const CompiledGrammar>> Compile(const std::string& pattern) {
    auto compiled = compiler_.Compile(
        {.kind = GrammarSpec::Kind::kRegex, .text = pattern, .field = "structured_outputs"});
    EXPECT_LE(compiler_.Stats().held_bytes, limits_.compiled_bytes_max());
    return compiled;
  }
  Result<std::shared_ptr<const CompiledGrammar>> Small(int i) {
    return Compile(StrCat("small ", i));
  }
  Result<std::shared_ptr<const CompiledGrammar>> Large(int i) {
    return Compile(StrCat("(large ", i, "[a-z]{3}){240}"));
  }

  const GrammarLimits limits_{.memory_bytes = kMemory};
  const std::unique_ptr<text::Tokenizer> tokenizer_ = SmallTokenizer({"the", "owl"});
  GrammarCompiler compiler_{*tokenizer_, tokenizer_->vocabulary().size(), limits_};
};

TEST_F(GrammarCompilerTest, WhatNobodyUsesGivesWay) {
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Large(i).ok()) << i;
  const GrammarStats stats = compiler_.Stats();
  EXPECT_EQ(stats.compiled, 100);
  EXPECT_LT(stats.cache_entries, 100);
  EXPECT_GT(stats.held_bytes, limits_.compiled_bytes_max() / 4);  // evicts no more than needed
  EXPECT_EQ(stats.held_bytes, stats.cache_bytes);
}

TEST_F(GrammarCompilerTest, WhatAnswersUseIsRefusedToOthersAndComesBack) {
  std::vector<std::shared_ptr<const CompiledGrammar>> used;
  Status refused;
  for (int i = 0; i < 100 && refused.ok(); ++i) {
    auto compiled = Large(i);
    if (compiled.ok()) {
      used.push_back(*compiled);
    } else {
      refused = compiled.status();
    }
  }
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.field(), "structured_outputs");
  // Large grammars leave room for small ones.
  EXPECT_LE(compiler_.Stats().held_bytes, limits_.compiled_bytes_max() / 2);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Small(i).ok()) << i;
  // A cached grammar is shared and takes no more memory.
  const std::int64_t held = compiler_.Stats().held_bytes;
  EXPECT_TRUE(Large(0).ok());
  EXPECT_EQ(compiler_.Stats().held_bytes, held);
  used.clear();
  EXPECT_TRUE(Large(100).ok());
}

TEST_F(GrammarCompilerTest, AnAnswerOutlivesTheCompiler) {
  const GrammarLimits limits{.cache_bytes = 0, .memory_bytes = kMemory};
  auto compiler =
      std::make_unique<GrammarCompiler>(*tokenizer_, tokenizer_->vocabulary().size(), limits);
  const auto compiled = compiler->Compile({.kind = GrammarSpec::Kind::kRegex, .text = "owl"});
  ASSERT_TRUE(compiled.ok());
  EXPECT_EQ(compiler->Stats().cache_entries, 0);
  EXPECT_EQ(compiler->Stats().held_bytes, static_cast<std::int64_t>((*compiled)->bytes_held()));
  compiler.reset();
  EXPECT_TRUE(Takes(*compiled, "owl"));
}

// Tables only save time, so they are omitted first.
TEST(CompiledGrammarTest, TablesTakeWhatIsLeft) {
  std::vector<std::string> words;
  for (char a = 'a'; a <= 'z'; ++a)
    for (char b = 'a'; b <= 'z'; ++b) words.push_back({a, b});
  const SmallVocabulary vocabulary(words);
  const auto total = std::make_shared<HeldBytes::Total>(0);
  const auto tables = [&](std::size_t left) -> std::size_t {
    Budget budget(1000, 60, kBytesMax);
    const auto parsed = ParseGbnf("root ::= [a-z]* \"1\"", {}, budget);
    EXPECT_TRUE(parsed.ok());
    const auto compiled = CompiledGrammar::Create(
        *parsed,
        {.vocabulary = std::make_shared<const VocabularyIndex>(vocabulary.index()),
         .counters = nullptr,
         .take_room = [&](std::size_t least,
                          std::size_t) { return HeldBytes(total, least + left); }},
        budget);
    EXPECT_TRUE(compiled.ok());
    EXPECT_EQ(*total, static_cast<std::int64_t>((*compiled)->bytes_held()));
    EXPECT_TRUE(Takes(*compiled, "owl1"));
    return (*compiled)->tables();
  };
  EXPECT_GT(tables(1 << 20), 0U);
  EXPECT_EQ(tables(16), 0U);
  EXPECT_EQ(*total, 0);
}

}  // namespace
}  // namespace thermocline::grammar
