// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja_value.h"

namespace thermocline::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kConst,    // value
    kName,     // name
    kGetAttr,  // args[0] . name
    kGetItem,  // args[0] [ args[1] ]
    kSlice,    // args[0] [ args[1] : args[2] : args[3] ], absent bounds are nullptr
    kCall,     // args[0] ( args[1..], named )
    kFilter,   // args[0] | name ( args[1..], named )
    kTest,     // args[0] is name ( args[1..] )
    kNegate,
    kNot,
    kBinary,   // args[0] name args[1]; name is + - * / // % ** ~
    kCompare,  // args[0] ops[0] args[1] ops[1] args[2] ...
    kAnd,
    kOr,
    kCondition,  // args[0] if args[1] else args[2] (may be nullptr)
    kList,
    kTuple,
    kDict,  // key, value, key, value, ...
  };
  Kind kind;
  int line = 0;
  int height = 0;  // of the first operands below it
  std::string name;
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> ops;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct Stmt {
  enum class Kind {
    kText,         // text
    kOutput,       // {{ expr }}
    kIf,           // branches: (condition or nullptr, body)
    kFor,          // for targets in expr if filter: body, else_body
    kSet,          // targets = expr
    kSetBlock,     // targets[0] = body | filter
    kMacro,        // text(params): body
    kFilterBlock,  // filter applied to body
    kScope,        // body (generation)
    kBreak,
    kContinue,
  };
  Kind kind;
  int line = 0;
  std::string text;
  ExprPtr expr, filter;
  std::vector<ExprPtr> targets;  // names or attributes
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<std::string, ExprPtr>> params;  // name, default or nullptr
  Body body, else_body;
};

// Parses a whole template. InvalidArgument for syntax errors, Unimplemented for a construct outside
// the subset; both with the line and the construct's name.
Result<Body> Parse(std::string_view source);

// True if there is a filter or test of that name.
bool HasFilter(std::string_view name);
bool HasTest(std::string_view name);

}  // namespace thermocline::text::jinja
