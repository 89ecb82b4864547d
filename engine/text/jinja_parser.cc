// Recursive descent over the grammar of Jinja 3. Source: the precedence of Jinja's own parser.
#include <algorithm>
#include <array>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_lexer.h"

namespace thermocline::text::jinja {
namespace {

using Kind = Expr::Kind;
constexpr int kDepthMax = 120;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Body> Template() {
    Body body;
    RETURN_IF_ERROR(Statements({}, body));
    if (Peek().kind != Token::Kind::kEnd) return Error("unexpected ", Describe(Peek()));
    return body;
  }

 private:
  // Counts nesting, so that a hostile template cannot overflow the stack.
  struct Nesting {
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    int& depth_;
  };
  Status CheckDepth() const {
    return depth_ > kDepthMax ? Error("nested deeper than ", kDepthMax, " levels") : OkStatus();
  }

  const Token& Peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token Next() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool IsOp(std::string_view op) const {
    return Peek().kind == Token::Kind::kOperator && Peek().text == op;
  }
  bool IsName(std::string_view name) const {
    return Peek().kind == Token::Kind::kName && Peek().text == name;
  }
  bool Accept(std::string_view text) {
    if (!IsOp(text) && !IsName(text)) return false;
    Next();
    return true;
  }
  Status Expect(std::string_view text) {
    return Accept(text) ? OkStatus() : Error("expected '", text, "', found ", Describe(Peek()));
  }
  Result<std::string> ExpectName() {
    if (Peek().kind != Token::Kind::kName)
      return Error("expected a name, found ", Describe(Peek()));
    return Next().text;
  }
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kOutputEnd:
        return "'}}'";
      case Token::Kind::kBlockEnd:
        return "'%}'";
      case Token::Kind::kText:
        return "text";
      default:
        return "'" + token.text + "'";
    }
  }
  template <typename... Pieces>
  Status Error(const Pieces&... pieces) const {
    return base::InvalidArgument("line ", Peek().line, ": ", pieces...);
  }
  template <typename... Pieces>
  Status Refuse(const Pieces&... pieces) const {
    return base::Unimplemented("line ", Peek().line, ": ", pieces...,
                               " is not supported in chat templates");
  }

  ExprPtr Make(Kind kind) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = Peek().line;
    return expr;
  }
  template <typename... Args>
  ExprPtr Make(Kind kind, ExprPtr first, Args... rest) const {
    ExprPtr expr = Make(kind);
    expr->args.push_back(std::move(first));
    (expr->args.push_back(std::move(rest)), ...);
    return expr;
  }

  // Statements up to a block whose first word is in `ends` (left unread).
  Status Statements(const std::vector<std::string_view>& ends, Body& body) {
    const Nesting nesting(depth_);
    RETURN_IF_ERROR(CheckDepth());
    while (Peek().kind != Token::Kind::kEnd) {
      if (Peek().kind == Token::Kind::kBlockBegin &&
          std::find(ends.begin(), ends.end(), Peek(1).text) != ends.end())
        return OkStatus();
      auto stmt = std::make_unique<Stmt>();
      stmt->line = Peek().line;
      const Token token = Next();
      if (token.kind == Token::Kind::kText) {
        stmt->kind = Stmt::Kind::kText;
        stmt->text = token.text;
      } else if (token.kind == Token::Kind::kOutputBegin) {
        stmt->kind = Stmt::Kind::kOutput;
        ASSIGN_OR_RETURN(stmt->expr, TupleOrExpression());
        if (Peek().kind != Token::Kind::kOutputEnd)
          return Error("expected '}}', found ", Describe(Peek()));
        Next();
      } else {
        RETURN_IF_ERROR(Block(*stmt));
      }
      body.push_back(std::move(stmt));
    }
    return ends.empty() ? OkStatus() : Error("expected '{% ", ends.back(), " %}'");
  }

  Status EndBlock() {
    if (Peek().kind != Token::Kind::kBlockEnd)
      return Error("expected '%}', found ", Describe(Peek()));
    Next();
    return OkStatus();
  }
  // "{% word %}" closing a statement.
  Status Close(std::string_view word) {
    Next();
    RETURN_IF_ERROR(Expect(word));
    return EndBlock();
  }

  Status Block(Stmt& stmt) {
    ASSIGN_OR_RETURN(const std::string word, ExpectName());
    if (word == "if") return If(stmt);
    if (word == "for") return For(stmt);
    if (word == "set") return Set(stmt);
    if (word == "macro") return Macro(stmt);
    if (word == "filter") return FilterBlock(stmt);
    if (word == "generation") {
      stmt.kind = Stmt::Kind::kScope;
      RETURN_IF_ERROR(EndBlock());
      RETURN_IF_ERROR(Statements({"endgeneration"}, stmt.body));
      return Close("endgeneration");
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) return Error("'", word, "' outside of a loop");
      stmt.kind = word == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
      return EndBlock();
    }
    return Refuse("the statement '", word, "'");
  }

  Status If(Stmt& stmt) {
    stmt.kind = Stmt::Kind::kIf;
    while (true) {
      ASSIGN_OR_RETURN(ExprPtr condition, TupleOrExpression());
      RETURN_IF_ERROR(EndBlock());
      Body body;
      RETURN_IF_ERROR(Statements({"elif", "else", "endif"}, body));
      stmt.branches.emplace_back(std::move(condition), std::move(body));
      Next();
      if (Accept("elif")) continue;
      if (Accept("else")) {
        RETURN_IF_ERROR(EndBlock());
        Body otherwise;
        RETURN_IF_ERROR(Statements({"endif"}, otherwise));
        stmt.branches.emplace_back(nullptr, std::move(otherwise));
        return Close("endif");
      }
      RETURN_IF_ERROR(Expect("endif"));
      return EndBlock();
    }
  }

  Status For(Stmt& stmt) {
    stmt.kind = Stmt::Kind::kFor;
    do {
      const bool parenthesis = Accept("(");
      ASSIGN_OR_RETURN(const std::string name, ExpectName());
      stmt.targets.push_back(Make(Kind::kName));
      stmt.targets.back()->name = name;
      if (parenthesis) return Refuse("a nested loop target");
    } while (Accept(","));
    RETURN_IF_ERROR(Expect("in"));
    ASSIGN_OR_RETURN(stmt.expr, Or());
    if (Accept("if")) {
      ASSIGN_OR_RETURN(stmt.filter, Expression());
    }
    if (IsName("recursive")) return Refuse("'recursive'");
    RETURN_IF_ERROR(EndBlock());
    ++loops_;
    RETURN_IF_ERROR(Statements({"else", "endfor"}, stmt.body));
    --loops_;
    Next();
    if (Accept("else")) {
      RETURN_IF_ERROR(EndBlock());
      RETURN_IF_ERROR(Statements({"endfor"}, stmt.else_body));
      Next();
    }
    RETURN_IF_ERROR(Expect("endfor"));
    return EndBlock();
  }

  Status Set(Stmt& stmt) {
    do {
      ASSIGN_OR_RETURN(const std::string name, ExpectName());
      ExprPtr target = Make(Kind::kName);
      target->name = name;
      if (Accept(".")) {
        ASSIGN_OR_RETURN(const std::string attribute, ExpectName());
        target = Make(Kind::kGetAttr, std::move(target));
        target->name = attribute;
      }
      stmt.targets.push_back(std::move(target));
    } while (Accept(","));
    if (Accept("=")) {
      stmt.kind = Stmt::Kind::kSet;
      ASSIGN_OR_RETURN(stmt.expr, TupleOrExpression());
      return EndBlock();
    }
    stmt.kind = Stmt::Kind::kSetBlock;
    if (IsOp("|")) {
      ASSIGN_OR_RETURN(stmt.filter, Filters(Make(Kind::kName)));
    }
    RETURN_IF_ERROR(EndBlock());
    RETURN_IF_ERROR(Statements({"endset"}, stmt.body));
    return Close("endset");
  }

  Status Macro(Stmt& stmt) {
    stmt.kind = Stmt::Kind::kMacro;
    ASSIGN_OR_RETURN(stmt.text, ExpectName());
    RETURN_IF_ERROR(Expect("("));
    while (!Accept(")")) {
      ASSIGN_OR_RETURN(const std::string name, ExpectName());
      ExprPtr value;
      if (Accept("=")) {
        ASSIGN_OR_RETURN(value, Expression());
      }
      stmt.params.emplace_back(name, std::move(value));
      if (!IsOp(")")) RETURN_IF_ERROR(Expect(","));
    }
    RETURN_IF_ERROR(EndBlock());
    const int loops = std::exchange(loops_, 0);
    RETURN_IF_ERROR(Statements({"endmacro"}, stmt.body));
    loops_ = loops;
    Next();
    RETURN_IF_ERROR(Expect("endmacro"));
    if (IsName(stmt.text)) Next();
    return EndBlock();
  }

  Status FilterBlock(Stmt& stmt) {
    stmt.kind = Stmt::Kind::kFilterBlock;
    ASSIGN_OR_RETURN(stmt.filter, OneFilter(Make(Kind::kName)));
    ASSIGN_OR_RETURN(stmt.filter, Filters(std::move(stmt.filter)));
    RETURN_IF_ERROR(EndBlock());
    RETURN_IF_ERROR(Statements({"endfilter"}, stmt.body));
    return Close("endfilter");
  }

  // a, b, c without parentheses is a tuple.
  Result<ExprPtr> TupleOrExpression() {
    ASSIGN_OR_RETURN(ExprPtr first, Expression());
    if (!IsOp(",")) return first;
    ExprPtr tuple = Make(Kind::kTuple, std::move(first));
    while (Accept(",")) {
      if (Peek().kind == Token::Kind::kBlockEnd || Peek().kind == Token::Kind::kOutputEnd ||
          IsOp(")"))
        break;
      ASSIGN_OR_RETURN(ExprPtr item, Expression());
      tuple->args.push_back(std::move(item));
    }
    return tuple;
  }

  Result<ExprPtr> Expression() {
    const Nesting nesting(depth_);
    RETURN_IF_ERROR(CheckDepth());
    ASSIGN_OR_RETURN(ExprPtr value, Or());
    while (Accept("if")) {
      ASSIGN_OR_RETURN(ExprPtr condition, Or());
      ExprPtr otherwise;
      if (Accept("else")) {
        ASSIGN_OR_RETURN(otherwise, Expression());
      }
      value = Make(Kind::kCondition, std::move(value), std::move(condition), std::move(otherwise));
    }
    return value;
  }

  Result<ExprPtr> Or() {
    ASSIGN_OR_RETURN(ExprPtr left, And());
    while (Accept("or")) {
      ASSIGN_OR_RETURN(ExprPtr right, And());
      left = Make(Kind::kOr, std::move(left), std::move(right));
    }
    return left;
  }

  Result<ExprPtr> And() {
    ASSIGN_OR_RETURN(ExprPtr left, Not());
    while (Accept("and")) {
      ASSIGN_OR_RETURN(ExprPtr right, Not());
      left = Make(Kind::kAnd, std::move(left), std::move(right));
    }
    return left;
  }

  Result<ExprPtr> Not() {
    const Nesting nesting(depth_);
    RETURN_IF_ERROR(CheckDepth());
    if (!Accept("not")) return Compare();
    ASSIGN_OR_RETURN(ExprPtr inner, Not());
    return Make(Kind::kNot, std::move(inner));
  }

  Result<ExprPtr> Compare() {
    ASSIGN_OR_RETURN(ExprPtr first, Sum());
    ExprPtr compare;
    while (true) {
      std::string op;
      for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (IsOp(symbol)) op = symbol;
      }
      if (IsName("in")) op = "in";
      if (IsName("not") && Peek(1).text == "in") op = "not in";
      if (op.empty()) break;
      Next();
      if (op == "not in") Next();
      ASSIGN_OR_RETURN(ExprPtr right, Sum());
      if (compare == nullptr) compare = Make(Kind::kCompare, std::move(first));
      compare->ops.push_back(op);
      compare->args.push_back(std::move(right));
    }
    return compare == nullptr ? std::move(first) : std::move(compare);
  }

  using Rule = Result<ExprPtr> (Parser::*)();
  Result<ExprPtr> LeftAssociative(Rule operand, std::initializer_list<std::string_view> ops) {
    ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
    while (Peek().kind == Token::Kind::kOperator &&
           std::find(ops.begin(), ops.end(), Peek().text) != ops.end()) {
      const std::string op = Next().text;
      ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
      left = Make(Kind::kBinary, std::move(left), std::move(right));
      left->name = op;
    }
    return left;
  }
  Result<ExprPtr> Sum() { return LeftAssociative(&Parser::Concat, {"+", "-"}); }
  Result<ExprPtr> Concat() { return LeftAssociative(&Parser::Product, {"~"}); }
  Result<ExprPtr> Product() { return LeftAssociative(&Parser::Power, {"*", "/", "//", "%"}); }
  Result<ExprPtr> Power() { return LeftAssociative(&Parser::Unary, {"**"}); }

  Result<ExprPtr> Unary() { return UnaryWith(true); }
  Result<ExprPtr> UnaryWith(bool filters) {
    const Nesting nesting(depth_);
    RETURN_IF_ERROR(CheckDepth());
    ExprPtr expr;
    if (Accept("-")) {
      ASSIGN_OR_RETURN(ExprPtr inner, UnaryWith(false));
      expr = Make(Kind::kNegate, std::move(inner));
    } else if (Accept("+")) {
      ASSIGN_OR_RETURN(expr, UnaryWith(false));
    } else {
      ASSIGN_OR_RETURN(expr, Primary());
    }
    ASSIGN_OR_RETURN(expr, Postfix(std::move(expr)));
    if (!filters) return expr;
    while (IsOp("|") || IsName("is")) {
      if (IsOp("|")) {
        ASSIGN_OR_RETURN(expr, Filters(std::move(expr)));
      } else {
        ASSIGN_OR_RETURN(expr, Test(std::move(expr)));
      }
    }
    return expr;
  }

  Result<ExprPtr> Primary() {
    const Token token = Next();
    ExprPtr expr = Make(Kind::kConst);
    expr->line = token.line;
    switch (token.kind) {
      case Token::Kind::kString:
        expr->value = token.text;
        while (Peek().kind == Token::Kind::kString)
          expr->value = expr->value.as_string() + Next().text;
        return expr;
      case Token::Kind::kInteger: {
        const auto number = base::ParseNumber<std::int64_t>(token.text);
        if (!number.has_value()) return Error("the number ", token.text, " is too large");
        expr->value = *number;
        return expr;
      }
      case Token::Kind::kFloat:
        expr->value = base::ParseNumber<double>(token.text).value_or(0);
        return expr;
      case Token::Kind::kName:
        if (token.text == "true" || token.text == "True")
          expr->value = true;
        else if (token.text == "false" || token.text == "False")
          expr->value = false;
        else if (token.text == "none" || token.text == "None")
          expr->value = Value::MakeNone();
        else {
          expr->kind = Kind::kName;
          expr->name = token.text;
        }
        return expr;
      case Token::Kind::kOperator:
        if (token.text == "(") return Parenthesis();
        if (token.text == "[") return List();
        if (token.text == "{") return Dict();
        [[fallthrough]];
      default:
        --at_;
        return Error("expected an expression, found ", Describe(token));
    }
  }

  Result<ExprPtr> Parenthesis() {
    if (Accept(")")) return Make(Kind::kTuple);
    ASSIGN_OR_RETURN(ExprPtr inner, TupleOrExpression());
    RETURN_IF_ERROR(Expect(")"));
    return inner;
  }

  Result<ExprPtr> List() {
    ExprPtr list = Make(Kind::kList);
    while (!Accept("]")) {
      ASSIGN_OR_RETURN(ExprPtr item, Expression());
      list->args.push_back(std::move(item));
      if (!IsOp("]")) RETURN_IF_ERROR(Expect(","));
    }
    return list;
  }

  Result<ExprPtr> Dict() {
    ExprPtr dict = Make(Kind::kDict);
    while (!Accept("}")) {
      ASSIGN_OR_RETURN(ExprPtr key, Expression());
      RETURN_IF_ERROR(Expect(":"));
      ASSIGN_OR_RETURN(ExprPtr value, Expression());
      dict->args.push_back(std::move(key));
      dict->args.push_back(std::move(value));
      if (!IsOp("}")) RETURN_IF_ERROR(Expect(","));
    }
    return dict;
  }

  Result<ExprPtr> Postfix(ExprPtr expr) {
    while (true) {
      if (Accept(".")) {
        if (Peek().kind == Token::Kind::kInteger) {
          ExprPtr index = Make(Kind::kConst);
          index->value = base::ParseNumber<std::int64_t>(Next().text).value_or(0);
          expr = Make(Kind::kGetItem, std::move(expr), std::move(index));
          continue;
        }
        ASSIGN_OR_RETURN(const std::string name, ExpectName());
        expr = Make(Kind::kGetAttr, std::move(expr));
        expr->name = name;
      } else if (Accept("[")) {
        ASSIGN_OR_RETURN(expr, Subscript(std::move(expr)));
      } else if (Accept("(")) {
        expr = Make(Kind::kCall, std::move(expr));
        RETURN_IF_ERROR(CallArguments(*expr));
      } else {
        return expr;
      }
    }
  }

  Result<ExprPtr> Subscript(ExprPtr expr) {
    ExprPtr parts[3];
    int part = 0;
    bool slice = false;
    while (!Accept("]")) {
      if (Accept(":")) {
        slice = true;
        if (++part > 2) return Error("a slice has at most three parts");
      } else {
        ASSIGN_OR_RETURN(parts[part], Expression());
      }
    }
    if (slice)
      return Make(Kind::kSlice, std::move(expr), std::move(parts[0]), std::move(parts[1]),
                  std::move(parts[2]));
    if (parts[0] == nullptr) return Error("an index is missing");
    return Make(Kind::kGetItem, std::move(expr), std::move(parts[0]));
  }

  // Arguments up to ")", appended to a call, filter or test.
  Status CallArguments(Expr& call) {
    while (!Accept(")")) {
      if (IsOp("*") || IsOp("**")) return Refuse("argument unpacking");
      if (Peek().kind == Token::Kind::kName && Peek(1).kind == Token::Kind::kOperator &&
          Peek(1).text == "=") {
        const std::string name = Next().text;
        Next();
        ASSIGN_OR_RETURN(ExprPtr value, Expression());
        call.named.emplace_back(name, std::move(value));
      } else {
        ASSIGN_OR_RETURN(ExprPtr value, Expression());
        call.args.push_back(std::move(value));
      }
      if (!IsOp(")")) RETURN_IF_ERROR(Expect(","));
    }
    return OkStatus();
  }

  Result<ExprPtr> Filters(ExprPtr expr) {
    while (Accept("|")) {
      ASSIGN_OR_RETURN(expr, OneFilter(std::move(expr)));
    }
    return expr;
  }

  Result<ExprPtr> OneFilter(ExprPtr expr) {
    ASSIGN_OR_RETURN(const std::string name, ExpectName());
    if (!HasFilter(name)) return Refuse("the filter '", name, "'");
    expr = Make(Kind::kFilter, std::move(expr));
    expr->name = name;
    if (Accept("(")) RETURN_IF_ERROR(CallArguments(*expr));
    return expr;
  }

  Result<ExprPtr> Test(ExprPtr expr) {
    Next();
    const bool negated = Accept("not");
    ASSIGN_OR_RETURN(const std::string name, ExpectName());
    if (!HasTest(name)) return Refuse("the test '", name, "'");
    ExprPtr test = Make(Kind::kTest, std::move(expr));
    test->name = name;
    const Token::Kind next = Peek().kind;
    const bool operand =
        next == Token::Kind::kString || next == Token::Kind::kInteger ||
        next == Token::Kind::kFloat ||
        (next == Token::Kind::kName && !IsName("else") && !IsName("or") && !IsName("and") &&
         !IsName("is") && !IsName("if") && !IsName("in") && !IsName("not")) ||
        IsOp("[") || IsOp("{");
    if (Accept("(")) {
      RETURN_IF_ERROR(CallArguments(*test));
    } else if (operand) {
      ASSIGN_OR_RETURN(ExprPtr argument, Primary());
      ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
      test->args.push_back(std::move(argument));
    }
    return negated ? Make(Kind::kNot, std::move(test)) : std::move(test);
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Result<Body> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(auto tokens, Tokenize(source));
  return Parser(std::move(tokens)).Template();
}

}  // namespace thermocline::text::jinja
