// `thermocline tokenize` and `thermocline template`.
#include <cstdio>

#include "engine/base/file.h"
#include "engine/model/model_file.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"

namespace thermocline::tools {
namespace {

struct TokenizeOptions {
  std::string model;
  bool bos = false, special = false, detokenize = false, lines = false, json = false,
       json_input = false;
};

Json TokensOf(const text::Tokenizer& tokenizer, std::string_view input,
              const TokenizeOptions& options) {
  Json::Array tokens;
  for (const int token :
       tokenizer.Encode(input, {.add_bos = options.bos, .control_tokens = options.special}))
    tokens.emplace_back(token);
  return Json(std::move(tokens));
}

void PrintTokens(const Json& tokens, bool json) {
  if (json) {
    PrintJson(Json::Object{{"tokens", tokens}});
    return;
  }
  for (const Json& token : tokens.as_array())
    std::printf("%lld ", static_cast<long long>(token.as_int()));
  std::printf("\n");
}

Status Detokenize(const text::Tokenizer& tokenizer, const std::string& input,
                  const TokenizeOptions& options) {
  std::vector<int> tokens;
  constexpr const char* kBetween = " \t\r\n,[]";
  std::size_t pos = 0;
  while ((pos = input.find_first_not_of(kBetween, pos)) != std::string::npos) {
    const std::size_t end = std::min(input.find_first_of(kBetween, pos), input.size());
    const auto token = base::ParseNumber<int>(std::string_view(input).substr(pos, end - pos));
    if (!token.has_value() || *token < 0 || *token >= tokenizer.vocabulary().size()) {
      return base::InvalidArgument("'", input.substr(pos, end - pos),
                                   "' is no token id of this vocabulary: 0 to ",
                                   tokenizer.vocabulary().size() - 1);
    }
    tokens.push_back(*token);
    pos = end;
  }
  const std::string text = tokenizer.Decode(tokens, options.special);
  if (options.json)
    PrintJson(Json::Object{{"text", text}});
  else
    std::fwrite(text.data(), 1, text.size(), stdout);
  return OkStatus();
}

// Reads ["text", ...], writes {"tokens": [[ids], ...]}.
Status TokenizeJsonArray(const text::Tokenizer& tokenizer, const std::string& input,
                         const TokenizeOptions& options) {
  ASSIGN_OR_RETURN(const Json texts, base::ParseJson(input));
  if (!texts.is_array())
    return base::InvalidArgument("standard input: expected a JSON array of strings");
  Json::Array tokens;
  for (const Json& text : texts.as_array()) {
    if (!text.is_string())
      return base::InvalidArgument("standard input: expected a JSON array of strings, found ",
                                   text.Dump());
    tokens.push_back(TokensOf(tokenizer, text.as_string(), options));
  }
  PrintJson(Json::Object{{"tokens", std::move(tokens)}});
  return OkStatus();
}

Status Tokenize(const TokenizeOptions& options) {
  ASSIGN_OR_RETURN(const std::string path, model::ResolveModel(options.model));
  ASSIGN_OR_RETURN(const auto file, model::OpenModelOrVocabulary(path));
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::Create(file->vocabulary));
  ASSIGN_OR_RETURN(const std::string input, ReadStdin());
  if (options.detokenize) return Detokenize(*tokenizer, input, options);
  if (options.json_input) return TokenizeJsonArray(*tokenizer, input, options);
  if (!options.lines) {
    PrintTokens(TokensOf(*tokenizer, input, options), options.json);
    return OkStatus();
  }
  for (std::size_t begin = 0; begin < input.size();) {
    const std::size_t end = std::min(input.find('\n', begin), input.size());
    PrintTokens(TokensOf(*tokenizer, std::string_view(input).substr(begin, end - begin), options),
                options.json);
    begin = end + 1;
  }
  return OkStatus();
}

// Renders a template file, or a model's template with its begin and end tokens as variables.
Status RenderTemplate(const std::string& source_path, bool json) {
  std::string source;
  Json variables{Json::Object{}};
  if (source_path.ends_with(".jinja")) {
    ASSIGN_OR_RETURN(source, base::ReadFileToString(source_path));
  } else {
    ASSIGN_OR_RETURN(const std::string path, model::ResolveModel(source_path));
    ASSIGN_OR_RETURN(const auto file, model::OpenModelOrVocabulary(path));
    const model::Vocabulary& v = file->vocabulary;
    source = v.chat_template;
    if (source.empty())
      return base::FailedPrecondition(path, ": the model file holds no chat template");
    if (v.bos >= 0) variables.Set("bos_token", v.tokens[v.bos]);
    if (v.eos >= 0) variables.Set("eos_token", v.tokens[v.eos]);
  }
  ASSIGN_OR_RETURN(const auto chat, text::ChatTemplate::Parse(source));
  ASSIGN_OR_RETURN(const std::string input, ReadStdin());
  ASSIGN_OR_RETURN(const Json messages, base::ParseJson(input, 128));
  if (!messages.is_object())
    return base::InvalidArgument("standard input: expected an object with 'messages'");
  for (const auto& [name, value] : messages.as_object()) variables.Set(name, value);
  ASSIGN_OR_RETURN(const std::string text, chat->Render(variables));
  if (json)
    PrintJson(Json::Object{{"text", text}});
  else
    std::fwrite(text.data(), 1, text.size(), stdout);
  return OkStatus();
}

}  // namespace

Command AddTokenize(const OptionSet& set) {
  auto options = std::make_shared<TokenizeOptions>();
  set.Add("model", options->model, "Model, or a file that holds only a vocabulary").Required();
  set.Add("--bos", options->bos, "Put the beginning-of-sequence token in front");
  set.Add("--special", options->special, "Control tokens in the text become themselves");
  set.Add("--detokenize", options->detokenize, "Read token ids, print text");
  set.Add("--lines", options->lines, "Each line of the input by itself");
  set.Add("--json-input", options->json_input,
          "Standard input is a JSON array of texts; prints one object whose member tokens has an "
          "array of ids for each text");
  set.Add("--json", options->json, "One JSON object on standard output (one a line with --lines)");
  return [options] { return Tokenize(*options); };
}

Command AddTemplate(const OptionSet& set) {
  auto source = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  set.Add("source", *source, "Model, or a file ending in .jinja").Required();
  set.Add("--json", *json, "One JSON object on standard output");
  set.AddFooter(
      "Standard input: {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, "
      "...}");
  return [source, json] { return RenderTemplate(*source, *json); };
}

}  // namespace thermocline::tools
