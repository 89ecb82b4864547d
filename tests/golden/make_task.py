"""Makes task_choices.jsonl and task.json: what EleutherAI's lm-evaluation-harness finds of Tidepool.

    pip install lm_eval gguf sentencepiece && python3 make_task.py

The model is NumPy's (tests/e2e/numpy_llama.py), its tokenizer sentencepiece: only the rules of the harness and what they
are applied to stand behind these numbers. Choices are how a sentence of the Wizard of Oz goes on, among other sentences' ends.
"""
import functools
import json
import random
import re
import sys
from pathlib import Path

import lm_eval
import numpy as np
import sentencepiece
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.filters.extraction import RegexFilter

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from numpy_llama import NumpyLlama  # noqa: E402

CONTEXT, NEW_TOKENS = 512, 40
IGNORED = [",", r"\$", r"(?s).*#### ", r"\.$"]  # of the harness's task gsm8k
FILTERS = {"strict": (r"#### (\-?[0-9\.\,]+)", 0), "flexible": (r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1)}


class Tidepool(TemplateLM):
    def __init__(self):
        super().__init__()
        self.model = NumpyLlama(ROOT / "config/models/tidepool.gguf")
        self.model.weight = functools.cache(self.model.weight)
        self.tokenizer = sentencepiece.SentencePieceProcessor(str(HERE / "models/tidepool/target/tokenizer.model"))

    eot_token_id = 2
    ends = json.loads((HERE / "models/tidepool/target/generation_config.json").read_text())["eos_token_id"]

    def tok_encode(self, string, **_):
        return [1] + self.tokenizer.encode(string)

    def loglikelihood_rolling(self, requests, **_):
        raise NotImplementedError

    def _loglikelihood_tokens(self, requests, **_):
        results = []
        for _, context, continuation in requests:
            logits = self.model.logits((context + continuation)[:-1])[-len(continuation):]
            logprobs = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(-1, keepdims=True)
            results.append((float(logprobs[np.arange(len(continuation)), continuation].sum()), bool((logits.argmax(-1) == continuation).all())))
        return results

    def generate_until(self, requests, **_):
        texts = []
        for request in requests:
            context, options = request.args
            tokens, made, text = self.tok_encode(context)[-(CONTEXT - NEW_TOKENS):], [], ""
            while len(made) < NEW_TOKENS:
                made.append(int(self.model.logits(tokens + made)[-1].argmax()))
                if made[-1] in self.ends:
                    made.pop()
                    break
                text = self.tokenizer.decode(made)
                if any(stop in text for stop in options["until"]):
                    break
            for stop in options["until"]:
                text = text.split(stop)[0]
            texts.append(text)
        return texts


def sentences():
    text = re.sub(r"\s+", " ", (ROOT / "tests/data/wizard_of_oz.txt").read_text())
    return [s for s in re.findall(r"[A-Z][^.!?\"”]{90,200}[.!?]", text[5000:200_000]) if s.isascii()]


def choices():
    draw = random.Random(19)
    cut = [(words[:len(words) // 2], words[len(words) // 2:]) for words in (s.split() for s in draw.sample(sentences(), 200))]
    for i, (begin, end) in enumerate(cut[:50]):
        ends = [" ".join(end)] + [" ".join(cut[50 + 3 * i + k][1]) for k in range(3)]
        order = draw.sample(range(4), 4)
        yield {"prompt": " ".join(begin), "choices": [ends[k] for k in order], "gold": order.index(0)}


def task(name, path, **config):
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test", "num_fewshot": 0}
    return {"task": name, **data, **config}


def evaluate(model, config, limit=None):
    result = lm_eval.simple_evaluate(model=model, tasks=[config], limit=limit, log_samples=True, bootstrap_iters=0)
    return result["results"][config["task"]], sorted(result["samples"][config["task"]], key=lambda s: s["doc_id"])


def judged(texts, answers):
    out = []
    for text, answer in zip(texts, answers):
        entry = {"text": text, "answer": answer}
        for name, (pattern, group) in FILTERS.items():
            entry[name] = RegexFilter(pattern, group).apply([[text]], [{}])[0][0]
            entry["right_" + name] = bool(exact_match_hf_evaluate([entry[name]], [answer], regexes_to_ignore=IGNORED, ignore_case=True)["exact_match"])
        out.append(entry)
    return out


TEXTS = ["so 18. #### 18", "#### -1,234.", "It costs $1,234.50 in all.", "none", "#### 5 and #### 6", "1 2 3", "the answer is 18.", "#### 18.0", "#### $18", "12 - -7", "3.", "A #### 1,000 B 2", ". , $."]


def main():
    path = HERE / "task_choices.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in choices()))
    model = Tidepool()
    scores, samples = evaluate(model, task("choices", path, output_type="multiple_choice", doc_to_text="{{prompt}}", doc_to_target="{{gold}}", doc_to_choice="{{choices}}",
                                           metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}]))
    gsm8k = ROOT / "tests/data/gsm8k_test.jsonl"
    _, answered = evaluate(model, task("numbers", gsm8k, output_type="generate_until", doc_to_text="Question: {{question}}\nAnswer:", doc_to_target="{{answer}}",
                                       generation_kwargs={"until": ["Question:", "</s>", "<|im_end|>"], "do_sample": False},
                                       metric_list=[{"metric": "exact_match"}]), limit=6)
    answers = ["reasoning\n#### 18", "#### -1234", "#### 1234.50", "#### 3", "#### 5", "#### 3", "#### 18", "#### 18", "#### 18", "#### -7", "#### 3", "#### 1000", "#### 1"]
    golden = {"harness": lm_eval.__version__,
              "choices": {"acc": scores["acc,none"], "acc_norm": scores["acc_norm,none"],
                          "log_likelihood": [[round(r[0][0], 6) for r in s["resps"]] for s in samples]},
              "gsm8k": {"max_new_tokens": NEW_TOKENS, "texts": [s["resps"][0][0] for s in answered]},
              "judged": judged(TEXTS, answers)}
    (HERE / "task.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
