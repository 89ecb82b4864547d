// A JSON list that is built only to be written.
#pragma once

#include <string>

#include "engine/base/json.h"

namespace thermocline::base {

// Takes values one after another and keeps only their text, a sixth of the size of the values: a
// list may have hundreds of thousands of entries.
class JsonList {
 public:
  void Add(const Json& value);
  void Add(const JsonList& values);
  bool empty() const { return values_.empty(); }
  // The list as a value that only Json::Dump can read. Take leaves the list empty.
  Json Written() const;
  Json Take();

 private:
  std::string values_;  // with commas between
};

}  // namespace thermocline::base
