// Fuzzes the bytes of a connection with the real connection and session of a server without a
// model: framing, headers, routes, access checks, errors. A line "\n--8<--\n" ends the bytes sent
// before the first answer is read.
#include <poll.h>
#include <sys/socket.h>

#include <csignal>

#include <boost/asio/io_context.hpp>

#include "server/core/reloadable_config.h"
#include "server/http/session.h"
#include "server/routes/routes.h"
#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

namespace {

server::Service& TheService() {
  static auto& service = *new server::Service([] {
    server::ServerConfig config;
    config.model_name = "none";
    config.log_access = false;
    return *server::MakeReloadableConfig(config);
  }());
  return service;
}

// Reads everything that the server has sent, so that it never waits for its reader.
void Drain(int client) {
  char bytes[4096];
  while (recv(client, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::signal(SIGPIPE, SIG_IGN);  // as in the daemon
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return 0;
  // Outlives the call, since a late worker posts to it.
  static boost::asio::io_context& io = *new boost::asio::io_context;
  io.restart();
  http::StreamSocket socket(io, {AF_UNIX, 0}, ends[0]);
  auto ended = std::make_shared<bool>(false);
  {
    const auto connection = std::make_shared<http::Connection>(
        std::move(socket), nullptr,
        http::Peer{.address = "127.0.0.1", .local_address = "127.0.0.1"});
    const std::shared_ptr<net::ConnectionPlace> place(
        new net::ConnectionPlace(std::make_shared<net::ConnectionCount>(), ""),
        [ended](net::ConnectionPlace* old) {
          delete old;
          *ended = true;
        });
    std::make_shared<http::Session>(connection, TheService(), routes::AllRoutes(), place)->Start();
  }
  for (const std::string_view part : fuzz::PartsOf(fuzz::TextOf(data, size), 3)) {
    (void)!write(ends[1], part.data(), part.size());
    io.poll();
    Drain(ends[1]);
  }
  shutdown(ends[1], SHUT_WR);
  // Workers answer a little later.
  for (int i = 0; i < 50 && !*ended; ++i) {
    io.restart();
    io.run_for(std::chrono::milliseconds(1));
    Drain(ends[1]);
  }
  close(ends[1]);
  io.restart();
  io.run_for(std::chrono::milliseconds(5));
  return 0;
}
