// The parts of a JSON schema that apply together: follows references, and splits conjunctions.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/grammar/budget.h"

namespace thermocline::grammar {

// A schema extracted from another one holds that one as a definition of this name, and refers to
// places in it as "#/$defs/thermocline_root/...". Messages show the reference as the client wrote
// it.
inline constexpr std::string_view kOuterSchema = "thermocline_root";

// InvalidArgument: the keyword's value is not `expected`.
Status MalformedSchema(std::string_view keyword, std::string_view expected);
// Returns the schema that `pointer` ("#/$defs/a") refers to; nullptr: there is none.
const Json* FindReference(const Json& root, std::string_view pointer);

// Thread-compatible. The schemas must live as long.
class SchemaAtoms {
 public:
  // References are looked up in `root`.
  SchemaAtoms(const Json& root, Budget& budget) : root_(root), budget_(budget) {}

  // Adds the parts of `schema`. Unimplemented: an unsupported keyword; InvalidArgument: a malformed
  // one, a dangling or circular reference; or as Budget::Check.
  Status Collect(const Json& schema);

  const std::vector<const Json*>& found() const { return found_; }
  bool never() const { return never_; }  // one of them cannot be satisfied

 private:
  Status Follow(const Json& reference);

  const Json& root_;
  Budget& budget_;
  std::vector<const Json*> found_;
  bool never_ = false;
  std::set<std::string> seen_, open_;  // open_: being followed now
  int count_ = 0;
};

}  // namespace thermocline::grammar
