// Cases that tests/e2e/test_templates.py does not cover: limits, errors, and corners of the
// language.
#include <gtest/gtest.h>

#include <chrono>

#include "engine/text/chat_template.h"

namespace thermocline::text {
namespace {

Result<std::string> Render(const std::string& source, const std::string& variables = "{}") {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto json = base::ParseJson(variables);
  return (*parsed)->Render(*json);
}

std::string Text(const std::string& source, const std::string& variables = "{}") {
  const auto text = Render(source, variables);
  return text.ok() ? *text : "ERROR " + text.status().message();
}

TEST(Jinja, ExpressionsFollowPython) {
  EXPECT_EQ(
      Text("{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }}"),
      "7 3 -4 2 3.5 8");
  EXPECT_EQ(Text("{{ 'a' ~ 1 ~ none }} {{ 1 < 2 < 3 }} {{ not 1 == 2 }} {{ 'b' in 'abc' }} {{ 1 in "
                 "[1] }}"),
            "a1None True True True True");
  EXPECT_EQ(Text("{{ [1, 'x', none, true] }} {{ {'a': 1.0} }} {{ (1,) }}"),
            "[1, 'x', None, True] {'a': 1.0} (1,)");
  EXPECT_EQ(
      Text("{{ 'abc'[1] }}{{ 'abc'[-1] }} {{ 'abcd'[1:3] }} {{ [1,2,3][::-1] }} {{ 'é😀'|length }}"),
      "bc bc [3, 2, 1] 2");
  EXPECT_EQ(Text("{{ 'yes' if x else 'no' }}{{ '' if false }}"), "no");
  EXPECT_EQ(Text("{{ 3.7|int }} {{ '3.7'|int }} {{ (8 / 2)|int }} {{ 'abc'[(2 / 2)|int] }}"),
            "3 3 4 b");
  EXPECT_EQ(Text("{{ x.y is defined }}", R"({"x": {}})"), "False");
}

TEST(Jinja, WhiteSpaceFollowsTrimAndLstripBlocks) {
  EXPECT_EQ(Text("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(Text("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(Text("  {{ 1 }}\n  {# note #}\nx"), "  1\nx");
  EXPECT_EQ(Text("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(Jinja, LoopsScopesAndMacros) {
  EXPECT_EQ(Text("{% for a, b in {'x': 1, 'y': 2}.items() %}{{ loop.index }}{{ a }}{{ b }}{{ ',' "
                 "if not loop.last }}{% endfor %}"),
            "1x1,2y2");
  EXPECT_EQ(Text("{% set n = namespace(i=0) %}{% set i = 0 %}{% for x in [1,2] %}{% set i = i + x "
                 "%}{% set n.i = n.i + x %}{% endfor %}{{ i }} {{ n.i }}"),
            "0 3");
  EXPECT_EQ(Text("{% macro m(a, b='z') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}"),
            "[1z][12]");
  EXPECT_EQ(Text("{% for x in [1,2,3,4] if x != 2 %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% "
                 "else %}none{% endfor %}"),
            "13");
}

TEST(Jinja, ErrorsNameLineAndConstruct) {
  EXPECT_NE(Text("a\n{% include 'x' %}").find("line 2: the statement 'include'"),
            std::string::npos);
  EXPECT_NE(Text("{{ x|nonsense }}").find("the filter 'nonsense'"), std::string::npos);
  EXPECT_NE(Text("{{ x is nonsense }}").find("the test 'nonsense'"), std::string::npos);
  EXPECT_NE(Text("{{ x.y.z }}").find("'x' is undefined"), std::string::npos);
  EXPECT_NE(Text("{{ raise_exception('no tools') }}").find("no tools"), std::string::npos);
  EXPECT_NE(Text("{% if x %}").find("line 1"), std::string::npos);
  EXPECT_NE(Text("{{ 1 / 0 }}").find("division"), std::string::npos);
  for (const char* broken : {"{{", "{% for %}", "{{ 'a }}", "{{ (1 }}", "{% endif %}", "{{ 1 2 }}",
                             "{{ a. }}", "{% set %}", "{%", "{#", "{{ $ }}"}) {
    EXPECT_NE(Text(broken).find("ERROR"), std::string::npos) << broken;
  }
}

TEST(Jinja, HostileTemplatesAreBounded) {
  const std::string bomb =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% endfor "
      "%}{% endfor %}{% endfor %}";
  EXPECT_EQ(Render(bomb).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Render("{{ range(10 ** 18)|length }}").status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Render("{{ 'x' * 10 ** 12 }}").status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_FALSE(Render("{{ " + std::string(100000, '(') + " }}").ok());
  EXPECT_FALSE(Render("{{ " + std::string(100000, '-') + "1 }}").ok());
  EXPECT_FALSE(Render(std::string(5000, ' ') +
                      [] {
                        std::string s;
                        for (int i = 0; i < 5000; ++i) s += "{% if 1 %}";
                        return s;
                      }())
                   .ok());
  const std::string doubling =
      "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor "
      "%}{{ n.s }}";
  EXPECT_EQ(Render(doubling).status().code(), StatusCode::kResourceExhausted);
}

TEST(Jinja, StepsThatAreDearAreBoundedByTime) {
  const std::string dear =
      "{% set n = namespace(a='a' * 1000000) %}{% for i in range(90000) %}{% if 'b' in n.a %}{% "
      "endif %}{% endfor %}";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Render(dear).status().code(), StatusCode::kResourceExhausted);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Jinja, FiltersThatGrowTextAreBounded) {
  EXPECT_EQ(Render("{{ (range(100000)|join('a' * 100000))|length }}").status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Render("{{ ('a' * 100000).join(range(100000))|length }}").status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Render("{{ ('\n' * 1000000)|indent(64, true, true)|length }}").status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Render("{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l "
                   "%}{% endfor %}")
                .status()
                .code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Render("{{ range(50000)|unique|list|length }}").status().code(),
            StatusCode::kResourceExhausted);
}

TEST(Jinja, IntegersDoNotWrap) {
  EXPECT_FALSE(Render("{{ 10 ** 30 }}").ok());
  EXPECT_FALSE(Render("{{ 2 ** 63 }}").ok());
  EXPECT_FALSE(Render("{{ -(-9223372036854775807 - 1) }}").ok());
  EXPECT_EQ(
      Text("{{ 2 ** 62 }} {{ (-1) ** 1000000000001 }} {{ 1 ** 5 }} {{ 5 ** 0 }} {{ 0 ** 0 }}"),
      "4611686018427387904 -1 1 1 1");
}

TEST(Jinja, TheLeastIntegerIsDivisibleByMinusOne) {
  EXPECT_EQ(Text("{{ (-9223372036854775807 - 1) is divisibleby(-1) }}"), "True");
}

TEST(Jinja, StepsOfASliceDoNotWrap) {
  EXPECT_EQ(Text("{{ [1,2,3][1::9223372036854775807] }}{{ 'abc'[::9223372036854775807] }}"),
            "[2]a");
  EXPECT_EQ(Text("{{ [1,2,3][::-9223372036854775807] }}{{ [1,2,3,4][::-2] }}{{ 'abcd'[0:3:2] }}"),
            "[3][4, 2]ac");
}

TEST(Jinja, ARepeatedTextHasABoundThatDoesNotWrap) {
  EXPECT_EQ(Render("{{ 'abc' * 4611686018427387904 }}").status().code(),
            StatusCode::kResourceExhausted);
}

std::string Repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Jinja, StatementsInsideAMacroThatCallsItselfAreCounted) {
  for (const auto& [begin, end] : {std::pair("{% if true %}", "{% endif %}"),
                                   {"{% for i in [1] %}", "{% endfor %}"},
                                   {"{% set x %}", "{% endset %}"},
                                   {"{% filter trim %}", "{% endfilter %}"}}) {
    const std::string nested = Repeated(begin, 112) + "{{ a() }}" + Repeated(end, 112);
    EXPECT_EQ(Render("{% macro a() %}" + nested + "{% endmacro %}{{ a() }}").status().code(),
              StatusCode::kResourceExhausted)
        << begin;
  }
}

TEST(Jinja, ChainsOfOperatorsAreBounded) {
  for (const char* link : {"+1", "~1", "|trim", ".b", "[0]", "()", " and 1", " or 1", "**1",
                           " is defined", " if 1 else 1"}) {
    EXPECT_FALSE(Render("{{ 1" + Repeated(link, 300'000) + " }}").ok()) << link;
  }
  EXPECT_EQ(Text("{{ 0" + Repeated(" + 1", 100) + " }}"), "100");
}

TEST(Jinja, DeepListsAreNotCompared) {
  const std::string deep =
      "{% set a = [1] %}{% set b = [2] %}" + Repeated("{% set a = [a] %}{% set b = [b] %}", 60'000);
  EXPECT_FALSE(Render(deep + "{{ a < b }}").ok());
}

TEST(Jinja, ComparisonsInsideOneOperationAreSteps) {
  const std::string large = "{% set a = [1] %}" + Repeated("{% set a = a + a %}", 13);
  const std::string many = "{% set l = [a + [1]] %}" + Repeated("{% set l = l + l %}", 13);
  for (const char* operation : {"{{ (a + [2]) in l }}", "{{ l|sort|length }}",
                                "{{ l.count(a + [2]) }}", "{{ l|unique|list|length }}"}) {
    EXPECT_EQ(Render(large + many + operation).status().code(), StatusCode::kResourceExhausted)
        << operation;
  }
}

TEST(Jinja, ElementsOfListsAreCountedAsMemory) {
  const std::string large =
      "{% set n = namespace(a=[1]) %}{% for i in range(18) %}{% set n.a = n.a + n.a %}{% endfor %}";
  EXPECT_EQ(
      Render(large + "{% for i in range(60) %}{% set x = n.a + n.a %}{% endfor %}").status().code(),
      StatusCode::kResourceExhausted);
}

// A conversation with one message of so many bytes; what a template may hold grows with it.
std::string LongMessage(std::size_t bytes) {
  return R"({"content": ")" + std::string(bytes, 'a') + R"("})";
}

TEST(Jinja, WhatATemplateHoldsAtOnceIsBounded) {
  std::string kept = "{% set b = 'a' * 100000 %}";
  for (int i = 0; i < 30; ++i) kept += "{% set x" + std::to_string(i) + " = b|list %}";
  for (const std::string& source :
       {kept,
        std::string("{% set n = namespace(a='a') %}{% for i in range(22) %}{% set n.a = "
                    "n.a + n.a %}{% endfor %}"),
        std::string("{% set l = ('a ' * 50000).split(' ') %}"),
        std::string("{% macro m(i) %}{% for j in range(190) %}{% set x = 'a' * 10000 %}{{ m(i + 1) "
                    "}}{% endfor %}{% endmacro %}{{ m(0) }}")}) {
    const auto text = Render(source);
    EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted) << source.substr(0, 60);
    EXPECT_NE(text.status().message().find("holds more than"), std::string::npos);
  }
}

TEST(Jinja, TextsThatAreFreedDoNotCountAsHeld) {
  EXPECT_EQ(Text("{% for i in range(25) %}{% set x = 'a' * 100000 %}{% endfor %}ok"), "ok");
}

TEST(Jinja, LongMessagesMayBeCopied) {
  EXPECT_EQ(Text("{% set c = content.strip().split('b')[0] %}{% set c = c | replace('b', 'd') %}{{ "
                 "c | length }} {{ {'x': c} | tojson | length }} {{ c[5:][0] }} {{ ('é' ~ c)[1:] | "
                 "length }}",
                 LongMessage(1 << 19)),
            "524288 524297 a 524288");
}

TEST(Jinja, DeepListsDoNotOverflowTheStack) {
  const std::string data = LongMessage(1 << 20);
  std::string nested = "{% set l = [] %}";
  for (int i = 0; i < 14000; ++i) nested += "{% set l = [l] %}";
  EXPECT_EQ(Text(nested + "ok", data), "ok");
  EXPECT_NE(Text(nested + "{{ l }}", data).find("[["), std::string::npos);
  EXPECT_FALSE(Render(nested + "{{ l|tojson }}", data).ok());
  EXPECT_FALSE(Text(nested + "{{ l == [l] }}", data).empty());
  EXPECT_FALSE(Render("{% set n = namespace(l=[]) %}{% for i in range(90000) %}{% set n.l = [n.l] "
                      "%}{% endfor %}")
                   .ok());
}

TEST(Jinja, ListsThatWouldContainThemselvesAreRefused) {
  EXPECT_NE(Text("{% set l = [] %}{{ l.append(l) }}").find("inside itself"), std::string::npos);
  EXPECT_NE(Text("{% set a = [] %}{% set b = [a] %}{{ a.append(b) }}").find("inside itself"),
            std::string::npos);
  EXPECT_NE(Text("{% set n = namespace() %}{% set n.a = [n] %}").find("inside itself"),
            std::string::npos);
}

TEST(Jinja, ValuesThatUnfoldWithoutEndAreBounded) {
  const auto doubled = [](int times) {
    return "{% set n = namespace(l=[1]) %}{% for i in range(" + std::to_string(times) +
           ") %}{% set n.l = [n.l, n.l] %}{% endfor %}";
  };
  EXPECT_EQ(Text(doubled(12) + "{{ n.l|string|length > 16000 }}"), "True");
  const std::string deeper =
      "{% set m = n.l %}{% set o = [m,m,m,m,m,m,m,m] %}{% set p = [o,o,o,o,o,o,o,o] %}{% set q = "
      "[p,p,p,p,p,p,p,p] %}";
  EXPECT_FALSE(Render(doubled(18) + deeper + "{{ q|tojson }}").ok());
  EXPECT_FALSE(Text(doubled(18) + deeper + "{{ q == q }}{{ q|string|length }}").empty());
}

}  // namespace
}  // namespace thermocline::text
