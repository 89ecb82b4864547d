// The parts of a JSON schema that hold at once: references followed, conjunctions taken apart.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/grammar/budget.h"

namespace thermocline::grammar {

// A schema that was a part of another one holds that one as a definition of this name, and refers
// to places in it as "#/$defs/thermocline_root/...". Messages show the reference that the client
// wrote.
inline constexpr std::string_view kOuterSchema = "thermocline_root";

// InvalidArgument: a keyword is not what it must be.
Status MalformedSchema(std::string_view keyword, std::string_view expected);
// Returns the schema that `pointer` ("#/$defs/a") refers to; nullptr: there is none.
const Json* FindReference(const Json& root, std::string_view pointer);

// Thread-compatible. The schemas must live as long.
class SchemaAtoms {
 public:
  // `root` is what references are looked up in.
  SchemaAtoms(const Json& root, Budget& budget) : root_(root), budget_(budget) {}

  // Adds what `schema` says. Unimplemented: a keyword that is not supported; InvalidArgument: one
  // that is malformed, a reference to nothing or in a circle; or as Budget::Check.
  Status Collect(const Json& schema);

  const std::vector<const Json*>& found() const { return found_; }
  bool never() const { return never_; }  // nothing satisfies one of them

 private:
  Status Follow(const Json& reference);

  const Json& root_;
  Budget& budget_;
  std::vector<const Json*> found_;
  bool never_ = false;
  std::set<std::string> seen_, open_;  // open_: not left yet
  int count_ = 0;
};

}  // namespace thermocline::grammar
