#include "engine/sched/turn_order.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace thermocline::sched {
namespace {

using Candidate = TurnOrder::Candidate;

// Plays `turns` turns of 10 tokens among `requests`, which never end; returns their owners.
std::vector<std::size_t> Play(TurnOrder& order, std::vector<Candidate>& requests, int turns) {
  std::vector<std::size_t> played;
  for (std::uint64_t turn = 1000; turn < 1000 + static_cast<std::uint64_t>(turns); ++turn) {
    order.Update(requests);
    const std::size_t next = order.Next(requests);
    order.AddServedTokens(requests[next].tenant, 10, !requests[next].begun);
    requests[next].begun = true;
    requests[next].since = turn;
    played.push_back(next);
  }
  return played;
}

TEST(TurnOrder, HigherPrioritiesGoFirst) {
  TurnOrder order;
  std::vector<Candidate> requests = {{.priority = 0, .tenant = "a", .begun = false, .since = 1},
                                     {.priority = 1, .tenant = "a", .begun = false, .since = 2}};
  EXPECT_EQ(Play(order, requests, 3), (std::vector<std::size_t>{1, 1, 1}));
}

TEST(TurnOrder, BegunRequestsTakeTurns) {
  TurnOrder order;
  std::vector<Candidate> requests;
  for (std::uint64_t i = 0; i < 3; ++i)
    requests.push_back({.priority = 0, .tenant = "a", .begun = true, .since = i});
  EXPECT_EQ(Play(order, requests, 7), (std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(TurnOrder, NewcomersAndBegunRequestsAlternate) {
  TurnOrder order;
  std::vector<Candidate> requests;
  for (std::uint64_t i = 0; i < 3; ++i)
    requests.push_back({.priority = 0, .tenant = "a", .begun = true, .since = i});
  for (std::uint64_t i = 0; i < 3; ++i)
    requests.push_back({.priority = 0, .tenant = "a", .begun = false, .since = 10 + i});
  EXPECT_EQ(Play(order, requests, 6), (std::vector<std::size_t>{3, 0, 4, 1, 5, 2}));
}

TEST(TurnOrder, TenantsShareAlikeHoweverManyRequestsTheyHave) {
  TurnOrder order;
  std::vector<Candidate> requests;
  for (std::uint64_t i = 0; i < 9; ++i)
    requests.push_back({.priority = 0, .tenant = "many", .begun = true, .since = i});
  requests.push_back({.priority = 0, .tenant = "one", .begun = true, .since = 9});
  int one = 0;
  for (const std::size_t at : Play(order, requests, 100)) one += at == 9 ? 1 : 0;
  EXPECT_EQ(one, 50);
}

TEST(TurnOrder, ATenantThatComesBackHasNoCreditAndNoDebt) {
  TurnOrder order;
  std::vector<Candidate> requests = {{.priority = 0, .tenant = "a", .begun = true, .since = 1}};
  Play(order, requests, 50);
  requests.push_back({.priority = 0, .tenant = "b", .begun = false, .since = 60});
  std::map<std::size_t, int> turns;
  for (const std::size_t at : Play(order, requests, 20)) ++turns[at];
  EXPECT_EQ(turns[0], 10);
  EXPECT_EQ(turns[1], 10);
}

TEST(TurnOrder, ATurnIsKeptAgainstLowerPrioritiesAndTenantsThatHadMore) {
  TurnOrder order;
  const Candidate mine{.priority = 0, .tenant = "a", .begun = true, .since = 1};
  const Candidate low{.priority = -1, .tenant = "a", .begun = true, .since = 0};
  const Candidate same{.priority = 0, .tenant = "a", .begun = true, .since = 0};
  const Candidate other{.priority = 0, .tenant = "b", .begun = true, .since = 0};
  order.Update(std::vector<Candidate>{mine, low, same, other});
  EXPECT_TRUE(order.KeepsTurn(mine, low));
  EXPECT_FALSE(order.KeepsTurn(mine, same));
  EXPECT_FALSE(order.KeepsTurn(mine, other));
  order.AddServedTokens("b", 10, false);
  EXPECT_TRUE(order.KeepsTurn(mine, other));
  order.AddServedTokens("a", 20, false);
  EXPECT_FALSE(order.KeepsTurn(mine, other));
}

}  // namespace
}  // namespace thermocline::sched
