// The base of both halves of the parser: a position in the tokens, errors, nodes, a bound on
// nesting.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_lexer.h"

namespace thermocline::text::jinja {

class TokenCursor {
 protected:
  using Kind = Expr::Kind;
  static constexpr int kDepthMax = 120, kChainMax = 500;

  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

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
  // A chain of operators is as deep as it is long: it is computed and freed by recursion.
  Status CheckChain(const Expr& expr) const {
    return expr.height > kChainMax ? Error("more than ", kChainMax, " operators in a chain")
                                   : OkStatus();
  }
  template <typename... Args>
  ExprPtr Make(Kind kind, ExprPtr first, Args... rest) const {
    ExprPtr expr = Make(kind);
    expr->height = first->height + 1;
    expr->args.push_back(std::move(first));
    (expr->args.push_back(std::move(rest)), ...);
    return expr;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace thermocline::text::jinja
