// Properties of the PTX, and of ptxas' report on it, that need no run.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

// Spills of a few registers are ptxas' price for more warps; an array in local memory is a bug.
constexpr int kFrameBytesMax = 16, kSpillBytesMax = 32;

std::vector<std::filesystem::path> Files(const std::string& architecture) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(THERMOCLINE_PTX "/" + architecture)) {
    if (entry.path().extension() == ".ptx") out.push_back(entry.path());
  }
  return out;
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Registers that hold a literal of the program: "mov.u64 %rd1, 80;".
std::set<std::string> Literals(const std::string& kernel) {
  static const std::regex kMove("mov\\.[ub]64\\s+(%rd[0-9]+), [0-9]+;");
  std::set<std::string> out;
  for (std::sregex_iterator i(kernel.begin(), kernel.end(), kMove), end; i != end; ++i)
    out.insert((*i)[1]);
  return out;
}

std::vector<std::string> LoadsFromLiterals(const std::string& text) {
  static const std::regex kAccess("(ld|st|atom|red)(\\.[a-z0-9:]+)*\\s[^;]*\\[(%rd[0-9]+)[^;]*;");
  std::vector<std::string> out;
  for (std::size_t at = text.find(".entry"); at != std::string::npos;) {
    const std::size_t next = text.find(".entry", at + 1);
    const std::string kernel = text.substr(at, next - at);
    const std::set<std::string> literals = Literals(kernel);
    for (std::sregex_iterator i(kernel.begin(), kernel.end(), kAccess), end; i != end; ++i)
      if (literals.contains((*i)[3])) out.push_back(i->str());
    at = next;
  }
  return out;
}

std::string Output(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string out;
  char text[4096];
  while (std::fgets(text, sizeof(text), pipe.get()) != nullptr) out += text;
  return out;
}

class PtxText : public testing::TestWithParam<const char*> {};

TEST_P(PtxText, LoadsNothingFromALiteralAddress) {
  ASSERT_FALSE(Files(GetParam()).empty());
  for (const auto& file : Files(GetParam())) {
    for (const std::string& access : LoadsFromLiterals(Read(file)))
      ADD_FAILURE() << file.stem() << ": " << access;
  }
}

TEST_P(PtxText, HasNoDoublePrecision) {
  ASSERT_FALSE(Files(GetParam()).empty());
  for (const auto& file : Files(GetParam())) {
    const std::string text = Read(file);
    const std::size_t at = text.find(".f64");
    EXPECT_EQ(at, std::string::npos) << file.stem() << ": " << text.substr(at, 40);
  }
}

TEST_P(PtxText, KeepsItsVariablesInRegisters) {
  static const std::regex kNumbers(
      "for '(\\S+)'[\\s\\S]*?([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) "
      "bytes");
  int kernels = 0;
  for (const auto& file : Files(GetParam())) {
    const std::string said = Output(std::string(THERMOCLINE_PTXAS) + " -v -arch=" + GetParam() +
                                    " -o /dev/null " + file.string() + " 2>&1");
    EXPECT_EQ(said.find("error"), std::string::npos) << said;
    for (std::sregex_iterator i(said.begin(), said.end(), kNumbers), end; i != end; ++i) {
      ++kernels;
      EXPECT_LE(std::stoi((*i)[2]), kFrameBytesMax) << file.stem() << "\n" << i->str();
      EXPECT_LE(std::stoi((*i)[3]), kSpillBytesMax) << file.stem() << "\n" << i->str();
    }
  }
  EXPECT_GT(kernels, 50);
}

TEST(PtxTextReader, ALoadFromALiteralAddressIsSeen) {
  const std::string text =
      ".entry Kernel()\n{\nmov.u64 \t%rd138, 80;\nld.u32 \t%r701, [%rd138];\n"
      "ld.global.u32 \t%r1, [%rd2];\n}\n";
  EXPECT_EQ(LoadsFromLiterals(text), std::vector<std::string>{"ld.u32 \t%r701, [%rd138];"});
}

INSTANTIATE_TEST_SUITE_P(Architectures, PtxText, testing::Values("sm_80", "sm_90"));

}  // namespace
