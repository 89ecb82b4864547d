#include "server/core/api_keys.h"

#include <gtest/gtest.h>

namespace thermocline::server {
namespace {

constexpr const char* kKey = "0123456789abcdef0123456789abcdef";
// printf 0123456789abcdef0123456789abcdef | sha256sum
constexpr const char* kHash = "3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9";

TEST(ApiKeysTest, FindsTheOwnerOfAKey) {
  const auto alice = ApiKeys::MakeLine("alice", kKey);
  const auto bob = ApiKeys::MakeLine("bob", "another key of some length");
  ASSERT_TRUE(alice.ok());
  EXPECT_EQ(bob.status().code(), StatusCode::kInvalidArgument);  // blanks
  const auto ops = ApiKeys::MakeLine("ops", "the-key-of-the-operators");
  const auto keys =
      ApiKeys::Parse("# people\n\n  " + *alice + "\r\n" + *ops + ":admin:priority=5\n", "keys");
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  const auto found = keys->Check(kKey);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "alice");
  EXPECT_FALSE(found->admin);
  EXPECT_EQ(found->priority_max, 0);
  const auto admin = keys->Check("the-key-of-the-operators");
  ASSERT_TRUE(admin.has_value());
  EXPECT_TRUE(admin->admin);
  EXPECT_EQ(admin->priority_max, 5);
  for (const std::string wrong :
       {"", "0", "0123456789abcdef0123456789abcdeg", "the-key-of-the-operator"})
    EXPECT_FALSE(keys->Check(wrong).has_value()) << wrong;
  EXPECT_FALSE(keys->Check(std::string(1 << 20, 'x')).has_value());
}

TEST(ApiKeysTest, ABearersKeyIsFoundAsTheStandardWritesIt) {
  for (const char* value : {"Bearer k=y", "bearer k=y", "BEARER k=y", "Bearer   k=y"})
    EXPECT_EQ(BearerKey(value), "k=y") << value;
  for (const char* value : {"", "k=y", "Bearer", "Bearer ", "Bearer   ", "Bearerk=y", "Basic k=y"})
    EXPECT_FALSE(BearerKey(value).has_value()) << value;
}

TEST(ApiKeysTest, HashesAsSha256sumDoes) {
  EXPECT_EQ(*ApiKeys::MakeLine("a", kKey), StrCat("a:", kHash));
}

TEST(ApiKeysTest, RefusesBadLinesWithoutShowingThem) {
  const std::string good = *ApiKeys::MakeLine("alice", kKey);
  const std::string hash = good.substr(6);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "holds no key"},
      {"# only a comment\n", "holds no key"},
      {"alice:secret-in-the-clear\n", "keys:1: expected NAME:SHA256"},
      {good + "x\n", "keys:1: expected"},
      {"alice:" + hash.substr(1) + "g\n", "keys:1: expected"},
      {"al ice:" + hash + "\n", "keys:1: a name has"},
      {":" + hash + "\n", "keys:1: a name has"},
      {good + "\n\n" + good + "\n", "keys:3: the name alice comes twice"},
      {good + "\nbob:" + hash + "\n", "keys:2: bob has the key of alice"},
      {good + ":root\n", "keys:1: an option is"},
      {good + ":priority=11\n", "keys:1: an option is"},
      {good + ":priority=\n", "keys:1: an option is"},
      {good + ":models= ,\n", "keys:1: models= needs"},
  };
  for (const auto& [text, words] : cases) {
    const auto keys = ApiKeys::Parse(text, "keys");
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_NE(keys.status().message().find(words), std::string::npos) << keys.status().message();
    EXPECT_EQ(keys.status().message().find("secret"), std::string::npos);
  }
  EXPECT_EQ(ApiKeys::Load("/nowhere").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ApiKeys::MakeLine("a", "short").ok());
  EXPECT_FALSE(ApiKeys::MakeLine("a:b", kKey).ok());
}

}  // namespace
}  // namespace thermocline::server
