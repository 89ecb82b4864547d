#include "server/http/response_writer.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
using Unix = asio::local::stream_protocol;

const Peer kPeer = {.address = "", .local_address = "", .on_network = false};

// The bytes that a client reads of a stream whose last events are `last`.
std::string Streamed(const std::string& last, unsigned version) {
  ResponseHead head;
  head.version = version;
  asio::io_context io;
  Unix::socket ours(io), client(io);
  asio::local::connect_pair(ours, client);
  {
    const auto connection = std::make_shared<Connection>(
        StreamSocket(io, StreamSocket::protocol_type(Unix()), ours.release()), nullptr, kPeer);
    StreamWriter writer(*connection, head, "text/event-stream",
                        {.stuck = std::chrono::seconds(10)});
    bool written = false;
    writer.Write("data: owl\n\n", false, [&](boost::system::error_code) { written = true; });
    writer.Write(last, true, [](boost::system::error_code) {});
    while (!written) io.run_one();
    EXPECT_TRUE(writer.ended());
    connection->Close();
  }
  std::string all;
  boost::system::error_code end;
  asio::read(client, asio::dynamic_buffer(all), end);
  return all.substr(all.find("\r\n\r\n") + 4);
}

TEST(StreamWriterTest, AnEndWithoutEventsIsOneEnd) {
  EXPECT_EQ(Streamed("", 11), "b\r\ndata: owl\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(Streamed("x\n\n", 11), "b\r\ndata: owl\n\n\r\n3\r\nx\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(Streamed("", 10), "data: owl\n\n");
}

}  // namespace
}  // namespace thermocline::http
