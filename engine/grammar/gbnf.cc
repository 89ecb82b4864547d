#include "engine/grammar/gbnf.h"

#include <cctype>
#include <unordered_map>
#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/grammar/expression.h"
#include "engine/grammar/scanner.h"

namespace thermocline::grammar {
namespace {

constexpr int kNestedMax = 200;

bool IsNameByte(char c) { return std::isalnum(base::ByteOf(c)) != 0 || c == '-' || c == '_'; }

class GbnfParser {
 public:
  GbnfParser(const std::string& text, const GbnfNames& names, Budget& budget)
      : in_("the grammar", text), names_(names), budget_(budget) {}

  Result<Grammar> Run() {
    SkipSpace(true);
    while (!in_.done()) RETURN_IF_ERROR(ParseRule());
    for (const auto& [name, use] : used_at_) {
      if (defined_.contains(name)) continue;
      ASSIGN_OR_RETURN(const bool found, AddPart(name));
      if (found) continue;
      in_.MoveTo(use);
      return in_.Fail("there is no rule '", name, "'");
    }
    const auto root = ids_.find("root");
    if (root == ids_.end()) return base::InvalidArgument("the grammar has no rule 'root'");
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  void SkipSpace(bool lines) {
    while (!in_.done()) {
      const char c = in_.Peek();
      if (c == '#') {
        while (!in_.done() && in_.Peek() != '\n') in_.MoveTo(in_.at() + 1);
      } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
        in_.MoveTo(in_.at() + 1);
      } else {
        return;
      }
    }
  }

  std::string TakeName() {
    const std::size_t begin = in_.at();
    while (IsNameByte(in_.Peek())) in_.MoveTo(in_.at() + 1);
    return std::string(in_.Slice(begin));
  }

  int RuleOf(const std::string& name) {
    const auto [found, added] = ids_.emplace(name, base::IntSize(grammar_.rules));
    if (added) grammar_.AddRule(name);
    return found->second;
  }

  // Adds the rules of a part; false: there is no part of that name.
  Result<bool> AddPart(const std::string& name) {
    auto part = names_.find_part ? names_.find_part(name) : std::nullopt;
    if (!part.has_value()) return false;
    if (!part->ok()) return part->status();
    const int first = base::IntSize(grammar_.rules);
    for (const Rule& rule : (*part)->rules) {
      const int added = grammar_.AddRule(rule.name);
      grammar_.rules[added].body = Renumbered(rule.body, first);
    }
    Nfa call;
    call.Call(Nfa::kStart, first + (*part)->root, Nfa::kFinal);
    grammar_.rules[RuleOf(name)].body = std::move(call);
    return true;
  }

  // `body` with the indices of called rules increased by `first`.
  static Nfa Renumbered(const Nfa& body, int first) {
    Nfa out;
    while (out.num_states() < body.num_states()) out.AddState();
    for (const Edge& edge : body.edges())
      out.AddEdgeAs(edge, edge.kind == Edge::Kind::kRule ? edge.value + first : edge.value);
    return out;
  }

  Status ParseRule() {
    const std::string name = TakeName();
    if (name.empty()) return in_.Fail("a rule's name is expected: letters, digits, '-' and '_'");
    SkipSpace(false);
    if (!in_.Take("::=")) return in_.Fail("'::=' is expected behind the rule's name '", name, "'");
    if (defined_.contains(name)) return in_.Fail("the rule '", name, "' is there already");
    defined_.emplace(name, true);
    SkipSpace(true);
    ASSIGN_OR_RETURN(const Expression body, ParseChoice(0));
    Nfa nfa;
    RETURN_IF_ERROR(Emit(body, Nfa::kStart, nfa, Nfa::kFinal, budget_));
    const int rule = RuleOf(name);  // may add rules, so no reference into them is held
    budget_.Hold(nfa.bytes_held());
    grammar_.rules[rule].body = std::move(nfa);
    if (!in_.done() && in_.Peek() != '\n') return in_.Fail("a new line or the end is expected");
    SkipSpace(true);
    return OkStatus();
  }

  Result<Expression> ParseChoice(int depth) {
    if (depth > kNestedMax) return in_.Fail("more than ", kNestedMax, " groups inside each other");
    std::vector<Expression> choices;
    while (true) {
      ASSIGN_OR_RETURN(Expression sequence, ParseSequence(depth));
      choices.push_back(std::move(sequence));
      SkipSpace(depth > 0);
      if (!in_.Take("|")) return ChoiceOf(std::move(choices));
      SkipSpace(true);
    }
  }

  Result<Expression> ParseSequence(int depth) {
    std::vector<Expression> parts;
    while (true) {
      SkipSpace(depth > 0);
      const char c = in_.Peek();
      if (in_.done() || c == '|' || c == ')' || c == '\n') return SequenceOf(std::move(parts));
      ASSIGN_OR_RETURN(Expression part, ParsePart(depth));
      ASSIGN_OR_RETURN(part, ParseRepeat(std::move(part)));
      parts.push_back(std::move(part));
    }
  }

  Result<Expression> ParsePart(int depth) {
    if (in_.Take("\"")) return ParseText();
    if (in_.Take("[")) return ParseClass();
    if (in_.Take(".")) return SetOf({{0, kCodePointMax}});
    if (in_.Peek() == '<' || in_.Take("!")) return ParseToken();
    if (in_.Take("(")) {
      SkipSpace(true);
      ASSIGN_OR_RETURN(Expression inner, ParseChoice(depth + 1));
      SkipSpace(true);
      if (!in_.Take(")")) return in_.Fail("')' is expected");
      return inner;
    }
    const std::size_t begin = in_.at();
    const std::string name = TakeName();
    if (name.empty()) return in_.Fail("'", std::string(1, in_.Peek()), "' is not expected here");
    used_at_.emplace(name, begin);
    return EdgeOf(Edge::Kind::kRule, RuleOf(name));
  }

  Result<Expression> ParseRepeat(Expression part) {
    while (true) {
      SkipSpace(false);
      if (in_.Take("*")) {
        part = RepeatOf(std::move(part), 0, Expression::kNoMax);
      } else if (in_.Take("+")) {
        part = RepeatOf(std::move(part), 1, Expression::kNoMax);
      } else if (in_.Take("?")) {
        part = RepeatOf(std::move(part), 0, 1);
      } else if (in_.Take("{")) {
        ASSIGN_OR_RETURN(part, ParseCounts(std::move(part)));
      } else {
        return part;
      }
    }
  }

  Result<Expression> ParseCounts(Expression part) {
    const auto expected = [this] {
      return in_.Fail("a repetition is {m}, {m,} or {m,n} with m <= n <= ", kRepeatMax);
    };
    SkipSpace(false);
    const auto min = in_.Peek() == ',' ? std::optional(0) : in_.TakeNumber(kRepeatMax);
    if (!min.has_value()) return expected();
    std::optional<int> max = min;
    SkipSpace(false);
    if (in_.Take(",")) {
      SkipSpace(false);
      max = in_.Peek() == '}' ? std::optional<int>(Expression::kNoMax) : in_.TakeNumber(kRepeatMax);
      SkipSpace(false);
    }
    if (!max.has_value() || !in_.Take("}") || (*max != Expression::kNoMax && *max < *min))
      return expected();
    return RepeatOf(std::move(part), *min, *max);
  }

  Result<char32_t> ParseCharacter() {
    if (in_.done()) return in_.Fail("the grammar ends within a text or a class");
    if (!in_.Take("\\")) return in_.TakeCharacter();
    static constexpr std::pair<char, char32_t> kEscapes[] = {{'n', '\n'},  {'r', '\r'}, {'t', '\t'},
                                                             {'\\', '\\'}, {'"', '"'},  {'[', '['},
                                                             {']', ']'},   {'-', '-'},  {'^', '^'}};
    for (const auto& [letter, character] : kEscapes)
      if (in_.Take(std::string_view(&letter, 1))) return character;
    for (const auto& [letter, digits] : {std::pair('x', 2), {'u', 4}, {'U', 8}}) {
      if (!in_.Take(std::string_view(&letter, 1))) continue;
      const auto value = in_.TakeHex(digits);
      if (!value.has_value() || *value > kCodePointMax || (*value >= 0xD800 && *value < 0xE000))
        return in_.Fail("\\", std::string(1, letter), " wants ", digits,
                        " hexadecimal digits of a character");
      return *value;
    }
    return in_.Fail("unknown escape '\\", std::string(1, in_.Peek()),
                    R"('; there are \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH)");
  }

  Result<Expression> ParseText() {
    std::string text;
    while (!in_.Take("\"")) {
      if (in_.Peek() == '\n') return in_.Fail("a text ends on its line");
      ASSIGN_OR_RETURN(const char32_t character, ParseCharacter());
      base::AppendUtf8(text, character);
    }
    return TextOf(std::move(text));
  }

  Result<Expression> ParseClass() {
    const bool negated = in_.Take("^");
    CodePointSet set;
    while (!in_.Take("]")) {
      ASSIGN_OR_RETURN(const char32_t lo, ParseCharacter());
      char32_t hi = lo;
      if (in_.Peek() == '-' && in_.Peek(1) != ']' && in_.Take("-")) {
        ASSIGN_OR_RETURN(hi, ParseCharacter());
      }
      if (hi < lo) return in_.Fail("a range of characters that ends before it begins");
      set.push_back({lo, hi});
    }
    return SetOf(negated ? Complement(set) : Normalized(std::move(set)));
  }

  // Called after the '!' of a negated token.
  Result<Expression> ParseToken() {
    const bool negated = in_.at() > 0 && Before() == '!';
    const std::size_t begin = in_.at();
    if (!in_.Take("<")) return in_.Fail("a token is expected: <[id]> or <text>");
    const auto kind = negated ? Edge::Kind::kNotToken : Edge::Kind::kToken;
    if (in_.Take("[")) {
      const auto id = in_.TakeNumber(INT32_MAX);
      if (!id.has_value() || !in_.Take("]>")) return in_.Fail("a token's id is <[1000]>");
      return EdgeOf(kind, *id);
    }
    while (!in_.done() && in_.Peek() != '>' && in_.Peek() != '\n') in_.MoveTo(in_.at() + 1);
    if (!in_.Take(">")) return in_.Fail("'>' is expected");
    const std::string text(in_.Slice(begin));
    const int token = names_.find_token(text);
    if (token < 0) return in_.Fail("'", text, "' is no single token of this model");
    return EdgeOf(kind, token);
  }

  char Before() {
    const std::size_t at = in_.at();
    in_.MoveTo(at - 1);
    const char c = in_.Peek();
    in_.MoveTo(at);
    return c;
  }

  Scanner in_;
  const GbnfNames& names_;
  Budget& budget_;
  Grammar grammar_;
  std::unordered_map<std::string, int> ids_;
  std::unordered_map<std::string, bool> defined_;
  std::unordered_map<std::string, std::size_t> used_at_;
};

}  // namespace

Result<Grammar> ParseGbnf(const std::string& text, const GbnfNames& names, Budget& budget) {
  return GbnfParser(text, names, budget).Run();
}

}  // namespace thermocline::grammar
