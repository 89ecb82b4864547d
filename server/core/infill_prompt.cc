#include <algorithm>

#include "engine/base/index.h"
#include "engine/text/tokenizer.h"
#include "server/core/prompt.h"

namespace thermocline::server {
namespace {

using Tokens = std::vector<int>;

void Append(Tokens& to, const Tokens& more) { to.insert(to.end(), more.begin(), more.end()); }

// The tokens of `text`; a control token's name in it stays text.
Result<Tokens> PlainTokens(const Service& service, const std::string& text,
                           PromptLimit limit = PromptLimit::kContext) {
  return EncodeText(service, text, {.add_special = false, .parse_special = false, .limit = limit});
}

// The other files, each behind its name, then the name of the file with the gap.
Result<Tokens> OtherFiles(const Service& service, const Infill& infill) {
  const model::InfillTokens& special = service.engine()->tokenizer().vocabulary().infill;
  Tokens out;
  if (infill.others.empty()) return out;
  for (const Infill::File& file : infill.others) {
    if (special.separator >= 0) out.push_back(special.separator);
    const std::string head = special.separator >= 0 ? StrCat(file.name, "\n") : "\n\n";
    ASSIGN_OR_RETURN(const Tokens tokens,
                     PlainTokens(service, head + file.text, PromptLimit::kNone));
    Append(out, tokens);
  }
  if (special.separator < 0) return out;
  out.push_back(special.separator);
  ASSIGN_OR_RETURN(const Tokens name, PlainTokens(service, "filename\n"));
  Append(out, name);
  return out;
}

}  // namespace

Result<EncodedPrompt> EncodeInfill(const Service& service, const Infill& infill) {
  const model::Vocabulary& vocabulary = service.engine()->tokenizer().vocabulary();
  const model::InfillTokens& special = vocabulary.infill;
  if (!special.known()) {
    return base::Unimplemented(
        "the model's vocabulary has no tokens for text in the middle (fill-in-the-middle): it "
        "cannot be asked to fill a gap");
  }
  ASSIGN_OR_RETURN(const Tokens prefix, PlainTokens(service, infill.prefix));
  ASSIGN_OR_RETURN(const Tokens suffix, PlainTokens(service, infill.suffix));
  EncodedPrompt out;
  out.bos_added = vocabulary.add_bos;
  if (vocabulary.add_bos) out.tokens.push_back(vocabulary.bos);
  ASSIGN_OR_RETURN(const Tokens others, OtherFiles(service, infill));
  const std::size_t context = service.engine()->Stats().context_length;
  const std::size_t taken = prefix.size() + suffix.size() + 4 + context / 4;
  const std::size_t kept = std::min(others.size(), context - std::min(context, taken));
  out.tokens.insert(out.tokens.end(), others.end() - kept, others.end());
  out.tokens.push_back(special.prefix);
  Append(out.tokens, prefix);
  out.tokens.push_back(special.suffix);
  Append(out.tokens, suffix);
  out.tokens.push_back(special.middle);
  for (const int end : {special.pad, special.repository, special.separator})
    if (end >= 0) out.ends.push_back(end);
  if (out.tokens.size() < context) return out;
  return base::OutOfRange("the texts before and behind the gap have ", out.tokens.size(),
                          " tokens; the model's context has ", context, ". Shorten them.")
      .WithReason(Reason::kContextLength)
      .WithNumber("n_prompt_tokens", out.tokens.size())
      .WithNumber("n_ctx", context);
}

}  // namespace thermocline::server
