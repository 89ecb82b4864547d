// CRC32C: the published values, and the instruction against the table at every length and address.
#include "kernels/crc32c.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string_view>
#include <vector>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

std::vector<std::uint8_t> RandomBytes(std::size_t bytes) {
  std::vector<std::uint8_t> out(bytes);
  std::uint32_t state = 1;
  for (auto& byte : out) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return out;
}

// Source: RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, PublishedValues) {
  constexpr std::string_view kDigits = "123456789";
  const std::vector<std::uint8_t> zeros(32), ones(32, 0xFF);
  std::vector<std::uint8_t> rising(32);
  for (std::size_t i = 0; i < 32; ++i) rising[i] = static_cast<std::uint8_t>(i);
  for (const auto& crc : {Crc32cFunction(reference::Crc32c), Crc32cFunction(Crc32c)}) {
    EXPECT_EQ(crc(kDigits.data(), kDigits.size(), 0), 0xE3069283);
    EXPECT_EQ(crc(zeros.data(), 32, 0), 0x8A9136AA);
    EXPECT_EQ(crc(ones.data(), 32, 0), 0x62A8AB43);
    EXPECT_EQ(crc(rising.data(), 32, 0), 0x46DD794E);
    EXPECT_EQ(crc(nullptr, 0, 0), 0U);
  }
}

TEST(Crc32c, InstructionGivesTheReferencesValues) {
  const Crc32cFunction hardware = HardwareCrc32c();
  if (hardware == nullptr) GTEST_SKIP() << "this processor has no CRC32C instruction";
  const std::vector<std::uint8_t> data = RandomBytes(5000);
  for (std::size_t bytes = 0; bytes < 1700; ++bytes) {
    const std::size_t at = bytes % 9;
    ASSERT_EQ(hardware(data.data() + at, bytes, 0), reference::Crc32c(data.data() + at, bytes))
        << bytes;
  }
  EXPECT_EQ(hardware(data.data(), data.size(), 77), reference::Crc32c(data.data(), 5000, 77));
}

TEST(Crc32c, PiecesGiveTheValueOfTheWhole) {
  const std::vector<std::uint8_t> data = RandomBytes(4000);
  for (std::size_t cut = 0; cut <= data.size(); cut += 123)
    EXPECT_EQ(Crc32c(data.data() + cut, data.size() - cut, Crc32c(data.data(), cut)),
              Crc32c(data.data(), data.size()));
}

// Printed, not asserted.
TEST(Crc32c, Speed) {
  for (const std::size_t bytes : {std::size_t{2304}, std::size_t{1} << 20}) {
    const std::vector<std::uint8_t> data = RandomBytes(bytes);
    std::uint32_t crc = 0;
    const auto begin = std::chrono::steady_clock::now();
    const std::size_t times = (std::size_t{1} << 28) / bytes;
    for (std::size_t i = 0; i < times; ++i) crc = Crc32c(data.data(), bytes, crc);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("CRC32C of %zu bytes: %.1f GB/s (%08x)\n", bytes,
                static_cast<double>(times * bytes) / took.count() / 1e9, crc);
  }
}

}  // namespace
}  // namespace thermocline::kernels
