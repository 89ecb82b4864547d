#include "tools/eval/npy.h"

#include "engine/base/output_file.h"

namespace thermocline::tools {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

}  // namespace

// The format is magic "\x93NUMPY" 1 0, header length u16, header padded with spaces to a multiple
// of 64, newline.
Result<std::unique_ptr<NpyWriter>> NpyWriter::Create(const std::string& path, std::int64_t rows,
                                                     std::int64_t cols) {
  auto writer = std::make_unique<NpyWriter>();
  RETURN_IF_ERROR(base::CheckReplaceable(path, base::KindByMagic("a .npy matrix", kMagic)));
  ASSIGN_OR_RETURN(writer->file_, base::FileWriter::Create(path));
  std::string header =
      StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ", cols, "), }");
  header.append(64 - (10 + header.size() + 1) % 64, ' ');
  header.push_back('\n');
  std::string head(kMagic);
  head.append("\x01\x00", 2);
  head.push_back(static_cast<char>(header.size() & 255));
  head.push_back(static_cast<char>(header.size() >> 8));
  RETURN_IF_ERROR(writer->file_->Append(head + header));
  return writer;
}

}  // namespace thermocline::tools
