#include "server/grpc/connection_credit.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "server/grpc/shared_socket.h"

namespace thermocline::rpc {
namespace {

constexpr std::size_t kBodyBytesMax = 4 << 20;

TEST(ConnectionCreditTest, PeersAreKnownByTheNamesOfGrpc) {
  EXPECT_EQ(CanonicalPeer("ipv4:127.0.0.1:41234"), "127.0.0.1 41234");
  EXPECT_EQ(CanonicalPeer("ipv6:%5B::1%5D:41234"), "::1 41234");
  EXPECT_EQ(CanonicalPeer("ipv6:[fe80::1%252]:7"), "fe80::1 7");
  EXPECT_EQ(CanonicalPeer("ipv6:%5Bfe80::1%252%5D:7"), "fe80::1 7");
  for (const char* none : {"unix:", "unix:/run/socket", "", "ipv4:"})
    EXPECT_EQ(CanonicalPeer(none), "") << none;
}

TEST(ConnectionCreditTest, OnlyAnAcceptedCallProvesAConnection) {
  ConnectionCredit credit;
  credit.Open("a 1");
  credit.CallBegan("a 1", 1000, false);
  EXPECT_FALSE(credit.Of("a 1").proven);
  const Traffic traffic{.received = 100'000, .sent = 0, .age_s = 0};
  EXPECT_EQ(UnaccountedBytes(traffic, credit.Of("a 1")), 100'000);
  const std::uint64_t unproven_max = UnaccountedBytesMax({}, credit.Of("a 1"), kBodyBytesMax);
  EXPECT_LT(unproven_max, std::uint64_t{128 << 10});

  credit.CallBegan("a 1", 1000, true);
  EXPECT_TRUE(credit.Of("a 1").proven);
  const std::uint64_t reading_max = UnaccountedBytesMax({}, credit.Of("a 1"), kBodyBytesMax);
  EXPECT_GT(reading_max, unproven_max + 3 * kBodyBytesMax);
  credit.MessageEnded("a 1", 90'000);
  EXPECT_LT(UnaccountedBytes(traffic, credit.Of("a 1")), std::uint64_t{8000});
  EXPECT_EQ(UnaccountedBytesMax({}, credit.Of("a 1"), kBodyBytesMax),
            reading_max - kBodyBytesMax - kBodyBytesMax / 64);
}

TEST(ConnectionCreditTest, TimeAndAnswersExplainBytesOfAnyConnection) {
  EXPECT_EQ(UnaccountedBytes({.received = 10'000, .sent = 0, .age_s = 2.5}, {}), 10'000 - 2 * 1024);
  EXPECT_EQ(UnaccountedBytes({.received = 10'000, .sent = 6000, .age_s = 0}, {}), 7000);
  EXPECT_EQ(UnaccountedBytes({.received = 10'000, .sent = 60'000, .age_s = 0}, {}), 0);
}

TEST(ConnectionCreditTest, CallsThatRunHoldMemoryUntilTheyEnd) {
  ConnectionCredit credit;
  credit.Open("a 1");
  EXPECT_EQ(HeldBytes({}, credit.Of("a 1")), 0);
  for (int i = 0; i < 10; ++i) credit.CallBegan("a 1", 15'000, true);
  EXPECT_GE(HeldBytes({}, credit.Of("a 1")), std::uint64_t{10 * (15'000 + 22'000)});
  for (int i = 0; i < 10; ++i) credit.CallEnded("a 1", 15'000, true);
  EXPECT_EQ(HeldBytes({}, credit.Of("a 1")), 0);
}

TEST(ConnectionCreditTest, CallsOfAClosedConnectionAreHeldUntilTheyEnd) {
  ConnectionCredit credit;
  credit.Open("a 1");
  credit.CallBegan("a 1", 15'000, true);
  credit.CallBegan("a 1", 15'000, false);  // refused
  credit.Close("a 1");
  EXPECT_GE(credit.HeldByCalls(), std::uint64_t{2 * (15'000 + 22'000)});
  credit.CallEnded("a 1", 15'000, false);
  EXPECT_GE(credit.HeldByCalls(), std::uint64_t{15'000 + 22'000});
  credit.CallEnded("a 1", 15'000, true);
  EXPECT_EQ(credit.HeldByCalls(), 0);
}

TEST(ConnectionCreditTest, PingsWhoseAnswersNobodyReadsAreAFlood) {
  ConnectionCredit credit;
  credit.Open("a 1");
  credit.CallBegan("a 1", 100, true);
  const Traffic pings{.received = 2'000'000, .sent = 0, .unread = 30'000};
  EXPECT_FALSE(Floods(pings, credit.Of("a 1")));  // a message is arriving
  credit.MessageEnded("a 1", 100);
  const Account account = credit.Of("a 1");
  EXPECT_TRUE(Floods(pings, account));
  EXPECT_GT(UnaccountedBytes(pings, account), UnaccountedBytesMax(pings, account, kBodyBytesMax));
  const Traffic read{.received = 2'000'000, .sent = 0, .unread = 0};
  EXPECT_FALSE(Floods(read, account));
  EXPECT_LT(UnaccountedBytes(read, account), UnaccountedBytesMax(read, account, kBodyBytesMax));
}

TEST(ConnectionCreditTest, ANewConnectionOfTheSamePortBeginsAnew) {
  ConnectionCredit credit;
  credit.Open("a 1");
  credit.CallBegan("a 1", 10, true);
  credit.Open("a 1");
  EXPECT_FALSE(credit.Of("a 1").proven);
  credit.MessageEnded("a 1", 10);  // of an earlier connection
  EXPECT_EQ(credit.Of("a 1").uploads, 0);
  credit.Close("a 1");
  credit.CallBegan("a 1", 10, true);  // of a closed connection
  EXPECT_FALSE(credit.Of("a 1").proven);
}

// The two ends of a loopback connection.
struct Pair {
  Pair() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(name);
    auto* plain = reinterpret_cast<sockaddr*>(&name);
    client = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::bind(listener, plain, bytes), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, plain, &bytes), 0);
    EXPECT_EQ(::connect(client, plain, bytes), 0);
    server = ::accept(listener, nullptr, nullptr);
    ::close(listener);
  }
  ~Pair() {
    ::close(client);
    if (server >= 0) ::close(server);
  }
  int client = -1, server = -1;
};

TEST(SharedSocketTest, CountsWhatHasComeAndDropsItWhenItIsShut) {
  const Pair pair;
  const auto socket = SharedSocket::Of(pair.server);
  ASSERT_TRUE(socket.has_value());
  EXPECT_TRUE(PeerOf(pair.server).name.starts_with("127.0.0.1 "));
  ASSERT_EQ(::send(pair.client, "12345", 5, 0), 5);
  char some[8];
  ASSERT_EQ(::recv(pair.server, some, 2, 0), 2);  // loopback: all five have arrived
  ASSERT_TRUE(socket->Measure().has_value());
  EXPECT_EQ(socket->Measure()->received, 5u);
  socket->Shut();
  EXPECT_LE(::recv(pair.server, some, sizeof(some), MSG_DONTWAIT), 0);
  EXPECT_LE(::recv(pair.client, some, sizeof(some), 0), 0);
}

TEST(SharedSocketTest, LeavesTheNextOwnerOfTheDescriptorAlone) {
  Pair closed;
  const auto socket = SharedSocket::Of(closed.server);
  const Pair other;
  ASSERT_EQ(::dup2(other.server, closed.server), closed.server);  // another file has the number now
  EXPECT_FALSE(socket->IsOpen());
  EXPECT_FALSE(socket->Measure().has_value());
  socket->Shut();
  ASSERT_EQ(::send(other.client, "x", 1, 0), 1);
  char some[1];
  EXPECT_EQ(::recv(closed.server, some, 1, 0), 1);
}

}  // namespace
}  // namespace thermocline::rpc
