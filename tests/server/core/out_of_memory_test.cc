// An allocation failure ends a request or its connection, but neither the listener nor the
// accounting.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <optional>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "engine/base/json.h"
#include "engine/base/log.h"
#include "server/http/listener.h"
#include "server/routes/routes.h"

namespace {
// Allocations of this thread until one fails; below 0 none does.
thread_local int allocations_left = -1;
}  // namespace

// Not inline, since compilers would see malloc and delete, or new and free, as a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  const bool fails = allocations_left >= 0 && allocations_left-- == 0;
  void* memory = fails ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace thermocline::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Runs ready handlers; returns true if one threw for lack of memory after `count` allocations.
bool RunsShort(asio::io_context& io, int count) {
  allocations_left = count;
  bool threw = false;
  try {
    io.poll();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  allocations_left = -1;
  return threw;
}

constexpr std::string_view kRequest =
    "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

// A listener with one thread, this one.
class OutOfMemoryTest : public testing::Test {
 protected:
  OutOfMemoryTest() {
    server::ServerConfig config;
    config.connections_max = 1;  // a place that is not returned shows
    service_.emplace(*server::MakeReloadableConfig(config));
    tcp::acceptor door(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    address_ = door.local_endpoint();
    listener_ = *http::Listener::Create(io_, *service_, routes::AllRoutes(),
                                        {{.fd = door.release(), .name = "http"}});
    base::ConfigureLog(base::LogLevel::kOff, false);
    listener_->Start();
    io_.poll();
  }

  tcp::socket Client(std::string_view says) {
    tcp::socket client(io_);
    client.connect(address_);
    asio::write(client, asio::buffer(says));
    return client;
  }
  // The first line of the answer to a new client; "" after ten seconds without one.
  std::string Ask() {
    tcp::socket client = Client(kRequest);
    client.non_blocking(true);
    std::string answer(4096, '\0');
    std::size_t bytes = 0;
    for (int i = 0; i < 1000 && bytes == 0; ++i) {
      io_.run_for(std::chrono::milliseconds(10));
      error_code none;
      bytes = client.read_some(asio::buffer(answer), none);
    }
    io_.poll();
    return answer.substr(0, std::min(bytes, answer.find('\r')));
  }

  std::optional<server::Service> service_;
  asio::io_context io_{1};
  std::shared_ptr<http::Listener> listener_;
  tcp::endpoint address_;
};

TEST_F(OutOfMemoryTest, WhatAnAcceptedConnectionThrowsClosesNoDoor) {
  int thrown = 0;
  for (int count = 0; count < 40; ++count) {
    {
      const tcp::socket client = Client("");
      thrown += RunsShort(io_, count);
    }
    io_.poll();  // the client has disconnected
    ASSERT_EQ(Ask(), "HTTP/1.1 200 OK") << "after " << count << " allocations";
  }
  EXPECT_GT(thrown, 3);
}

// libstdc++ 12 destroyed a value that was never constructed.
TEST(OutOfMemoryJsonTest, ACopyThatIsNotMadeIsNotDestroyed) {
  const base::Json value{base::Json::Array{
      base::Json::Object{{"role", "a text that does not fit into the string"}, {"content", 1}},
      "another text that does not fit into the string", "and a third one of its length"}};
  int thrown = 0;
  for (int count = 0; count == thrown; ++count) {
    allocations_left = count;
    try {
      const base::Json copy(value);
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
    allocations_left = -1;
  }
  EXPECT_GT(thrown, 4);
}

}  // namespace
}  // namespace thermocline::server
