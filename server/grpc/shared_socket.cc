#include "server/grpc/shared_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "engine/base/strings.h"
#include "server/net/address.h"

namespace thermocline::rpc {
namespace {

// The start of Linux's struct tcp_info; the C library's version is shorter.
struct TcpCounters {
  std::uint8_t unused[120];
  std::uint64_t acked, received;
};

}  // namespace

class SharedSocket::Duplicate {
 public:
  explicit Duplicate(const SharedSocket& socket) : fd_(::fcntl(socket.fd_, F_DUPFD_CLOEXEC, 0)) {
    struct stat now {};
    same_ = fd_ >= 0 && ::fstat(fd_, &now) == 0 && now.st_dev == socket.device_ &&
            now.st_ino == socket.inode_;
  }
  ~Duplicate() {
    if (fd_ >= 0) ::close(fd_);
  }
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;

  int fd() const { return fd_; }
  bool same() const { return same_; }

 private:
  const int fd_;
  bool same_ = false;
};

std::optional<SharedSocket> SharedSocket::Of(int fd) {
  struct stat now {};
  if (::fstat(fd, &now) != 0) return std::nullopt;
  SharedSocket socket;
  socket.fd_ = fd;
  socket.device_ = now.st_dev;
  socket.inode_ = now.st_ino;
  return socket;
}

bool SharedSocket::IsOpen() const {
  struct stat now {};
  return ::fstat(fd_, &now) == 0 && now.st_ino == inode_ && now.st_dev == device_;
}

std::optional<Traffic> SharedSocket::Measure() const {
  const Duplicate duplicate(*this);
  TcpCounters counters{};
  socklen_t bytes = sizeof(counters);
  if (!duplicate.same() ||
      ::getsockopt(duplicate.fd(), IPPROTO_TCP, TCP_INFO, &counters, &bytes) != 0 ||
      bytes < sizeof(counters))
    return std::nullopt;
  int unread = 0;
  if (::ioctl(duplicate.fd(), TIOCOUTQ, &unread) != 0) unread = 0;
  return Traffic{.received = counters.received,
                 .sent = counters.acked,
                 .unread = static_cast<std::uint64_t>(unread)};
}

void SharedSocket::LimitUnread(int bytes) const {
  const Duplicate duplicate(*this);
  if (duplicate.same()) ::setsockopt(duplicate.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

void SharedSocket::Shut() const {
  const Duplicate duplicate(*this);
  if (!duplicate.same()) return;
  // Connecting a TCP socket to AF_UNSPEC resets it and drops its queues.
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  // Fails if the connection has ended already.
  (void)::connect(duplicate.fd(), &none, sizeof(none));
  ::shutdown(duplicate.fd(), SHUT_RDWR);
}

Peer PeerOf(int socket) {
  const net::SocketAddress address = net::PeerAddress(socket);
  if (!address.on_network()) return {};
  return {.address = address.host, .name = StrCat(address.host, " ", address.port)};
}

}  // namespace thermocline::rpc
