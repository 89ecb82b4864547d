#include "engine/text/jinja_interpreter.h"

namespace thermocline::text::jinja {

Result<TemplateText> Interpreter::Render(const Body& body) {
  const WalkMeter meter;
  AddGlobals(*this);
  TemplateText out;
  ASSIGN_OR_RETURN(const Flow flow, Execute(body, globals_, out));
  static_cast<void>(flow);
  return out;
}

Status Interpreter::CheckDepth(int line) const {
  if (depth_ < limits().depth) return OkStatus();
  return base::ResourceExhausted("line ", line, ": the chat template nests deeper than ",
                                 limits().depth, " levels");
}

Result<Interpreter::Flow> Interpreter::Execute(const Body& body, const ScopePtr& scope,
                                               TemplateText& out) {
  for (const StmtPtr& stmt : body) {
    RETURN_IF_ERROR(Charge(0));
    RETURN_IF_ERROR(CheckDepth(stmt->line));
    ++depth_;
    auto result = ExecuteOne(*stmt, scope, out);
    --depth_;
    ASSIGN_OR_RETURN(const Flow flow, std::move(result));
    if (flow != Flow::kNext) return flow;
    if (out.size() > limits().output_bytes)
      return base::ResourceExhausted("the chat template writes more than ", limits().output_bytes,
                                     " bytes");
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::ExecuteOne(const Stmt& stmt, const ScopePtr& scope,
                                                  TemplateText& out) {
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      out.AppendOwn(stmt.text);
      return Flow::kNext;
    case Stmt::Kind::kOutput: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*stmt.expr, scope));
      const TemplateText text = value.ToText();
      RETURN_IF_ERROR(Charge(text.size()));
      out.Append(text);
      return Flow::kNext;
    }
    case Stmt::Kind::kIf:
      for (const auto& [condition, body] : stmt.branches) {
        if (condition != nullptr) {
          ASSIGN_OR_RETURN(const Value value, Evaluate(*condition, scope));
          if (!value.Truthy()) continue;
        }
        return Execute(body, scope, out);
      }
      return Flow::kNext;
    case Stmt::Kind::kFor:
      return ExecuteFor(stmt, scope, out);
    case Stmt::Kind::kSet:
      RETURN_IF_ERROR(ExecuteSet(stmt, scope));
      return Flow::kNext;
    case Stmt::Kind::kSetBlock:
      RETURN_IF_ERROR(ExecuteSetBlock(stmt, scope));
      return Flow::kNext;
    case Stmt::Kind::kMacro:
      DefineMacro(stmt, scope);
      return Flow::kNext;
    case Stmt::Kind::kFilterBlock: {
      TemplateText text;
      ASSIGN_OR_RETURN(const Flow flow, Execute(stmt.body, scope, text));
      ASSIGN_OR_RETURN(const Value value,
                       EvaluateFilter(*stmt.filter, Value(std::move(text)), scope));
      out.Append(value.ToText());
      return flow;
    }
    case Stmt::Kind::kScope:
      return Execute(stmt.body, scope, out);
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

namespace {

// Annotates `fault` with this line of the template.
Status AtLine(int line, const Status& fault) {
  return fault.Annotate(StrCat("line ", line)).WithReason(Reason::kChatTemplate);
}

Value LoopVariable(const Value::List& items, std::size_t i) {
  const std::int64_t index = i, length = items.size();
  Value loop = Value::MakeDict();
  loop.dict() = {{Value("index0"), Value(index)},
                 {Value("index"), Value(index + 1)},
                 {Value("revindex0"), Value(length - 1 - index)},
                 {Value("revindex"), Value(length - index)},
                 {Value("first"), Value(i == 0)},
                 {Value("last"), Value(i + 1 == items.size())},
                 {Value("length"), Value(length)},
                 {Value("previtem"), i > 0 ? items[i - 1] : Value::MakeUndefined("loop.previtem")},
                 {Value("nextitem"),
                  i + 1 < items.size() ? items[i + 1] : Value::MakeUndefined("loop.nextitem")}};
  return loop;
}

// Assigns to one name, or unpacks a list over several.
Status Bind(const std::vector<ExprPtr>& targets, const Value& value, Scope& scope) {
  if (targets.size() == 1) {
    scope.names[targets[0]->name] = value;
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const Value::List parts, Iterate(value));
  if (parts.size() != targets.size())
    return base::InvalidArgument("cannot unpack ", parts.size(), " values into ", targets.size(),
                                 " names");
  for (std::size_t i = 0; i < parts.size(); ++i) scope.names[targets[i]->name] = parts[i];
  return OkStatus();
}

}  // namespace

Result<Interpreter::Flow> Interpreter::ExecuteFor(const Stmt& stmt, const ScopePtr& scope,
                                                  TemplateText& out) {
  ASSIGN_OR_RETURN(const Value sequence, Evaluate(*stmt.expr, scope));
  ASSIGN_OR_RETURN(Value::List items, Iterate(sequence));
  RETURN_IF_ERROR(Charge(items.size() * sizeof(Value)));
  if (stmt.filter != nullptr) {
    Value::List kept;
    for (const Value& item : items) {
      const auto inner = std::make_shared<Scope>(Scope{scope, {}});
      RETURN_IF_ERROR(Bind(stmt.targets, item, *inner));
      ASSIGN_OR_RETURN(const Value keep, Evaluate(*stmt.filter, inner));
      if (keep.Truthy()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) return Execute(stmt.else_body, scope, out);
  for (std::size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(Charge(0));
    const auto inner = std::make_shared<Scope>(Scope{scope, {}});
    inner->names["loop"] = LoopVariable(items, i);
    RETURN_IF_ERROR(Bind(stmt.targets, items[i], *inner));
    ASSIGN_OR_RETURN(const Flow flow, Execute(stmt.body, inner, out));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Status Interpreter::Assign(const Expr& target, Value value, const ScopePtr& scope) {
  if (target.kind == Expr::Kind::kName) {
    scope->names[target.name] = std::move(value);
    return OkStatus();
  }
  Value object = Lookup(target.args[0]->name, scope);
  if (!object.is_dict())
    return AtLine(target.line, base::InvalidArgument("only a namespace's attributes can be set, '",
                                                     target.args[0]->name, "' is none"));
  if (value.Reaches(object))
    return AtLine(target.line, base::InvalidArgument("a namespace cannot be put inside itself"));
  object.SetItem(Value(target.name), std::move(value));
  return OkStatus();
}

Status Interpreter::ExecuteSet(const Stmt& stmt, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Value value, Evaluate(*stmt.expr, scope));
  if (stmt.targets.size() == 1) return Assign(*stmt.targets[0], std::move(value), scope);
  ASSIGN_OR_RETURN(const Value::List parts, Iterate(value));
  if (parts.size() != stmt.targets.size())
    return AtLine(stmt.line, base::InvalidArgument("cannot unpack ", parts.size(), " values into ",
                                                   stmt.targets.size(), " names"));
  for (std::size_t i = 0; i < parts.size(); ++i)
    RETURN_IF_ERROR(Assign(*stmt.targets[i], parts[i], scope));
  return OkStatus();
}

Status Interpreter::ExecuteSetBlock(const Stmt& stmt, const ScopePtr& scope) {
  TemplateText text;
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  RETURN_IF_ERROR(Execute(stmt.body, inner, text).status());
  Value value(std::move(text));
  if (stmt.filter != nullptr) {
    ASSIGN_OR_RETURN(value, EvaluateFilter(*stmt.filter, std::move(value), scope));
  }
  return Assign(*stmt.targets[0], std::move(value), scope);
}

void Interpreter::DefineMacro(const Stmt& stmt, const ScopePtr& scope) {
  // The scope owns the macro, so the macro must not own the scope.
  const std::weak_ptr<Scope> home = scope;
  const Stmt* macro = &stmt;
  scope->names[stmt.text] = Value::MakeFunction(
      [macro, home](Interpreter& interpreter, const Arguments& arguments) -> Result<Value> {
        const ScopePtr where = home.lock();
        return interpreter.CallMacro(*macro, where != nullptr ? where : interpreter.globals_,
                                     arguments);
      });
}

Result<Value> Interpreter::CallMacro(const Stmt& stmt, const ScopePtr& scope,
                                     const Arguments& arguments) {
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  if (arguments.positional.size() > stmt.params.size()) {
    return AtLine(stmt.line,
                  base::InvalidArgument("macro '", stmt.text, "' takes ", stmt.params.size(),
                                        " arguments, got ", arguments.positional.size()));
  }
  for (const auto& [name, value] : arguments.named) {
    bool known = false;
    for (const auto& param : stmt.params) known = known || param.first == name;
    if (!known)
      return AtLine(stmt.line,
                    base::InvalidArgument("macro '", stmt.text, "' has no parameter '", name, "'"));
  }
  for (std::size_t i = 0; i < stmt.params.size(); ++i) {
    const auto& [name, fallback] = stmt.params[i];
    Value value = arguments.Get(i, name);
    if (value.is_undefined() && fallback != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*fallback, inner));
    }
    inner->names[name] = value.is_undefined() ? Value::MakeUndefined(name) : std::move(value);
  }
  TemplateText out;
  RETURN_IF_ERROR(Execute(stmt.body, inner, out).status());
  return Value(std::move(out));
}

Value Interpreter::Lookup(const std::string& name, const ScopePtr& scope) {
  for (const Scope* at = scope.get(); at != nullptr; at = at->parent.get()) {
    const auto found = at->names.find(name);
    if (found != at->names.end()) return found->second;
  }
  return Value::MakeUndefined(name);
}

Result<Value> Interpreter::Evaluate(const Expr& expr, const ScopePtr& scope) {
  RETURN_IF_ERROR(Charge(0));
  RETURN_IF_ERROR(CheckDepth(expr.line));
  ++depth_;
  auto result = EvaluateInner(expr, scope);
  --depth_;
  if (result.ok()) RETURN_IF_ERROR(Charge(BytesMade(expr, *result)));
  if (result.ok()) return result;
  const Status fault = result.status();
  const bool has_line = fault.reason() == Reason::kChatTemplate;  // set by the innermost expression
  if (has_line || fault.code() != StatusCode::kInvalidArgument) return fault;
  return AtLine(expr.line, fault);
}

// NOLINTNEXTLINE(readability-function-size): a line for each kind of expression
Result<Value> Interpreter::EvaluateInner(const Expr& expr, const ScopePtr& scope) {
  using Kind = Expr::Kind;
  const auto arg = [&](std::size_t i) -> Result<Value> {
    return expr.args[i] == nullptr ? Result<Value>(Value()) : Evaluate(*expr.args[i], scope);
  };
  switch (expr.kind) {
    case Kind::kConst:
      return expr.value;
    case Kind::kName:
      return Lookup(expr.name, scope);
    case Kind::kCall:
      return EvaluateCall(expr, scope);
    case Kind::kCompare:
      return EvaluateCompare(expr, scope);
    case Kind::kList:
    case Kind::kTuple: {
      Value::List items;
      for (std::size_t i = 0; i < expr.args.size(); ++i) {
        ASSIGN_OR_RETURN(Value item, arg(i));
        items.push_back(std::move(item));
      }
      return Value::MakeList(std::move(items), expr.kind == Kind::kTuple);
    }
    case Kind::kDict: {
      Value dict = Value::MakeDict();
      for (std::size_t i = 0; i + 1 < expr.args.size(); i += 2) {
        ASSIGN_OR_RETURN(Value key, arg(i));
        ASSIGN_OR_RETURN(Value value, arg(i + 1));
        dict.SetItem(std::move(key), std::move(value));
      }
      return dict;
    }
    case Kind::kCondition: {
      ASSIGN_OR_RETURN(const Value condition, arg(1));
      return condition.Truthy() ? arg(0) : arg(2);
    }
    default:
      break;
  }
  ASSIGN_OR_RETURN(Value first, arg(0));
  switch (expr.kind) {
    case Kind::kGetAttr:
      return GetAttribute(first, expr.name);
    case Kind::kAnd:
      return first.Truthy() ? arg(1) : Result<Value>(std::move(first));
    case Kind::kOr:
      return first.Truthy() ? Result<Value>(std::move(first)) : arg(1);
    case Kind::kNot:
      return Value(!first.Truthy());
    case Kind::kFilter:
      return EvaluateFilter(expr, std::move(first), scope);
    case Kind::kNegate:
      if (first.is_int()) return Binary("-", Value(0), first);
      if (first.is_number()) return Value(-first.as_double());
      return base::InvalidArgument("cannot negate a ", first.type_name());
    case Kind::kTest: {
      ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr, scope));
      ASSIGN_OR_RETURN(const bool holds, ApplyTest(expr.name, first, arguments));
      return Value(holds);
    }
    case Kind::kSlice: {
      ASSIGN_OR_RETURN(const Value start, arg(1));
      ASSIGN_OR_RETURN(const Value stop, arg(2));
      ASSIGN_OR_RETURN(const Value step, arg(3));
      return Slice(first, start, stop, step);
    }
    default:
      break;
  }
  ASSIGN_OR_RETURN(const Value second, arg(1));
  return expr.kind == Kind::kGetItem ? GetItem(first, second) : Binary(expr.name, first, second);
}

Result<Arguments> Interpreter::EvaluateArguments(const Expr& expr, const ScopePtr& scope) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.args.size(); ++i) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expr.args[i], scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, inner] : expr.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*inner, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<Value> Interpreter::EvaluateFilter(const Expr& expr, Value input, const ScopePtr& scope) {
  // In a chain of filters on a block, the innermost filter gets the block's text.
  if (!expr.args.empty() && expr.args[0]->kind == Expr::Kind::kFilter && input.is_string() &&
      expr.args[0]->args[0]->name.empty() && expr.args[0]->args[0]->kind == Expr::Kind::kName) {
    ASSIGN_OR_RETURN(input, EvaluateFilter(*expr.args[0], std::move(input), scope));
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr, scope));
  return ApplyFilter(expr.name, input, arguments);
}

Result<Value> Interpreter::EvaluateCall(const Expr& expr, const ScopePtr& scope) {
  const Expr& callee = *expr.args[0];
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr, scope));
  if (callee.kind == Expr::Kind::kGetAttr) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*callee.args[0], scope));
    if (object.is_undefined())
      return base::InvalidArgument("'", object.undefined_name(), "' is undefined");
    const Value* member =
        object.is_dict() && !IsDictMethod(callee.name) ? object.FindKey(callee.name) : nullptr;
    if (member != nullptr) return Call(*member, arguments);
    return CallMethod(*this, object, callee.name, arguments);
  }
  ASSIGN_OR_RETURN(const Value function, Evaluate(callee, scope));
  if (function.is_undefined()) return base::InvalidArgument("'", callee.name, "' is undefined");
  return Call(function, arguments);
}

Result<Value> Interpreter::Call(const Value& function, const Arguments& arguments) {
  if (!function.is_function())
    return base::InvalidArgument("a ", function.type_name(), " is no function");
  return function.function()(*this, arguments);
}

Result<Value> Interpreter::EvaluateCompare(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expr.args[0], scope));
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*expr.args[i + 1], scope));
    ASSIGN_OR_RETURN(const bool holds, CompareValues(expr.ops[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

}  // namespace thermocline::text::jinja
