#include "engine/base/strings.h"

#include <gtest/gtest.h>

namespace thermocline::base {
namespace {

TEST(Strings, NearestNameFindsTypingErrors) {
  const std::vector<std::string> names = {"server.port", "server.host", "engine.threads"};
  EXPECT_EQ(NearestName("server.prot", names), "server.port");
  EXPECT_EQ(NearestName("sever.host", names), "server.host");
  EXPECT_EQ(NearestName("engine.thr", names), "engine.threads");
  EXPECT_EQ(NearestName("zzzzzzzzzzzz", names), "");
  EXPECT_EQ(NearestName("engine.num_ctx", names), "");
}

TEST(Strings, ParseNumberTakesWholeTextsOnly) {
  EXPECT_EQ(ParseNumber<int>("42"), 42);
  for (const char* bad : {"", " 1", "1 ", "+1", "1x", "99999999999", "0x10"})
    EXPECT_FALSE(ParseNumber<int>(bad).has_value()) << bad;
}

TEST(Utf8, IllFormedBytesBecomeReplacements) {
  EXPECT_EQ(ReplaceInvalidUtf8("aé€😀"), "aé€😀");
  EXPECT_EQ(ReplaceInvalidUtf8("\xFF"), "\uFFFD");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), "\uFFFD");        // truncated: one replacement
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), "\uFFFD\uFFFD");  // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
}

TEST(Utf8, IncompleteSuffixIsWhatMoreBytesMayComplete) {
  const std::string emoji = "😀";
  EXPECT_EQ(IncompleteUtf8Suffix("abc"), 0);
  EXPECT_EQ(IncompleteUtf8Suffix("a" + emoji), 0);
  for (int n = 1; n <= 3; ++n)
    EXPECT_EQ(IncompleteUtf8Suffix("a" + emoji.substr(0, static_cast<std::size_t>(n))), n);
  EXPECT_EQ(IncompleteUtf8Suffix("\x80\x80"), 0);  // can never become a character
  EXPECT_EQ(IncompleteUtf8Suffix("\xC3(\xE2"), 1);
}

TEST(Utf8, NoCharacterThatATerminalObeysStays) {
  EXPECT_EQ(EscapeControls("a\x1b[2J\n\x7f"), "a\\u001b[2J\\u000a\\u007f");
  EXPECT_EQ(EscapeControls("\u009b\u202e\u2028\u200f"), "\\u009b\\u202e\\u2028\\u200f");
  EXPECT_EQ(EscapeControls("\u00e9 \U0001F600"), "\u00e9 \U0001F600");
  EXPECT_EQ(EscapeControls("\x9b"), "\uFFFD");
}

TEST(Utf8, CodePointsRoundTrip) {
  for (const char32_t c : {U'a', U'\u00e9', U'\u20ac', U'\U0001F600', U'\U0010FFFF'}) {
    std::string text;
    AppendUtf8(text, c);
    std::size_t pos = 0;
    EXPECT_EQ(DecodeUtf8(text, pos), c);
    EXPECT_EQ(pos, text.size());
  }
}

}  // namespace
}  // namespace thermocline::base
