#include "engine/base/json_list.h"

#include <utility>

namespace thermocline::base {

void JsonList::Add(const Json& value) {
  if (!values_.empty()) values_.push_back(',');
  value.AppendTo(values_);
}

void JsonList::Add(const JsonList& values) {
  if (!values_.empty() && !values.empty()) values_.push_back(',');
  values_ += values.values_;
}

Json JsonList::Written() const { return JsonList(*this).Take(); }

Json JsonList::Take() {
  values_.insert(values_.begin(), '[');
  values_.push_back(']');
  return Json::OfWritten(std::exchange(values_, {}));
}

}  // namespace thermocline::base
