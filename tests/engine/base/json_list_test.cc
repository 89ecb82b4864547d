#include "engine/base/json_list.h"

#include <gtest/gtest.h>

namespace thermocline::base {
namespace {

TEST(JsonList, IsWrittenAsAListOfItsValues) {
  JsonList list;
  EXPECT_EQ(list.Written().Dump(), "[]");
  const Json::Array values = {1, 0.5, "a\"\n", nullptr, Json::Array{2}, Json::Object{{"b", true}}};
  for (const Json& value : values) list.Add(value);
  EXPECT_EQ(list.Written().Dump(), Json(values).Dump());
  const Json inside = Json::Object{{"list", list.Take()}, {"behind", 1}};
  EXPECT_EQ(inside.Dump(), (Json(Json::Object{{"list", values}, {"behind", 1}}).Dump()));
  EXPECT_TRUE(list.empty());
}

TEST(JsonList, TakesTheValuesOfAnother) {
  JsonList list, others, none;
  list.Add(others);
  others.Add(1);
  others.Add(2);
  list.Add(others);
  list.Add(none);
  list.Add(others);
  EXPECT_EQ(list.Take().Dump(), "[1,2,1,2]");
}

}  // namespace
}  // namespace thermocline::base
