// Statements of the template language, by recursive descent over the grammar of Jinja 3.
#include "engine/text/jinja_expressions.h"

namespace thermocline::text::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Body> Template() {
    Body body;
    RETURN_IF_ERROR(Statements({}, body));
    if (Peek().kind != Token::Kind::kEnd) return Error("unexpected ", Describe(Peek()));
    return body;
  }

 private:
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

  int loops_ = 0;
};

}  // namespace

Result<Body> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(auto tokens, Tokenize(source));
  return Parser(std::move(tokens)).Template();
}

}  // namespace thermocline::text::jinja
