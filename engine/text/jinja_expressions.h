// Expressions of the template language, by recursive descent. Source: the precedence of Jinja's own
// parser.
#pragma once

#include <string>
#include <utility>

#include "engine/text/jinja_cursor.h"

namespace thermocline::text::jinja {

class ExpressionParser : protected TokenCursor {
 protected:
  using TokenCursor::TokenCursor;

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
      RETURN_IF_ERROR(CheckChain(*value));
    }
    return value;
  }

  Result<ExprPtr> Or() {
    ASSIGN_OR_RETURN(ExprPtr left, And());
    while (Accept("or")) {
      ASSIGN_OR_RETURN(ExprPtr right, And());
      left = Make(Kind::kOr, std::move(left), std::move(right));
      RETURN_IF_ERROR(CheckChain(*left));
    }
    return left;
  }

  Result<ExprPtr> And() {
    ASSIGN_OR_RETURN(ExprPtr left, Not());
    while (Accept("and")) {
      ASSIGN_OR_RETURN(ExprPtr right, Not());
      left = Make(Kind::kAnd, std::move(left), std::move(right));
      RETURN_IF_ERROR(CheckChain(*left));
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

  using Rule = Result<ExprPtr> (ExpressionParser::*)();
  Result<ExprPtr> LeftAssociative(Rule operand, std::initializer_list<std::string_view> ops) {
    ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
    while (Peek().kind == Token::Kind::kOperator &&
           std::find(ops.begin(), ops.end(), Peek().text) != ops.end()) {
      const std::string op = Next().text;
      ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
      left = Make(Kind::kBinary, std::move(left), std::move(right));
      left->name = op;
      RETURN_IF_ERROR(CheckChain(*left));
    }
    return left;
  }
  Result<ExprPtr> Sum() { return LeftAssociative(&ExpressionParser::Concat, {"+", "-"}); }
  Result<ExprPtr> Concat() { return LeftAssociative(&ExpressionParser::Product, {"~"}); }
  Result<ExprPtr> Product() {
    return LeftAssociative(&ExpressionParser::Power, {"*", "/", "//", "%"});
  }
  Result<ExprPtr> Power() { return LeftAssociative(&ExpressionParser::Unary, {"**"}); }

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
      RETURN_IF_ERROR(CheckChain(*expr));
    }
    return expr;
  }

  Result<ExprPtr> Primary() {
    const Token token = Next();
    ExprPtr expr = Make(Kind::kConst);
    expr->line = token.line;
    switch (token.kind) {
      case Token::Kind::kString:
        expr->value = Value::MakeOwn(token.text);
        while (Peek().kind == Token::Kind::kString)
          expr->value = Value::MakeOwn(expr->value.as_string() + Next().text);
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
      RETURN_IF_ERROR(CheckChain(*expr));
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
      RETURN_IF_ERROR(CheckChain(*expr));
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
};

}  // namespace thermocline::text::jinja
