#include "server/chat/answer_keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "server/chat/token_file.h"
#include "server/chat/token_memory.h"

namespace thermocline::chat {
namespace {

Json::Array Messages(const std::string& text) { return base::ParseJson(text)->as_array(); }

// A conversation with one answer, a call whose arguments have this JSON text.
std::string Asked(const std::string& arguments, const std::string& content = "\"\"") {
  return R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": )" + content +
         R"(, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": )" +
         arguments + "}}]}]";
}

base::Digest256 KeyOf(const std::string& messages, const std::string& owner = "") {
  return KeysOfAnswers(owner, Messages(messages)).answers.at(0).key;
}

TEST(AnswerKeys, DoNotDependOnTheSpellingOfArguments) {
  const auto key = KeyOf(Asked(R"({"a": 1, "b": "é"})"));
  EXPECT_EQ(KeyOf(Asked(R"({"b":"\u00e9","a":1.0})")), key);
  EXPECT_EQ(KeyOf(Asked(R"("{\"b\": \"é\", \"a\": 1}")")), key);
  EXPECT_EQ(KeyOf(Asked(R"({"a": 1, "b": "é"})", R"(" \n")")), key);
  EXPECT_EQ(KeyOf(Asked(R"({"a": 1, "b": "é"})", "null")), key);
}

TEST(AnswerKeys, DependOnWhatTheClientHasSeen) {
  const auto key = KeyOf(Asked(R"({"a": 1})"));
  EXPECT_NE(KeyOf(Asked(R"({"a": 2})")), key);
  EXPECT_NE(KeyOf(Asked(R"({"a": "1"})")), key);
  EXPECT_NE(KeyOf(Asked(R"({"a": 1})", R"("Sure.")")), key);
  EXPECT_NE(KeyOf(Asked(R"({"a": 1})"), "another"), key);
  std::string other = Asked(R"({"a": 1})");
  other.replace(other.find("Hi"), 2, "Ho");
  EXPECT_NE(KeyOf(other), key);
}

TEST(AnswerKeys, AnAnswerHasTheSameKeyWhenItComesBack) {
  const auto before = KeysOfAnswers("me", Messages(R"([{"role": "user", "content": "Hi"}])"));
  EXPECT_TRUE(before.answers.empty());
  WholeMessage answer{.text = "Let me look.\n\n", .reasoning = "a thought", .calls = {}};
  answer.calls.push_back({.id = "call_x", .name = "f", .arguments = R"({"a":1})"});
  const auto key = KeyOfAnswer(before.messages, answer);
  EXPECT_EQ(KeyOf(Asked(R"({"a": 1})", R"("Let me look.")"), "me"), key);
}

TEST(AnswerKeys, TwoMessagesOfOneAnswerAreOne) {
  const auto one = KeysOfAnswers("", Messages(Asked("{}", R"("Sure.")")));
  std::string split = Asked("{}");
  split.insert(split.find(R"({"role": "assistant")"),
               R"({"role": "assistant", "content": "Sure."}, )");
  const auto two = KeysOfAnswers("", Messages(split));
  ASSERT_EQ(two.answers.size(), 1U);
  EXPECT_EQ(two.answers[0].key, one.answers[0].key);
  EXPECT_EQ(two.answers[0].count, 2);
  EXPECT_EQ(two.messages, one.messages);
}

TEST(AnswerKeys, ACutCallHasAKey) {
  EXPECT_EQ(KeyOf(Asked(R"("{\"a\": \"unfini")")), KeyOf(Asked(R"("{\"a\": \"unfini")")));
  EXPECT_NE(KeyOf(Asked(R"("{\"a\": \"unfini")")), KeyOf(Asked(R"("{\"a\": \"unfin")")));
}

base::Digest256 Key(int number) {
  base::Digest256 key{};
  key.back() = static_cast<std::byte>(number);
  return key;
}

TEST(TokenMemory, ForgetsTheAnswersUsedLongestAgo) {
  TokenMemory memory(16 << 10);
  const std::vector<int> tokens(500);
  for (int i = 0; i < 7; ++i) {
    memory.Remember(Key(i), tokens);
    ASSERT_NE(memory.Find(Key(0)), nullptr) << i;  // keeps it
  }
  memory.Remember(Key(7), tokens);
  EXPECT_EQ(memory.Find(Key(1)), nullptr);
  EXPECT_NE(memory.Find(Key(0)), nullptr);
  EXPECT_NE(memory.Find(Key(7)), nullptr);
  EXPECT_LE(memory.bytes(), 16U << 10);
}

// One key's many short answers made those of all others forgotten.
TEST(TokenMemory, AnOwnerMakesItsOwnAnswersForgotten) {
  TokenMemory memory(16 << 10);
  const auto before = [](std::string_view owner) { return KeysOfAnswers(owner, {}).messages; };
  const auto answer = [](int number) {
    return WholeMessage{.text = base::StrCat(number), .reasoning = {}, .calls = {}};
  };
  const base::Digest256 good = KeyOfAnswer(before("good"), answer(0));
  memory.Remember(good, std::vector<int>(500));
  for (int i = 0; i < 1000; ++i)
    memory.Remember(KeyOfAnswer(before("bad"), answer(i)), std::vector<int>(1));
  EXPECT_NE(memory.Find(good), nullptr);
  EXPECT_NE(memory.Find(KeyOfAnswer(before("bad"), answer(999))), nullptr);
  EXPECT_EQ(memory.Find(KeyOfAnswer(before("bad"), answer(0))), nullptr);
  EXPECT_EQ(memory.Answers().front().second->size(), 1U);  // the good one was used later
}

TEST(TokenMemory, KeepsTheLastTokensOfAnAnswer) {
  TokenMemory memory(16 << 10);
  memory.Remember(Key(1), {1, 2});
  memory.Remember(Key(1), {3});
  EXPECT_EQ(*memory.Find(Key(1)), std::vector<int>{3});
  const std::size_t bytes = memory.bytes();
  memory.Remember(Key(1), {4});
  EXPECT_EQ(memory.bytes(), bytes);
}

TEST(TokenMemory, DoesNotTakeWhatWouldPushOutMostOthers) {
  TokenMemory memory(16 << 10);
  memory.Remember(Key(1), {1});
  memory.Remember(Key(2), std::vector<int>(2000));
  EXPECT_EQ(memory.Find(Key(2)), nullptr);
  EXPECT_NE(memory.Find(Key(1)), nullptr);
}

class TokenFileTest : public testing::Test {
 protected:
  std::unique_ptr<TokenFile> Open(TokenMemory& memory) const {
    auto file = TokenFile::Open(path_, memory);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *std::move(file);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "/answers" + std::to_string(::getpid());
};

TEST_F(TokenFileTest, AnswersOutliveTheProcess) {
  {
    TokenMemory memory;
    const auto file = Open(memory);
    for (int i = 0; i < 100; ++i) file->Append(Key(i), {i, i + 1});
  }
  TokenMemory memory;
  const auto file = Open(memory);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*memory.Find(Key(i)), (std::vector<int>{i, i + 1}));
}

// The file is cut or changed at every byte: what is read is right, and it can be appended to.
TEST_F(TokenFileTest, ADamagedRecordEndsTheFile) {
  {
    TokenMemory memory;
    const auto file = Open(memory);
    for (int i = 0; i < 3; ++i) file->Append(Key(i), {i, i});
  }
  std::ifstream in(path_, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const bool cut : {false, true}) {
      std::string bytes = cut ? whole.substr(0, at) : whole;
      if (!cut) bytes[at] = static_cast<char>(bytes[at] ^ 0x5a);
      std::ofstream(path_, std::ios::binary) << bytes;
      TokenMemory memory;
      Open(memory)->Append(Key(9), {9});
      for (int i = 0; i < 3; ++i) {
        const auto found = memory.Find(Key(i));
        EXPECT_TRUE(found == nullptr || *found == (std::vector<int>{i, i})) << at;
      }
      TokenMemory again;
      (void)Open(again);
      EXPECT_NE(again.Find(Key(9)), nullptr) << at;
    }
  }
}

TEST_F(TokenFileTest, ASecondProcessOnlyReads) {
  TokenMemory first, second;
  const auto writer = Open(first);
  const auto reader = Open(second);
  reader->Append(Key(1), {1});
  EXPECT_TRUE(std::filesystem::is_empty(path_));
}

}  // namespace
}  // namespace thermocline::chat
