// Runs a template's syntax tree, within bounds on steps, output and depth.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_budget.h"

namespace thermocline::text::jinja {

// Names visible at one point; loops and macros open new ones.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<std::string, Value, std::less<>, CountedAllocator<std::pair<const std::string, Value>>>
      names;
};

// One rendering; thread-compatible.
class Interpreter {
 public:
  explicit Interpreter(const Limits& limits)
      : budget_(limits), globals_(std::make_shared<Scope>()) {}

  void SetGlobal(const std::string& name, Value value) { globals_->names[name] = std::move(value); }
  // ResourceExhausted if a limit is exceeded; InvalidArgument for errors that Python's jinja2 would
  // raise.
  Result<TemplateText> Render(const Body& body);

  const Limits& limits() const { return budget_.limits(); }

  // For built-ins:
  Result<Value> Call(const Value& function, const Arguments& arguments);
  Result<Value> ApplyFilter(const std::string& name, const Value& value,
                            const Arguments& arguments);
  Result<bool> ApplyTest(const std::string& name, const Value& value, const Arguments& arguments);
  // Charges `bytes` that a built-in created.
  Status Charge(std::size_t bytes) { return budget_.Charge(bytes); }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  Result<Flow> Execute(const Body& body, const ScopePtr& scope, TemplateText& out);
  Result<Flow> ExecuteOne(const Stmt& stmt, const ScopePtr& scope, TemplateText& out);
  Result<Flow> ExecuteFor(const Stmt& stmt, const ScopePtr& scope, TemplateText& out);
  Status ExecuteSet(const Stmt& stmt, const ScopePtr& scope);
  Status ExecuteSetBlock(const Stmt& stmt, const ScopePtr& scope);
  void DefineMacro(const Stmt& stmt, const ScopePtr& scope);
  Result<Value> CallMacro(const Stmt& stmt, const ScopePtr& scope, const Arguments& arguments);
  Status Assign(const Expr& target, Value value, const ScopePtr& scope);

  Status CheckDepth(int line) const;
  Result<Value> Evaluate(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvaluateInner(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvaluateCall(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvaluateCompare(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvaluateFilter(const Expr& expr, Value input, const ScopePtr& scope);
  Result<Arguments> EvaluateArguments(const Expr& expr, const ScopePtr& scope);
  static Value Lookup(const std::string& name, const ScopePtr& scope);

  Budget budget_;
  std::shared_ptr<Scope> globals_;
  int depth_ = 0;
};

// Operators and access with Python's semantics (jinja_operators.cc).
Result<Value> Binary(const std::string& op, const Value& a, const Value& b);
// True if `by` divides n without a remainder; 0 divides nothing.
bool Divides(std::int64_t by, std::int64_t n);
Result<bool> CompareValues(const std::string& op, const Value& a, const Value& b);
Result<Value> GetItem(const Value& object, const Value& key);
Result<Value> GetAttribute(const Value& object, const std::string& name);
Result<Value> Slice(const Value& object, const Value& start, const Value& stop, const Value& step);
// The elements that a loop iterates over. InvalidArgument if `value` is not iterable.
Result<Value::List> Iterate(const Value& value);

// Methods of strings, lists and dicts (jinja_methods.cc). NotFound if there is no such method.
Result<Value> CallMethod(Interpreter& interpreter, const Value& object, const std::string& name,
                         const Arguments& arguments);
bool IsDictMethod(std::string_view name);

// range, namespace, dict, raise_exception, strftime_now.
void AddGlobals(Interpreter& interpreter);

}  // namespace thermocline::text::jinja
