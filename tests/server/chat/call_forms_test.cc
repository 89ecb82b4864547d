// Every form of calls with every format, in chunks of every small size; the tables of docs/tools.md
// come from here: THERMOCLINE_WRITE_DOCS=1 writes them.
#include "server/chat/call_forms.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "engine/base/strings.h"
#include "tests/server/chat/answer_chunks.h"
#include "tests/server/chat/call_examples.h"
#include "tests/server/chat/known_templates.h"

namespace thermocline::chat {
namespace {

constexpr std::size_t kWhole = 1 << 20;
constexpr std::size_t kChunks[] = {1, 3, kWhole};
const std::string kArguments = R"({"city":"Rome"})";

void ExpectRome(const ParsedAnswer& parsed, const std::string& where) {
  ASSERT_EQ(parsed.message.calls.size(), 1u) << where << "\n" << parsed.Described();
  EXPECT_EQ(parsed.message.calls[0].name, "get_weather") << where;
  const auto arguments = base::ParseJson(parsed.message.calls[0].arguments);
  ASSERT_TRUE(arguments.ok()) << where << "\n" << parsed.Described();
  EXPECT_EQ(arguments->Dump(), kArguments) << where;
  EXPECT_EQ(parsed.message.text, "") << where;
}

// The examples with one format: calls are calls and texts stay texts, in chunks of all sizes.
void ExpectForms(const OutputFormat& format, const std::string& name,
                 std::map<std::string, std::map<std::string, int>>* counts) {
  const auto config = LenientConfig(format);
  for (const CallExample& example : CallExamples()) {
    for (const std::size_t bytes : kChunks) {
      const std::string where = StrCat(name, ", ", bytes, " bytes: ", example.call);
      if (!example.call.empty()) {
        const ParsedAnswer parsed = ParseAnswer(config, example.call, bytes);
        ExpectRome(parsed, where);
        if (counts != nullptr && bytes == 1)
          ++(*counts)[example.call][CallFormName(parsed.tally.form)];
      }
      const ParsedAnswer text = ParseAnswer(config, example.text, bytes);
      // A text that is a call in the template's own form is a call.
      if (text.tally.calls > 0 && text.tally.form == CallForm::kNative) continue;
      EXPECT_EQ(text.message.calls.size(), 0u) << where << "\n" << example.text;
      EXPECT_EQ(text.message.text, example.text) << where;
    }
    if (testing::Test::HasFailure()) return;
  }
}

std::string Cell(std::string text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? " ↵ " : c == '|' ? "\\|" : std::string(1, c);
  const std::string mark = out.find('`') == std::string::npos ? "`" : "````";
  return text.empty()
             ? ""
             : StrCat(mark, mark.size() > 1 ? " " : "", out, mark.size() > 1 ? " " : "", mark);
}

// The part of docs/tools.md between the marks of `name`, which is written if asked for.
void ExpectInDocs(const std::string& name, const std::string& table) {
  const std::string path = std::string(SOURCE_DIR) + "/docs/tools.md";
  std::stringstream file;
  file << std::ifstream(path).rdbuf();
  std::string page = file.str();
  const std::string open = StrCat("<!-- ", name, " -->\n"), close = StrCat("<!-- /", name, " -->");
  const std::size_t begin = page.find(open), end = page.find(close);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::size_t at = begin + open.size();
  if (std::getenv("THERMOCLINE_WRITE_DOCS") != nullptr) {
    std::ofstream(path) << page.replace(at, end - at, table);
    return;
  }
  EXPECT_EQ(page.substr(at, end - at), table) << "THERMOCLINE_WRITE_DOCS=1 writes the table";
}

TEST(CallForms, EveryFormHasAnExample) {
  std::set<std::string> examples, rows;
  for (const CallExample& example : CallExamples()) examples.insert(example.row);
  for (const CallFormRow& row : CallForms()) rows.insert(std::string(row.name));
  EXPECT_EQ(examples, rows);
}

TEST(CallForms, ExamplesAreCallsInEveryFormatAndChunk) {
  int index = 0;
  for (const OutputFormat& format : SmallFormats())
    ExpectForms(format, StrCat("format ", index++), nullptr);
}

TEST(CallForms, TheTableInTheDocumentation) {
  const auto config = LenientConfig(OutputFormat());
  std::string table =
      "| form | a call | counted as | arguments stream | text |\n|---|---|---|---|---|\n";
  for (const CallExample& example : CallExamples()) {
    const ParsedAnswer parsed = ParseAnswer(config, example.call, 1);
    const bool call = !example.call.empty();
    table += StrCat("| ", example.row, " | ", Cell(example.call), " | ",
                    call ? CallFormName(parsed.tally.form) : "", " | ",
                    !call                  ? ""
                    : parsed.fragments > 1 ? "yes"
                                           : "no",
                    " | ", Cell(example.text), " |\n");
  }
  ExpectInDocs("forms", table);
}

TEST(CallForms, ExamplesAreCallsWithEveryTemplate) {
  const std::vector<KnownTemplate> all = TemplatesOfPeer();
  if (all.empty()) GTEST_SKIP() << "THERMOCLINE_PEER does not name the peer's folder";
  std::map<std::string, std::map<std::string, int>> counts;
  int templates = 0;
  for (const KnownTemplate& known : all) {
    const OutputFormat format = known.Format();
    if (format.harmony) continue;
    ++templates;
    ExpectForms(format, known.name, &counts);
    if (HasFailure()) return;
  }
  EXPECT_GE(templates, 50);
  std::string table =
      StrCat("| a call, with ", templates,
             " templates | native | tolerated | its own name |\n|---|---|---|---|\n");
  for (const CallExample& example : CallExamples()) {
    if (example.call.empty()) continue;
    auto& of = counts[example.call];
    const int native = of["native"], tolerated = of["tolerated"];
    if (native + tolerated > 0)
      table += StrCat("| ", Cell(example.call), " | ", native, " | ", tolerated, " | ",
                      templates - native - tolerated, " |\n");
  }
  ExpectInDocs("templates", table);
}

}  // namespace
}  // namespace thermocline::chat
