// Strands for connections and streams, allocated in advance: Asio crashes when it cannot allocate
// one.
#pragma once

#include <atomic>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>

namespace thermocline::server {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

// Thread-safe. Connections with the same strand take turns; handlers are short, so that they rarely
// wait.
class StrandPool {
 public:
  explicit StrandPool(boost::asio::io_context& io) {
    strands_.reserve(kStrands);
    while (strands_.size() < kStrands) strands_.push_back(boost::asio::make_strand(io));
  }
  const Strand& Next() { return strands_[next_.fetch_add(1) % kStrands]; }

 private:
  static constexpr std::size_t kStrands = 256;
  std::vector<Strand> strands_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace thermocline::server
