#include "server/core/request_id.h"

#include <gtest/gtest.h>

#include <set>

#include "server/core/request_limits.h"

namespace thermocline::server {
namespace {

TEST(RequestId, IsPrintableAsciiOfBoundedLength) {
  const std::string longest(kRequestIdBytesMax, 'x');
  for (const std::string& id :
       {std::string("mine-1"), std::string("!"), std::string("~"), longest}) {
    EXPECT_TRUE(IsRequestId(id)) << id;
    EXPECT_EQ(RequestIdFrom(id), id);
  }
  for (const std::string& id : {std::string(), longest + "x", std::string("a b"),
                                std::string("a\n"), std::string("\x7F"), std::string("\xC3\xA9")}) {
    EXPECT_FALSE(IsRequestId(id)) << id;
    EXPECT_TRUE(RequestIdFrom(id).starts_with("req_")) << id;
  }
}

TEST(RequestId, NewOnesAreIdsAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(NewRequestId());
  EXPECT_EQ(ids.size(), 1000u);
  for (const std::string& id : ids) {
    EXPECT_TRUE(IsRequestId(id)) << id;
    EXPECT_EQ(id.size(), 20u) << id;
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef", 4), std::string::npos) << id;
  }
}

}  // namespace
}  // namespace thermocline::server
