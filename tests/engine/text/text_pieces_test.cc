#include "engine/text/text_pieces.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include "engine/base/strings.h"
#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"

namespace thermocline::text {
namespace {

// Random words, spaces and signs, in which most pairs are adjacent somewhere.
std::string RandomText(std::mt19937& random, int parts) {
  static const std::vector<std::string> kParts = {
      "a",      "The",    "zebra",   "don't",        "I'LL",   "x",      " ",
      "  ",     "    ",   "\n",      "\r\n",         "\t",     "\n ",    " \n",
      "1",      "1234",   ".",       "!?",           "(",      "'",      "'s",
      "_",      "/",      "\u00e9",  "\u6f22\u5b57", "\u00a0", "\u2581", "\U0001F600",
      "\u0301", "\u0645", "<|end|>", "\xff"};
  std::string text;
  for (int i = 0; i < parts; ++i) {
    text += kParts[random() % kParts.size()];
    if (random() % 2 == 0) text += random() % 4 == 0 ? " b" : " word";
  }
  return text;
}

// One name of every pre-tokenizer of byte-level BPE.
constexpr const char* kPreTokenizers[] = {
    "gpt-2",      "smollm",       "default",        "llama-bpe",  "glm4",   "smaug-bpe",
    "seed-coder", "kimi-k2",      "qwen2",          "qwen35",     "tekken", "gpt-4o",
    "falcon",     "deepseek-llm", "deepseek-coder", "deepseek-v3"};

TEST(TextPieces, NoPreTokenizersWordCrossesTheirEnds) {
  std::mt19937 random(3);
  int cuts = 0;
  for (const char* name : kPreTokenizers) {
    const auto pre = PreTokenizer::Create(name);
    ASSERT_TRUE(pre.ok()) << name;
    for (int round = 0; round < 60; ++round) {
      const std::string text = base::ReplaceInvalidUtf8(RandomText(random, 12));
      const std::string_view all = text;
      const auto whole = (*pre)->Split(all);
      for (std::size_t pos = 1; pos < text.size(); ++pos) {
        if (!IsBetweenWords(text, pos)) continue;
        ++cuts;
        auto pieces = (*pre)->Split(all.substr(0, pos));
        const auto behind = (*pre)->Split(all.substr(pos));
        pieces.insert(pieces.end(), behind.begin(), behind.end());
        ASSERT_EQ(pieces, whole) << name << ": " << text << " at " << pos;
      }
    }
  }
  EXPECT_GT(cuts, 1000);
}

TEST(TextPieces, AMarkBehindACharacterThatATokenHasBeforeOneIsNoCut) {
  MarkCuts cuts;
  cuts.AddToken("\u2581a");
  cuts.AddToken("b\u2581c");
  cuts.AddToken("\u2581\u2581");
  EXPECT_TRUE(cuts("a\u2581a", 1));
  EXPECT_FALSE(cuts("b\u2581a", 1));
  EXPECT_FALSE(cuts("\u2581\u2581", 3));
  EXPECT_FALSE(cuts("aa", 1));
}

class EncodedInPieces : public testing::Test {
 protected:
  // Cuts the text at every allowed place, then in longer pieces.
  static void Check(const std::string& path, const std::vector<std::string>& texts) {
    const auto file = model::OpenModelOrVocabulary(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto tokenizer = Tokenizer::Create((*file)->vocabulary);
    ASSERT_TRUE(tokenizer.ok()) << path << tokenizer.status().message();
    for (const std::string& text : texts) {
      const auto whole =
          (*tokenizer)
              ->Encode(text, {.control_tokens = true,
                              .piece_bytes = std::numeric_limits<std::size_t>::max()});
      for (const std::size_t bytes : {0, 1, 7, 100})
        ASSERT_EQ((*tokenizer)->Encode(text, {.control_tokens = true, .piece_bytes = bytes}), whole)
            << path << ": " << text;
    }
  }
  static std::vector<std::string> RandomTexts() {
    std::mt19937 random(5);
    std::vector<std::string> texts;
    for (int i = 0; i < 200; ++i) texts.push_back(RandomText(random, i));
    return texts;
  }
};

TEST_F(EncodedInPieces, TextHasTheTokensOfTheWhole) {
  Check(SOURCE_DIR "/config/models/tidepool.gguf", RandomTexts());
  Check(SOURCE_DIR "/tests/golden/models/stories260K/stories260K.bin", RandomTexts());
}

// Every supported vocabulary of llama.cpp, with its texts.
TEST_F(EncodedInPieces, TextHasTheTokensOfTheWholeInEveryVocabulary) {
  const char* peer = std::getenv("THERMOCLINE_PEER");
  if (peer == nullptr) GTEST_SKIP() << "THERMOCLINE_PEER is not set; tests/run.sh sets it";
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(StrCat(peer, "/models"))) {
    const std::string path = entry.path().string();
    std::ifstream inputs(path + ".inp");
    if (!path.ends_with(".gguf") || !inputs || path.find("bert") != std::string::npos) continue;
    std::vector<std::string> texts = RandomTexts();
    texts.emplace_back(std::istreambuf_iterator<char>(inputs), std::istreambuf_iterator<char>());
    Check(path, texts);
    ++checked;
  }
  EXPECT_GE(checked, 14);
}

}  // namespace
}  // namespace thermocline::text
