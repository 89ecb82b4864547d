#include "engine/grammar/grammar_compiler.h"

#include <malloc.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/stopwatch.h"
#include "engine/grammar/expression.h"
#include "engine/grammar/free_text.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"

namespace thermocline::grammar {
namespace {

constexpr std::size_t kTrimBytes = 8 << 20;
// Divisors of the memory for compiled grammars: the share for one grammar's tables, and the size up
// to which a grammar is small.
constexpr std::int64_t kTablesShare = 4, kSmallShare = 64;

void AppendTexts(const std::vector<std::string>& texts, std::string& key) {
  for (const std::string& text : texts) key += StrCat("\n", text.size(), ":", text);
}

std::string KeyOf(const GrammarSpec& spec) {
  std::string key = StrCat(static_cast<int>(spec.kind), ":", spec.text.size(), ":", spec.text);
  AppendTexts(spec.choices, key);
  for (const GrammarPart& part : spec.parts) {
    key += StrCat("\npart ", part.name, part.at_start, part.lenient, part.bare,
                  static_cast<int>(part.quote));
    AppendTexts(part.stops, key);
    key += StrCat("\nexcept ", part.except.size());
    AppendTexts(part.except, key);
    if (part.spec != nullptr) AppendTexts({KeyOf(*part.spec)}, key);
  }
  return key;
}

std::size_t BytesOf(const GrammarSpec& spec) {
  std::size_t bytes = spec.text.size();
  for (const std::string& choice : spec.choices) bytes += choice.size();
  for (const GrammarPart& part : spec.parts) {
    for (const std::string& stop : part.stops) bytes += stop.size();
    if (part.spec != nullptr) bytes += BytesOf(*part.spec);
  }
  return bytes;
}

// Upper bound on the bytes of the trees that texts are parsed into: a JSON value has at least two
// bytes of text, a part of an expression one.
std::size_t ParsedBytesOf(const GrammarSpec& spec) {
  const bool json = spec.kind == GrammarSpec::Kind::kJsonSchema;
  std::size_t bytes = spec.text.size() * (json ? sizeof(Json) / 2 : sizeof(Expression));
  for (const std::string& choice : spec.choices) bytes += sizeof(Expression) + choice.size();
  for (const GrammarPart& part : spec.parts)
    if (part.spec != nullptr) bytes += ParsedBytesOf(*part.spec);
  return bytes;
}

Result<Grammar> GrammarOfFreeText(const GrammarPart& part, Budget& budget) {
  ASSIGN_OR_RETURN(const Dfa text, TextWithout(part.stops, part.at_start, budget));
  Grammar out;
  Nfa body;
  Insert(text, Nfa::kStart, body, Nfa::kFinal);
  out.AddRule(part.name);
  out.rules[0].body = std::move(body);
  return out;
}

// The strings that a schema allows, as plain text.
Result<Grammar> GrammarOfBareText(const GrammarPart& part, Budget& budget) {
  const BareForm form{.stops = part.stops, .except = part.except, .quote = part.quote};
  ASSIGN_OR_RETURN(const Json schema, base::ParseJson(part.spec->text));
  auto grammar = GrammarOfBareStrings(schema, form, budget);
  if (!part.lenient || grammar.status().code() != StatusCode::kUnimplemented)
    return grammar.ok() ? grammar : grammar.status().WithField(part.spec->field);
  return GrammarOfBareStrings(Json::Object{{"type", "string"}}, form, budget);
}

// A grammar of one rule.
Result<Grammar> GrammarOf(const Expression& expression, Budget& budget) {
  Grammar out;
  Nfa body;
  RETURN_IF_ERROR(Emit(expression, Nfa::kStart, body, Nfa::kFinal, budget));
  budget.Hold(body.bytes_held());
  out.AddRule("root");
  out.rules[0].body = std::move(body);
  return out;
}

Result<Grammar> GrammarOfChoices(const std::vector<std::string>& choices, Budget& budget) {
  std::vector<Expression> texts;
  for (const std::string& choice : choices) {
    if (choice.empty()) return base::InvalidArgument("a choice must have at least one byte");
    texts.push_back(TextOf(choice));
  }
  if (texts.empty()) return base::InvalidArgument("at least one choice must be given");
  return GrammarOf(ChoiceOf(std::move(texts)), budget);
}

}  // namespace

GrammarCompiler::GrammarCompiler(const text::Tokenizer& tokenizer, int vocab_size,
                                 const GrammarLimits& limits)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), limits_(limits) {}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::Compile(const GrammarSpec& spec) {
  const std::size_t bytes_max = limits_.bytes_max;
  if (BytesOf(spec) > bytes_max)
    return base::InvalidArgument("'", spec.field, "' has ", BytesOf(spec), " bytes; at most ",
                                 bytes_max, " are compiled (grammar.bytes_max)")
        .WithField(spec.field);
  const std::string key = KeyOf(spec);
  if (auto found = Find(key)) return found;
  const base::Stopwatch watch;
  const auto vocabulary = Vocabulary();
  Budget budget(limits_.states_max, limits_.compile_ms_max / 1000.0, limits_.compile_bytes_max());
  const auto compile = [&]() -> Result<std::shared_ptr<const CompiledGrammar>> {
    budget.Hold(ParsedBytesOf(spec));
    RETURN_IF_ERROR(budget.Check(0));
    ASSIGN_OR_RETURN(const Grammar parsed, Parse(spec, *vocabulary, budget));
    return CompiledGrammar::Create(
        parsed,
        {.vocabulary = vocabulary,
         .counters = counters_,
         .table_bytes_max = static_cast<std::size_t>(limits_.compiled_bytes_max() / kTablesShare),
         .take_room = [this](std::size_t least,
                             std::size_t wanted) { return TakeRoom(least, wanted); }},
        budget);
  };
  auto compiled = compile();
  if (budget.held() > kTrimBytes)
    ::malloc_trim(0);  // otherwise the heap keeps the memory indefinitely
  {
    const base::MutexLock lock(mutex_);
    ++(compiled.ok() ? stats_.compiled : stats_.refused);
    stats_.compile_s += watch.Seconds();
  }
  if (!compiled.ok())
    return compiled.status().field().empty() ? compiled.status().WithField(spec.field)
                                             : compiled.status();
  Keep(key, *compiled);
  return compiled;
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::FindCompiled(const GrammarSpec& spec) {
  return Find(KeyOf(spec));
}

std::shared_ptr<const VocabularyIndex> GrammarCompiler::Vocabulary() {
  const base::MutexLock lock(vocabulary_mutex_);
  if (vocabulary_ == nullptr)
    vocabulary_ = std::make_shared<const VocabularyIndex>(tokenizer_, vocab_size_);
  return vocabulary_;
}

Result<Grammar> GrammarCompiler::Parse(const GrammarSpec& spec, const VocabularyIndex& vocabulary,
                                       Budget& budget) const {
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonObject:
      return GrammarOfSchema(Json::Object{{"type", "object"}}, budget);
    case GrammarSpec::Kind::kJsonSchema: {
      const auto schema = base::ParseJson(spec.text);
      if (!schema.ok()) return schema.status().Annotate("the schema");
      return GrammarOfSchema(*schema, budget);
    }
    case GrammarSpec::Kind::kRegex: {
      ASSIGN_OR_RETURN(const Expression expression, ParseRegex(spec.text));
      return GrammarOf(expression, budget);
    }
    case GrammarSpec::Kind::kChoice:
      return GrammarOfChoices(spec.choices, budget);
    case GrammarSpec::Kind::kGbnf:
      break;
  }
  const auto find_part = [&](const std::string& name) -> std::optional<Result<Grammar>> {
    for (const GrammarPart& part : spec.parts)
      if (part.name == name) return ParsePart(part, vocabulary, budget);
    return std::nullopt;
  };
  return ParseGbnf(spec.text,
                   {.find_token = [&](const std::string& text) { return vocabulary.Find(text); },
                    .find_part = find_part},
                   budget);
}

Result<Grammar> GrammarCompiler::ParsePart(const GrammarPart& part,
                                           const VocabularyIndex& vocabulary,
                                           Budget& budget) const {
  if (part.spec == nullptr) return GrammarOfFreeText(part, budget);
  if (part.bare) return GrammarOfBareText(part, budget);
  auto grammar = Parse(*part.spec, vocabulary, budget);
  if (grammar.ok()) return grammar;
  if (part.lenient && grammar.status().code() == StatusCode::kUnimplemented)
    return GrammarOfSchema(Json::Object{{"type", "object"}}, budget);
  return grammar.status().WithField(part.spec->field);
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::Find(const std::string& key) {
  const base::MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  ++stats_.cache_hits;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().grammar;
}

Result<HeldBytes> GrammarCompiler::TakeRoom(std::size_t least, std::size_t wanted) {
  std::list<Entry> dropped;  // freed without the lock
  const base::MutexLock lock(mutex_);
  // Large grammars share one half, so that they do not displace the small ones of most clients.
  const std::int64_t all = limits_.compiled_bytes_max();
  const std::int64_t size = least;
  const std::int64_t most = size > all / kSmallShare ? all / 2 : all;
  const std::int64_t held = DropUnused(most - size, dropped), free = most - held;
  if (free < size)
    return base::ResourceExhausted(
               "the grammar needs ", base::HumanBytes(size), ", and those of other answers hold ",
               base::HumanBytes(held), " of the ", base::HumanBytes(most), " that ",
               most < all ? "large grammars" : "grammars",
               " may use (grammar.memory_mib, memory.budget_bytes); try again later")
        .WithReason(Reason::kGrammarMemory);
  // Tables leave half of the rest to the next grammar.
  const auto tables = std::min(wanted - least, static_cast<std::size_t>(free - size) / 2);
  return HeldBytes(held_, least + tables);
}

std::int64_t GrammarCompiler::DropUnused(std::int64_t held_max, std::list<Entry>& dropped) {
  std::int64_t held = *held_;
  for (auto entry = entries_.end(); held > held_max && entry != entries_.begin();) {
    --entry;
    if (entry->grammar.use_count() > 1) continue;  // dropping it would free nothing
    const auto unused = entry++;
    held -= unused->bytes();
    Drop(unused, dropped);
  }
  return held;
}

void GrammarCompiler::Keep(const std::string& key, std::shared_ptr<const CompiledGrammar> grammar) {
  std::list<Entry> dropped;  // freed without the lock
  const base::MutexLock lock(mutex_);
  if (by_key_.contains(key)) return;  // two requests at once
  const std::int64_t key_bytes = key.size();
  const std::int64_t held = DropUnused(limits_.compiled_bytes_max() / 4 * 3 - key_bytes, dropped);
  if (held + key_bytes > limits_.compiled_bytes_max()) return;
  entries_.push_front({HeldBytes(held_, key.size()), key, std::move(grammar)});
  stats_.cache_bytes += entries_.front().bytes();
  by_key_.emplace(entries_.front().key, entries_.begin());
  while (!entries_.empty() && stats_.cache_bytes > limits_.cache_bytes)
    Drop(std::prev(entries_.end()), dropped);
}

void GrammarCompiler::Drop(std::list<Entry>::iterator entry, std::list<Entry>& dropped) {
  stats_.cache_bytes -= entry->bytes();
  by_key_.erase(entry->key);
  dropped.splice(dropped.end(), entries_, entry);
}

GrammarStats GrammarCompiler::Stats() const {
  GrammarStats out;
  {
    const base::MutexLock lock(mutex_);
    out = stats_;
    out.cache_entries = entries_.size();
  }
  out.held_bytes = *held_;
  out.masks = counters_->masks;
  out.mask_s = static_cast<double>(counters_->mask_ns) / 1e9;
  out.forced_tokens = counters_->forced_tokens;
  out.forced_accepted_tokens = counters_->forced_accepted_tokens;
  return out;
}

}  // namespace thermocline::grammar
