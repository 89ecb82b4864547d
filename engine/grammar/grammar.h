// A context-free grammar over bytes and tokens, the output of every front end.
#pragma once

#include <string>
#include <vector>

#include "engine/base/index.h"
#include "engine/grammar/nfa.h"

namespace thermocline::grammar {

struct Rule {
  std::string name;  // for messages
  Nfa body = {};
};

struct Grammar {
  std::vector<Rule> rules;
  int root = 0;

  // Adds an empty rule and returns its index. Invalidates references to earlier rules.
  int AddRule(std::string name) {
    rules.push_back({std::move(name)});
    return base::IntSize(rules) - 1;
  }
};

}  // namespace thermocline::grammar
