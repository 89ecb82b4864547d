#include "engine/text/jinja_lexer.h"

#include <algorithm>
#include <array>

namespace thermocline::text::jinja {
namespace {

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> Run() {
    while (pos_ < source_.size()) {
      const std::size_t open = FindOpening();
      RETURN_IF_ERROR(TextUpTo(open));
      if (open == std::string::npos) break;
      RETURN_IF_ERROR(Tag());
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::size_t FindOpening() const {
    for (std::size_t at = source_.find('{', pos_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() &&
          (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
        return at;
    }
    return std::string::npos;
  }

  // Emits the text before a tag; the tag's sign and lstrip_blocks may remove white space at its
  // end.
  Status TextUpTo(std::size_t open) {
    const std::size_t end = std::min(open, source_.size());
    std::string text = source_.substr(pos_, end - pos_);
    const int newlines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    if (trim_next_)
      text.erase(0, std::find_if_not(text.begin(), text.end(), IsSpace) - text.begin());
    trim_next_ = false;
    if (open != std::string::npos) {
      const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
      if (sign == '-') {
        while (!text.empty() && IsSpace(text.back())) text.pop_back();
      } else if (sign != '+' && source_[open + 1] != '{') {
        const std::size_t line = text.find_last_not_of(" \t");
        const bool line_start = line == std::string::npos ? (pos_ == 0 || source_[pos_ - 1] == '\n')
                                                          : text[line] == '\n';
        if (line_start) text.erase(line == std::string::npos ? 0 : line + 1);
      }
    }
    if (!text.empty()) Add(Token::Kind::kText, text);
    line_ += newlines;
    pos_ = end;
    return OkStatus();
  }

  Status Tag() {
    const char kind = source_[pos_ + 1];
    pos_ += 2;
    if (pos_ < source_.size() && (source_[pos_] == '-' || source_[pos_] == '+')) ++pos_;
    if (kind == '#') return Comment();
    Add(kind == '{' ? Token::Kind::kOutputBegin : Token::Kind::kBlockBegin, "");
    if (kind == '%' && IsRaw()) return Raw();
    RETURN_IF_ERROR(Inside(kind));
    return OkStatus();
  }

  Status Comment() {
    const std::size_t end = source_.find("#}", pos_);
    if (end == std::string::npos)
      return base::InvalidArgument("line ", line_, ": the comment does not end");
    line_ += static_cast<int>(std::count(source_.begin() + pos_, source_.begin() + end, '\n'));
    const bool trim = source_[end - 1] == '-';
    pos_ = end + 2;
    AfterBlock(trim, end > 0 && source_[end - 1] == '+');
    return OkStatus();
  }

  bool IsRaw() const {
    std::size_t at = pos_;
    while (at < source_.size() && IsSpace(source_[at])) ++at;
    return source_.compare(at, 3, "raw") == 0 && at + 3 < source_.size() &&
           !IsNameStart(source_[at + 3]);
  }

  Status Raw() {
    tokens_.pop_back();
    const std::size_t begin = source_.find("%}", pos_);
    const std::size_t word = begin == std::string::npos ? begin : source_.find("endraw", begin);
    const std::size_t close = word == std::string::npos ? word : source_.rfind("{%", word);
    const std::size_t end = word == std::string::npos ? word : source_.find("%}", word);
    if (end == std::string::npos || close < begin)
      return base::InvalidArgument("line ", line_, ": raw without endraw");
    Add(Token::Kind::kText, source_.substr(begin + 2, close - begin - 2));
    pos_ = end + 2;
    AfterBlock(source_[end - 1] == '-', false);
    return OkStatus();
  }

  // After "%}" or "#}": '-' trims all following white space, otherwise trim_blocks removes one
  // newline.
  void AfterBlock(bool trim, bool keep) {
    trim_next_ = trim;
    if (!trim && !keep && pos_ < source_.size() && source_[pos_] == '\n') {
      ++pos_;
      ++line_;
    }
  }

  Status Inside(char kind) {
    const std::string close = kind == '{' ? "}}" : "%}";
    int brackets = 0;
    while (true) {
      while (pos_ < source_.size() && IsSpace(source_[pos_])) line_ += source_[pos_++] == '\n';
      if (pos_ >= source_.size())
        return base::InvalidArgument("line ", line_, ": '", close, "' is missing");
      const char sign = source_[pos_];
      const bool signed_close =
          (sign == '-' || sign == '+') && source_.compare(pos_ + 1, 2, close) == 0;
      if (signed_close || (brackets == 0 && source_.compare(pos_, 2, close) == 0)) {
        pos_ += signed_close ? 3 : 2;
        Add(kind == '{' ? Token::Kind::kOutputEnd : Token::Kind::kBlockEnd, "");
        if (kind == '{') {
          trim_next_ = signed_close && sign == '-';
        } else {
          AfterBlock(signed_close && sign == '-', signed_close && sign == '+');
        }
        return OkStatus();
      }
      RETURN_IF_ERROR(OneToken());
      const std::string& last = tokens_.back().text;
      if (tokens_.back().kind == Token::Kind::kOperator) {
        if (last == "(" || last == "[" || last == "{") ++brackets;
        if (last == ")" || last == "]" || last == "}") --brackets;
      }
    }
  }

  Status OneToken() {
    const char c = source_[pos_];
    if (c == '"' || c == '\'') return String(c);
    std::size_t end = pos_;
    if (IsNameStart(c)) {
      while (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end]))) ++end;
      Add(Token::Kind::kName, source_.substr(pos_, end - pos_));
    } else if (IsDigit(c)) {
      while (end < source_.size() && IsDigit(source_[end])) ++end;
      const bool fraction =
          end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1]);
      if (fraction) {
        ++end;
        while (end < source_.size() && IsDigit(source_[end])) ++end;
      }
      const bool exponent = end < source_.size() && (source_[end] == 'e' || source_[end] == 'E') &&
                            EndOfExponent(end) > end;
      if (exponent) end = EndOfExponent(end);
      Add(fraction || exponent ? Token::Kind::kFloat : Token::Kind::kInteger,
          source_.substr(pos_, end - pos_));
    } else {
      static constexpr std::array kOperators = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                                "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                "]",  "{",  "}",  ",",  ".",  ":",  "|"};
      const auto found = std::find_if(kOperators.begin(), kOperators.end(), [&](const char* op) {
        return source_.compare(pos_, std::string_view(op).size(), op) == 0;
      });
      if (found == kOperators.end())
        return base::InvalidArgument("line ", line_, ": unexpected character '", std::string(1, c),
                                     "'");
      end = pos_ + std::string_view(*found).size();
      Add(Token::Kind::kOperator, *found);
    }
    pos_ = end;
    return OkStatus();
  }

  // Returns the end of "e5" or "e-5", or `at` if there is no exponent.
  std::size_t EndOfExponent(std::size_t at) const {
    std::size_t end = at + 1;
    if (end < source_.size() && (source_[end] == '-' || source_[end] == '+')) ++end;
    const std::size_t digits = end;
    while (end < source_.size() && IsDigit(source_[end])) ++end;
    return end > digits ? end : at;
  }

  Status String(char quote) {
    std::string value;
    for (++pos_; pos_ < source_.size() && source_[pos_] != quote; ++pos_) {
      char c = source_[pos_];
      if (c == '\n') ++line_;
      if (c == '\\' && pos_ + 1 < source_.size()) {
        c = source_[++pos_];
        if (c == 'u' || c == 'x') {
          const std::size_t digits = c == 'u' ? 4 : 2;
          unsigned code = 0;
          const char* begin = source_.data() + pos_ + 1;
          if (pos_ + digits >= source_.size() ||
              std::from_chars(begin, begin + digits, code, 16).ptr != begin + digits) {
            return base::InvalidArgument("line ", line_, ": a broken escape in a string");
          }
          base::AppendUtf8(value, code);
          pos_ += digits;
          continue;
        }
        constexpr std::string_view kNames = "ntrbfv0", kValues("\n\t\r\b\f\v\0", 7);
        const std::size_t known = kNames.find(c);
        if (known != std::string_view::npos) {
          value.push_back(kValues[known]);
          continue;
        }
        if (c == '\n') continue;
        if (c != '\\' && c != '\'' && c != '"') value.push_back('\\');
      }
      value.push_back(c);
    }
    if (pos_ >= source_.size())
      return base::InvalidArgument("line ", line_, ": the string does not end");
    ++pos_;
    Add(Token::Kind::kString, value);
    return OkStatus();
  }

  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  std::string source_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool trim_next_ = false;  // the last tag ended with '-'
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace thermocline::text::jinja
