// The origin of each byte of a rendered text: the template, or a client.
#include "engine/text/template_text.h"

#include <gtest/gtest.h>

#include "engine/text/chat_template.h"

namespace thermocline::text {
namespace {

// `text` with its data in brackets: "own[data]own".
std::string Marked(const TemplateText& text) {
  std::string out;
  bool own = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.IsOwn(i, i + 1) != own) out += own ? '[' : ']';
    own = text.IsOwn(i, i + 1);
    out += text.bytes()[i];
  }
  return own ? out : out + ']';
}

constexpr const char* kData = R"({"d": "data", "s": " a-b ", "pair": ["x", "y"], "n": 5,
    "map": {"key": "value"}, "upper": "Äb<", "lines": "p\nq"})";

std::string Marked(const std::string& source) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return "ERROR " + parsed.status().message();
  const Json own = Json::Object{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const auto text = (*parsed)->Render(*base::ParseJson(kData), own, kRenderedBytesMax);
  return text.ok() ? Marked(*text) : "ERROR " + text.status().message();
}

TEST(TemplateText, PartsKeepTheirWriters) {
  TemplateText text;
  text.AppendData("");
  text.AppendOwn("ab");
  text.AppendOwn("c");
  text.AppendData("de");
  text.AppendOwn("f");
  EXPECT_EQ(Marked(text), "abc[de]f");
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t end = begin + 1; end <= text.size(); ++end) {
      const TemplateText part = text.Part(begin, end);
      EXPECT_EQ(part.bytes(), text.bytes().substr(begin, end - begin));
      EXPECT_EQ(part.IsOwn(0, part.size()), text.IsOwn(begin, end)) << begin << " " << end;
      EXPECT_EQ(text.IsOwn(begin, end), end <= 3 || begin == 5) << begin << " " << end;
    }
  }
  text.Append(TemplateText::Data("g"));
  text.Append(TemplateText());
  EXPECT_EQ(Marked(text), "abc[de]f[g]");
}

TEST(TemplateText, OperatorsTrackEachCharacter) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"<|{{ d }}|>", "<|[data]|>"},
           {"{{ '<' + d + '>' }}", "<[data]>"},
           {"{{ '<' ~ d ~ n ~ '>' }}", "<[data5]>"},
           {"{{ '<|im' '_' + 'end' ~ '|>' }}", "<|im_end|>"},
           {"{{ bos_token + d + eos_token }}", "<s>[data]</s>"},
           {"{{ pair[0] + pair[1] }}", "[xy]"},
           {"{{ '<%s|%s>%%' % (d, 'own') }}{{ d % () }}", "<[data]|own>%[data]"},
           {"{{ ('<' + pair[0]) * 2 }}", "<[x]<[x]"},
           {"{{ ('<' + d + '>')[1:5] }}{{ ('<' + d)[:2] }}{{ ('<é' + d)[::-1] }}",
            "[data]<[datad]é<"},
           {"{{ ('a' + d)[0] }}{{ ('a' + d)[-1] }}", "a[a]"},
           {"{{ d if true else 'own' }}{{ false or 'own' }}{{ d and 'own' }}", "[data]ownown"},
           {"{{ ['own', d][0] }}{{ {'k': d}['k'] }}{{ ('a', d)[1] }}", "own[datadata]"},
           {"{{ n }}{{ true }}{{ ['own'] }}", "[5True['own']]"},
           {"{{ undefined_name }}own", "own"}}) {
    EXPECT_EQ(Marked(source), expected) << source;
  }
}

TEST(TemplateText, StatementsTrackEachCharacter) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{% set x = '<' + d %}{{ x }}>", "<[data]>"},
           {"{% set x %}<{{ d }}>{% endset %}{{ x }}", "<[data]>"},
           {"{% set n = namespace(t='<') %}{% set n.t = n.t + d %}{{ n.t }}", "<[data]"},
           {"{% macro m(a, b='own') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(d) }}", "<[data]own>"},
           {"{% filter upper %}a{{ d }}{% endfilter %}", "A[DATA]"},
           {"{% for c in 'a' + pair[0] %}{{ c }}{% endfor %}", "a[x]"},
           {"{% for k, v in map.items() %}<{{ k }}={{ v }}>{% endfor %}", "<[key]=[value]>"},
           {"{% for k in dict(own=1) %}{{ k }}{% endfor %}", "own"},
           {"{% for x in pair %}<{{ loop.index }}{{ x }}>{% endfor %}", "<[1x]><[2y]>"}}) {
    EXPECT_EQ(Marked(source), expected) << source;
  }
}

TEST(TemplateText, FiltersTrackEachCharacterOrMakeData) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{{ pair|join('|') }}{{ ['a', d]|join(d) }}", "[x]|[y]a[datadata]"},
           {"{{ ('<' + d)|replace('a', 'o') }}", "<[d]o[t]o"},
           {"{{ '<k>'|replace('k', d) }}{{ d|replace('t', d) }}", "<[data]>[dadataa]"},
           {"{{ ('a' + upper)|upper }}{{ ('A' + upper)|lower }}", "A[ÄB<]a[äb<]"},
           {"{{ ('a' + d)|title }}{{ ('a' + d)|capitalize }}", "A[data]A[data]"},
           {"{{ (' <' + s)|trim }}{{ s|trim }}{{ (s + '> ')|trim }}", "<[ a-ba-ba-b ]>"},
           {"{{ ('<' + d)|string }}{{ ('<' + d)|safe }}", "<[data]<[data]"},
           {"{{ ('<' + upper)|escape }}{{ ('<' + upper)|e }}", "&lt;[Äb&lt;]&lt;[Äb&lt;]"},
           {"{{ '<'|safe + upper }}", "<[Äb&lt;]"},
           {"{{ ('a\nb' + d)|indent(1) }}{{ lines|indent('--') }}", "a\n[ ]b[datap\n]--[q]"},
           {"{{ d|tojson }}{{ 'own'|tojson }}{{ {'<': d}|tojson(separators=(',', '|>')) }}",
            "[\"data\"\"own\"{\"<\"|>\"data\"}]"},
           {"{{ missing|default('own') }}{{ d|default('own') }}", "own[data]"},
           {"{{ pair|first }}{{ ['own', d]|last }}{{ ['own']|first }}", "[xdata]own"},
           {"{{ ['b', d]|sort|join }}{{ [d, 'b']|unique|join }}", "b[datadata]b"},
           {"{{ [d, 'b']|map('upper')|join }}{{ [d, 'b']|reverse|join }}", "[DATA]Bb[data]"},
           {"{{ [d, 'b']|select('string')|list|join }}{{ [d]|min }}", "[data]b[data]"},
           {"{{ map|items|first|join('=') }}{{ map|dictsort|first|join }}",
            "[key]=[valuekeyvalue]"},
           {"{{ '12'|int }}{{ '1'|float }}{{ d|length }}", "[121.04]"},
           {"{{ ('\"own\"'|from_json) }}", "[own]"}}) {
    EXPECT_EQ(Marked(source), expected) << source;
  }
}

TEST(TemplateText, MethodsTrackEachCharacter) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{{ ('<' + d + '|end').split('|')[0] }}{{ ('<|' + d).split('|')[1] }}", "<[datadata]"},
           {"{{ ('a ' + d).split()[1] }}{{ ('a-b-' + d).rsplit('-', 1)[0] }}", "[data]a-b"},
           {"{{ ('a\n' + lines).splitlines()|join('+') }}", "a+[p]+[q]"},
           {"{{ (' <' + s).strip() }}{{ (' ' + s).lstrip() }}{{ (s + ' ').rstrip() }}",
            "<[ a-ba-b  a-b]"},
           {"{{ ('a' + d).upper() }}{{ ('A' + d).lower() }}", "A[DATA]a[data]"},
           {"{{ ('a' + d).title() }}{{ ('a' + d).capitalize() }}", "A[data]A[data]"},
           {"{{ '<{}|{x}>{{}}'.format(d, x='own') }}", "<[data]|own>{}"},
           {"{{ ('<' + d).replace('a', 'o') }}{{ '<k>'.replace('k', d) }}", "<[d]o[t]o<[data]>"},
           {"{{ '|'.join(pair) }}{{ d.join(['a', 'b']) }}", "[x]|[y]a[data]b"},
           {"{{ map.get('key') }}{{ map.get('none', 'own') }}{{ map.keys()|first }}",
            "[value]own[key]"}}) {
    EXPECT_EQ(Marked(source), expected) << source;
  }
}

TEST(TemplateText, WhatATemplateMakesLongerIsBoundedWhileItIsMade) {
  const auto parsed = ChatTemplate::Parse("{{ list | tojson(indent=16) }}");
  ASSERT_TRUE(parsed.ok());
  const Json data = *base::ParseJson(R"({"list": [[[[[[[[1, 2, 3, 4, 5, 6, 7, 8]]]]]]]]})");
  const auto text = (*parsed)->Render(data, Json(Json::Object{}), 4000);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->size(), 1974U);
  const auto refused = (*parsed)->Render(data, Json(Json::Object{}), 1000);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
}

TEST(TemplateText, KnownRolesOfMessagesAreTheTemplatesWords) {
  const auto parsed = ChatTemplate::Parse(
      "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}{{ role }}");
  ASSERT_TRUE(parsed.ok());
  const auto text = (*parsed)->Render(*base::ParseJson(R"({"role": "user", "messages": [
      {"role": "user", "content": "assistant"}, {"role": "end", "content": ""}]})"),
                                      Json(Json::Object{}), kRenderedBytesMax);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(Marked(*text), "<|user|>[assistant]<|[end]|>[user]");
}

}  // namespace
}  // namespace thermocline::text
