#include "tools/synth/synth_vocabulary.h"

#include "engine/base/strings.h"

namespace thermocline::tools {

model::Vocabulary MakeVocabulary(int size) {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kSentencePiece;
  v.pre_tokenizer = "default";
  v.bos = 1;
  v.eos = 2;
  v.unk = 0;
  v.add_bos = true;
  v.add_space_prefix = true;
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int i = 0; i < size; ++i) {
    if (i < 3) {
      v.tokens.push_back(i == 0 ? "<unk>" : i == 1 ? "<s>" : "</s>");
      v.types.push_back(i == 0 ? model::TokenType::kUnknown : model::TokenType::kControl);
    } else if (i < 259) {
      v.tokens.push_back(StrCat("<0x", kHex[(i - 3) / 16], kHex[(i - 3) % 16], ">"));
      v.types.push_back(model::TokenType::kByte);
    } else {
      v.tokens.push_back(StrCat("\xE2\x96\x81w", i - 259));
      v.types.push_back(model::TokenType::kNormal);
    }
    v.scores.push_back(-static_cast<float>(i));
  }
  return v;
}

}  // namespace thermocline::tools
