// Compiles clients' grammars, and caches the compiled ones up to a number of bytes.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/api/grammar_spec.h"
#include "engine/api/grammar_stats.h"
#include "engine/base/mutex.h"
#include "engine/grammar/compiled_grammar.h"

namespace thermocline::grammar {

// Thread-safe: compiles on the calling thread, without a lock.
class GrammarCompiler {
 public:
  // `tokenizer` must live as long. The vocabulary's index is built on first use.
  GrammarCompiler(const text::Tokenizer& tokenizer, int vocab_size, const GrammarLimits& limits);

  // Errors carry GrammarSpec::field: InvalidArgument or Unimplemented with the cause;
  // ResourceExhausted: the grammars of other answers use all the memory for grammars.
  Result<std::shared_ptr<const CompiledGrammar>> Compile(const GrammarSpec& spec);
  // Returns the grammar if it was compiled before and is still cached; otherwise nullptr. Takes no
  // time.
  std::shared_ptr<const CompiledGrammar> FindCompiled(const GrammarSpec& spec);
  GrammarStats Stats() const;

 private:
  struct Entry {
    HeldBytes key_held;  // released last
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
    std::size_t bytes() const { return grammar->bytes_held() + key.size(); }
  };
  std::shared_ptr<const VocabularyIndex> Vocabulary();
  Result<Grammar> Parse(const GrammarSpec& spec, const VocabularyIndex& vocabulary,
                        Budget& budget) const;
  Result<Grammar> ParsePart(const GrammarPart& part, const VocabularyIndex& vocabulary,
                            Budget& budget) const;
  std::shared_ptr<const CompiledGrammar> Find(const std::string& key);
  // Memory for a grammar, as CompiledGrammar::Params::take_room: unused cached grammars are dropped
  // for it.
  Result<HeldBytes> TakeRoom(std::size_t least, std::size_t wanted);
  void Keep(const std::string& key, std::shared_ptr<const CompiledGrammar> grammar);
  // Drops the oldest entries that no answer uses, until all grammars hold at most `held_max` bytes.
  // Returns the bytes held once `dropped` is destroyed.
  std::int64_t DropUnused(std::int64_t held_max, std::list<Entry>& dropped) REQUIRES(mutex_);
  void Drop(std::list<Entry>::iterator entry, std::list<Entry>& dropped) REQUIRES(mutex_);

  const text::Tokenizer& tokenizer_;
  const int vocab_size_;
  const GrammarLimits limits_;
  const std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
  // The bytes of all compiled grammars, cached or in use.
  const std::shared_ptr<HeldBytes::Total> held_ = std::make_shared<HeldBytes::Total>(0);
  base::Mutex vocabulary_mutex_;  // held while the index is built
  std::shared_ptr<const VocabularyIndex> vocabulary_ GUARDED_BY(vocabulary_mutex_);
  mutable base::Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // most recently used first
  // The entries by Entry::key.
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_ GUARDED_BY(mutex_);
  GrammarStats stats_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::grammar
