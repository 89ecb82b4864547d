// A list of JSON that is only to be written.
#pragma once

#include <string>

#include "engine/base/json.h"

namespace thermocline::base {

// Takes values one after another and keeps their text, which is a sixth of what the values take: a
// list may have hundreds of thousands of them.
class JsonList {
 public:
  void Add(const Json& value);
  void Add(const JsonList& values);
  bool empty() const { return values_.empty(); }
  // The list, which only Json::Dump can read. Take leaves none.
  Json Written() const;
  Json Take();

 private:
  std::string values_;  // with commas between
};

}  // namespace thermocline::base
