#include "tests/ptx/module.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <stdexcept>

namespace ptx {
namespace {

constexpr std::uint32_t kLanes = 32;

std::string_view Trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  for (;;) {
    const auto end = text.find(at);
    out.push_back(Trim(text.substr(0, end)));
    if (end == text.npos) return out;
    text.remove_prefix(end + 1);
  }
}

std::uint32_t RoundUp(std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; }

// Parses one kernel's body.
class Reader {
 public:
  explicit Reader(Kernel& kernel) : kernel_(kernel) {}

  void Param(std::string_view line) {
    const auto [name, bytes, align] = Variable(line.substr(6));
    kernel_.param_bytes = RoundUp(kernel_.param_bytes, align);
    kernel_.param_at.push_back(kernel_.param_bytes);
    kernel_.params.push_back(bytes);
    params_[std::string(name)] = kernel_.param_bytes;
    kernel_.param_bytes += bytes;
  }
  void Statement(std::string_view line, std::uint32_t number) {
    number_ = number;
    // Inline assembly may put a scope on one line: { statement; statement; }
    if (line.size() > 1 && line[0] == '{') line = Trim(line.substr(1));
    if (const auto end = line.find(';'); end != line.npos && end + 1 < line.size()) {
      Statement(Trim(line.substr(0, end + 1)), number);
      return Statement(Trim(line.substr(end + 1)), number);
    }
    if (line.starts_with(".reg")) return Registers(line.substr(4));
    if (line.starts_with(".shared")) return Shared(line.substr(7));
    if (line.starts_with(".local")) return Local(line.substr(6));
    if (line.starts_with(".") || line == "{" || line == "}") return;
    if (line.ends_with(":")) {
      labels_[std::string(line.substr(0, line.size() - 1))] = static_cast<int>(kernel_.code.size());
      return;
    }
    Code(line);
  }
  void End() {
    for (const auto& [index, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw std::runtime_error("no label " + std::string(label));
      kernel_.code[static_cast<std::size_t>(index)].target = found->second;
    }
  }
  void DynamicShared(std::string_view text) { dynamic_ = Variable(text).name; }
  void Shared(std::string_view text) {
    const auto [name, bytes, align] = Variable(text);
    kernel_.shared_bytes = RoundUp(kernel_.shared_bytes, align);
    shared_[std::string(name)] = kernel_.shared_bytes;
    kernel_.shared_bytes += bytes;
  }

 private:
  struct Declared {
    std::string_view name;
    std::uint32_t bytes, align;
  };
  // Parses ".align 8 .b8 name[40]" or ".u64 name".
  static Declared Variable(std::string_view text) {
    text = Trim(text);
    while (text.ends_with(',') || text.ends_with(';') || text.ends_with(')')) text.remove_suffix(1);
    Declared out{{}, 0, 0};
    std::uint32_t size = 0, count = 1;
    for (auto parts = Split(text, ' '); const std::string_view part : parts) {
      if (part.empty() || part == ".align") continue;
      if (part[0] == '.')
        size = Number(part.substr(part.find_first_of("0123456789"))) / 8;
      else if (part[0] >= '0' && part[0] <= '9')
        out.align = Number(part);
      else
        out.name = part;
    }
    if (const auto open = out.name.find('['); open != out.name.npos) {
      count = out.name[open + 1] == ']' ? 0 : Number(out.name.substr(open + 1));
      out.name = out.name.substr(0, open);
    }
    out.bytes = size * count;
    out.align = std::max(out.align, size);
    return out;
  }
  static std::uint32_t Number(std::string_view text) {
    std::uint32_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  Place NewPlace(bool wide) {
    const Place place{kernel_.register_bytes, wide};
    kernel_.register_bytes += kLanes * (wide ? 8 : 4);
    return place;
  }
  void Registers(std::string_view text) {  // ".b32 %r<50>;"
    text = Trim(text);
    const bool wide = text.substr(0, text.find(' ')).ends_with("64");
    for (std::string_view name : Split(text.substr(text.find(' ')), ',')) {
      if (name.ends_with(';')) name.remove_suffix(1);
      const auto open = name.find('<');
      if (open == name.npos) {
        registers_[std::string(name)] = NewPlace(wide);
        continue;
      }
      const std::uint32_t count = Number(name.substr(open + 1));
      for (std::uint32_t i = 0; i < count; ++i)
        registers_[std::string(name.substr(0, open)) + std::to_string(i)] = NewPlace(wide);
    }
  }
  void Local(std::string_view text) {
    const auto [name, bytes, align] = Variable(text);
    kernel_.local_bytes = RoundUp(kernel_.local_bytes, align);
    locals_[std::string(name)] = kernel_.local_bytes;
    kernel_.local_bytes += bytes;
  }

  Place Constant(std::uint64_t value, Special special, bool wide) {
    const auto key = std::make_tuple(value, special, wide);
    const auto found = constants_.find(key);
    if (found != constants_.end()) return found->second;
    const Place place = constants_[key] = NewPlace(wide);
    kernel_.presets.push_back({place, value, special});
    return place;
  }
  static std::optional<Special> SpecialOf(std::string_view name) {
    static const std::map<std::string_view, Special> kNames = {
        {"%tid.x", Special::kTidX},       {"%tid.y", Special::kTidY},
        {"%tid.z", Special::kTidZ},       {"%ntid.x", Special::kNtidX},
        {"%ntid.y", Special::kNtidY},     {"%ntid.z", Special::kNtidZ},
        {"%ctaid.x", Special::kCtaidX},   {"%ctaid.y", Special::kCtaidY},
        {"%ctaid.z", Special::kCtaidZ},   {"%nctaid.x", Special::kNctaidX},
        {"%nctaid.y", Special::kNctaidY}, {"%nctaid.z", Special::kNctaidZ},
        {"%laneid", Special::kLane},      {"%warpid", Special::kWarp}};
    const auto found = kNames.find(name);
    return found == kNames.end() ? std::nullopt : std::optional(found->second);
  }
  [[noreturn]] void Unknown(std::string_view what) const {
    throw std::runtime_error("line " + std::to_string(number_) + ": " + std::string(what));
  }
  std::uint64_t Immediate(std::string_view text) const {
    std::uint64_t value = 0;
    int base = 10;
    const bool minus = text.starts_with('-');
    if (minus) text.remove_prefix(1);
    if (text.starts_with("0f") || text.starts_with("0d") || text.starts_with("0x"))
      base = 16, text.remove_prefix(2);
    if (text.ends_with('U')) text.remove_suffix(1);
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size()) Unknown(text);
    return minus ? ~value + 1 : value;
  }
  Place Operand(std::string_view text, bool wide) {
    if (const auto found = registers_.find(text); found != registers_.end()) return found->second;
    if (const auto special = SpecialOf(text)) return Constant(0, *special, false);
    if (text == dynamic_) return Constant(0, Special::kDynamicShared, wide);
    if (const auto found = shared_.find(text); found != shared_.end())
      return Constant(found->second, Special::kNone, wide);
    if (const auto found = locals_.find(text); found != locals_.end())
      return Constant(found->second, Special::kNone, wide);
    if (const auto found = params_.find(text); found != params_.end())
      return Constant(found->second, Special::kNone, wide);
    return Constant(Immediate(text), Special::kNone, wide);
  }
  // Parses "[name+8]"; name is a register or a variable.
  Address At(std::string_view text) {
    text = Trim(text.substr(1, text.size() - 2));
    const auto plus = text.find('+');
    Address out;
    if (plus != text.npos)
      out.offset = static_cast<std::int64_t>(Immediate(Trim(text.substr(plus + 1))));
    out.base = Operand(Trim(text.substr(0, plus)), true);
    return out;
  }
  // Splits operands at commas that are not in braces.
  static std::vector<std::string_view> Operands(std::string_view text) {
    std::vector<std::string_view> out;
    std::size_t begin = 0;
    int depth = 0;
    for (std::size_t i = 0; i <= text.size(); ++i) {
      if (i < text.size() && text[i] == '{') ++depth;
      if (i < text.size() && text[i] == '}') --depth;
      if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
      if (const auto operand = Trim(text.substr(begin, i - begin)); !operand.empty())
        out.push_back(operand);
      begin = i + 1;
    }
    return out;
  }

  void Code(std::string_view line) {
    Instruction out;
    out.line = number_;
    out.text = line;
    if (line.ends_with(';')) line.remove_suffix(1);
    if (line.starts_with('@')) {
      const auto end = line.find(' ');
      std::string_view guard = line.substr(1, end - 1);
      out.guard_not = guard.starts_with('!');
      if (out.guard_not) guard.remove_prefix(1);
      out.guard = Operand(guard, false);
      out.guarded = true;
      line = Trim(line.substr(end));
    }
    const auto end = std::min(line.find_first_of(" \t"), line.size());
    const Opcode opcode{Split(line.substr(0, end), '.')};
    const auto operands = Operands(line.substr(end));
    if (opcode.parts[0] == "bra") {
      branches_.emplace_back(static_cast<int>(kernel_.code.size()), operands.at(0));
    } else {
      Fill(opcode, operands, out);
    }
    try {
      Decode(opcode, out);
    } catch (const std::runtime_error& error) {
      Unknown(error.what() + (": " + std::string(line)));
    }
    kernel_.code.push_back(std::move(out));
  }
  void Fill(const Opcode& opcode, const std::vector<std::string_view>& operands, Instruction& out) {
    static constexpr std::string_view kWithoutResult[] = {
        "st", "red", "bar", "barrier", "membar", "fence", "ret", "exit", "trap", "cp"};
    const bool result = std::find(std::begin(kWithoutResult), std::end(kWithoutResult),
                                  opcode.parts[0]) == std::end(kWithoutResult);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const std::string_view text = operands[i];
      const bool is_result = result && i == 0;
      if (text.starts_with('[')) {
        (i == 1 && opcode.parts[0] == "cp" ? out.source : out.address) = At(text);
        continue;
      }
      std::vector<std::string_view> parts = {text};
      if (text.starts_with('{')) parts = Split(text.substr(1, text.size() - 2), ',');
      if (text.find('|') != text.npos) parts = Split(text, '|');
      for (const std::string_view part : parts)
        (is_result ? out.to : out.from)
            .push_back(Operand(part, IsWide(opcode, static_cast<int>(i))));
    }
  }

  std::map<std::string, std::uint32_t, std::less<>> shared_, locals_, params_;
  std::map<std::string, Place, std::less<>> registers_;
  std::map<std::tuple<std::uint64_t, Special, bool>, Place> constants_;
  std::map<std::string, int, std::less<>> labels_;
  std::string dynamic_;
  std::vector<std::pair<int, std::string_view>> branches_;
  Kernel& kernel_;
  std::uint32_t number_ = 0;
};

}  // namespace

bool Opcode::Has(std::string_view part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

Module::Module(const std::string& name, std::string text) : text_(std::move(text)) {
  std::vector<std::string_view> file_shared;
  std::optional<Reader> reader;
  bool params = false;
  int depth = 0;
  std::uint32_t number = 0;
  for (std::string_view line : Split(text_, '\n')) {
    ++number;
    line = Trim(line.substr(0, line.find("//")));
    if (line.empty()) continue;
    try {
      const auto entry = line.find(".entry");
      if (entry != line.npos) {
        kernels_.emplace_back();
        const std::string_view entry_name = Trim(line.substr(entry + 6));
        kernels_.back().name = entry_name.substr(0, entry_name.find('('));
        reader.emplace(kernels_.back());
        params = entry_name.ends_with('(');
      } else if (!reader.has_value()) {
        if (line.find(".shared") != line.npos) file_shared.push_back(line);
      } else if (params) {
        if (line.starts_with(".param")) reader->Param(line);
        params = line != ")";
      } else if (line == "{") {
        if (depth++ > 0) continue;
        for (const std::string_view variable : file_shared) {
          const std::string_view declared = variable.substr(variable.find(".shared") + 7);
          if (variable.starts_with(".extern"))
            reader->DynamicShared(declared);
          else
            reader->Shared(declared);
        }
      } else if (line == "}") {
        if (--depth > 0) continue;
        reader->End();
        reader.reset();
      } else {
        reader->Statement(line, number);
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(name + ": " + error.what());
    }
  }
}

}  // namespace ptx
