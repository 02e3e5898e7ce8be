#!/usr/bin/env python3
"""real.py MODELS [NAME...]: writes tests/golden/real-<name>.json, what llama.cpp says about the real models.

MODELS is the folder that examples/fetch.sh fills. For each of 12 prompts of different kinds: the token ids of the text, 48 greedy
ids (argmax, ties to the lowest id, past tokens that end a generation), and for each of the 48 positions llama.cpp's 8 best
(id, logit). llama.cpp multiplies weights with activations that it has quantised to 8 bits, so its logits are off by what that
costs. To tell that apart from a fault of ours, `exact` holds the logits of the same ids after the same tokens in double precision
(exact.py): a reference path must agree with these closely. The prompts were picked, from three or four of each kind, so that the
text is no loop and the double-precision model seldom chooses another token than llama.cpp: with the first pick it was 2.3 %.

One sequence, n_ctx 1024, the prompt in one batch, then one token a step, 2 threads, KV cache in f32, no flash attention.
Needs llama-cpp-python (bench/peer.sh builds the pinned one), gguf and numpy, and 4 GB of memory. Takes about five minutes.
"""
import ctypes
import hashlib
import json
import os
import sys

import llama_cpp
import numpy as np

from exact import Exact

N_NEW, N_TOP, N_CTX, THREADS = 48, 8, 1024, 2

FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}

# How each family writes a dialogue, which tokens are its chat template's own, and another script that it has learnt. Gemma 3 270M
# is the base model: it goes on with an answer, but begins none.
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
FAMILY = {
    "smollm2": {
        "dialogue": SYSTEM + "<|im_start|>user\nWhat is photosynthesis?<|im_end|>\n<|im_start|>assistant\n",
        "template": "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n",
        "script": "Париж — столица Франции. Берлин — столица",
    },
    "gemma3": {
        "dialogue": "<start_of_turn>user\nHow do I boil an egg?<end_of_turn>\n<start_of_turn>model\nPut it in boiling water for "
        "eight minutes.<end_of_turn>\n<start_of_turn>user\nAnd how do I poach one?<end_of_turn>\n<start_of_turn>model\nFirst, "
        "bring a pot of water to",
        "template": "<start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n",
        "script": "一月、二月、三月、四月、",
    },
}

# The prompt of examples/demo.sh. Both ways of computing must agree on every token of its answer.
DEMO = "What is gravity? Answer in one sentence."

LONG = """The harbour of Vell had been built twice. The first time, in the reign of a king whose name survives only on a broken \
coin, it was made of oak piles driven into the mud at low tide, and it lasted for ninety years before the worms had eaten it. \
The second time it was made of stone, carried on barges from the quarries in the north, and the masons who laid it cut their \
marks into every block, so that they could be paid for what they had done and blamed for what they had not.

When I came there as a young surveyor, the stone harbour was four hundred years old. My task was a simple one: to measure the \
depth of the water at the foot of the wall, every ten paces, at spring tide and at neap tide, and to write the figures into a \
book with columns that had been ruled for me. I was given a boat, a rope with a lead weight, a boy named Tomas who rowed, and \
a room above a shop that sold nails, lamp oil and, on Fridays, fish.

For three weeks I wrote down depths. The numbers were dull, and I was glad of it, for dull numbers are easy to check. On the \
first day of the fourth week we came to the seventh bollard, where the wall turns to the west, and the lead weight did not \
stop. I let out the rope to its end, which was thirty fathoms, and still it hung free. Tomas looked at me, and I looked at the \
rope. The chart said that the water there was two fathoms deep.

"It is a hole," said Tomas. "My grandfather told me about it. He said that the old king had it dug, and that the men who dug \
it were not allowed to speak of what they found."

I did not believe in holes that kings had dug. I believed in springs, in old river beds, and in the mistakes of people who \
draw charts. So we moved the boat five paces and tried again, and then five more, and by the time the tide had turned I had a \
ring of figures in my book, and in the middle of the ring there was a place, no wider than a cart, where the sea had no floor. \
That evening I wrote a letter to the office in the capital. I described the instrument, the weather and the method, as I had \
been taught, and at the end I asked what I should do. The answer took eleven days to come, and when I broke the seal it held \
one line:"""


def prompts(name):
    family = FAMILY[name]
    return [
        ("prose", "In the year 1969, three astronauts travelled to the Moon. Two of them walked on its surface, while"),
        ("code", "def binary_search(items, target):\n    \"\"\"Return the index of target in the sorted list, or -1.\"\"\"\n    low"),
        ("list", "The planets of the solar system, in order of their distance from the sun:\n1. Mercury\n2."),
        ("script", family["script"]),
        ("emoji", "Weather report ☀️🌧️❄️: on Monday it was sunny ☀️, on Tuesday"),
        ("word", "Photosynthesis"),
        ("template", family["template"]),
        ("long", LONG),
        ("json", '[{"id": 1, "city": "Paris", "country": "France"}, {"id": 2, "city": "Rome", "country":'),
        ("maths", "To solve the equation 3x + 7 = 25, first subtract 7 from both sides: 3x = 18. Then"),
        ("dialogue", family["dialogue"]),
        ("whitespace", "\t name\t\tqty   price\n\n\n  apples\t 12     3.50  \n\t pears\t\t 7   4.25\r\n\n    plums"),
    ]


class Model:
    """One model and one context of llama.cpp, with greedy steps."""

    def __init__(self, path):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)
        cp = llama_cpp.llama_context_default_params()
        cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_seq_max = N_CTX, N_CTX, N_CTX, 1
        cp.n_threads = cp.n_threads_batch = THREADS
        cp.type_k = cp.type_v = llama_cpp.GGML_TYPE_F32
        cp.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        cp.swa_full = True
        self.ctx = llama_cpp.llama_init_from_model(self.model, cp)

    def tokenize(self, text):
        raw = text.encode()
        room = (llama_cpp.llama_token * (len(raw) + 8))()
        n = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), room, len(room), True, True)
        return list(room[:n])

    def piece(self, ids):
        out = b""
        buf = ctypes.create_string_buffer(512)
        for i in ids:
            n = llama_cpp.llama_token_to_piece(self.vocab, i, buf, 512, 0, True)
            out += buf.raw[:n]
        return out.decode(errors="replace")

    def feed(self, ids):
        """Feeds the ids and returns the last one's logits."""
        array = (llama_cpp.llama_token * len(ids))(*ids)
        rc = llama_cpp.llama_decode(self.ctx, llama_cpp.llama_batch_get_one(array, len(ids)))
        assert rc == 0, rc
        got = llama_cpp.llama_get_logits_ith(self.ctx, -1)
        return np.ctypeslib.as_array(got, shape=(self.n_vocab,)).copy()

    def run(self, prompt, forced=None):
        """The logits of N_NEW positions behind the prompt and the ids that were fed: greedy, or those of `forced`."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.ctx), True)
        rows, ids = [self.feed(prompt)], []
        while True:
            ids.append(forced[len(ids)] if forced else int(np.argmax(rows[-1])))
            if len(ids) == N_NEW:
                return rows, ids
            rows.append(self.feed([ids[-1]]))

    def ends(self, i):
        return bool(llama_cpp.llama_vocab_is_eog(self.vocab, i))

    def close(self):
        llama_cpp.llama_free(self.ctx)
        llama_cpp.llama_model_free(self.model)


def degenerate(model, ids):
    """Why these ids prove little: a short loop, few different ids, or an end in the first half. None where they prove something."""
    for period in range(1, 9):
        if all(ids[i] == ids[i - period] for i in range(N_NEW // 2 + period, N_NEW)):
            return f"loop of {period}"
    if len(set(ids)) < 12:
        return f"{len(set(ids))} different ids"
    end = next((i for i, t in enumerate(ids) if model.ends(t)), N_NEW)
    return f"ends at {end}" if end < N_NEW // 2 else None


def demo_facts(model, exact):
    rendered = SYSTEM + f"<|im_start|>user\n{DEMO}<|im_end|>\n<|im_start|>assistant\n"
    prompt = model.tokenize(rendered)
    _, ids = model.run(prompt)
    ids = ids[: next(i for i, t in enumerate(ids) if model.ends(t))]
    rows = exact.logits(prompt + ids, len(ids) + 1)
    assert [int(np.argmax(row)) for row in rows[:-1]] == ids and model.ends(int(np.argmax(rows[-1])))
    return {"prompt": DEMO, "rendered": rendered, "answer": model.piece(ids)}


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def facts(name, path, show):
    model = Model(path)
    cases = []
    for kind, text in prompts(name):
        ids = model.tokenize(text)
        rows, greedy = model.run(ids)
        order = [np.argsort(-row, kind="stable")[:N_TOP] for row in rows]
        cases.append(
            {
                "kind": kind,
                "text": text,
                "prompt": ids,
                "greedy": greedy,
                "degenerate": degenerate(model, greedy),
                "top": [[int(i) for i in o] for o in order],
                "logits": [[round(float(row[i]), 4) for i in o] for row, o in zip(rows, order)],
            }
        )
        if show:
            print(f"{name} {kind} [{len(ids)}] {cases[-1]['degenerate']}: {model.piece(greedy)!r}", file=sys.stderr)
    exact = Exact(path)
    differ = 0
    for case in cases:
        rows = exact.logits(case["prompt"] + case["greedy"][:-1], N_NEW)
        case["exact"] = [[round(float(row[i]), 5) for i in top] for row, top in zip(rows, case["top"])]
        case["exact_top"] = [int(np.argmax(row)) for row in rows]
        differ += sum(a != b for a, b in zip(case["exact_top"], case["greedy"]))
    demo = {"demo": demo_facts(model, exact)} if name == "smollm2" else {}
    model.close()
    if show:
        rms = [np.sqrt(np.mean((np.array(c["exact"]) - np.array(c["logits"])) ** 2, axis=1)) for c in cases]
        rms = np.concatenate(rms)
        print(f"{name}: quantised activations flip {differ} of {rms.size}; RMS error mean {rms.mean():.4f} max {rms.max():.4f}",
              file=sys.stderr)
    return {
        "model": FILES[name],
        "sha256": sha256(path),
        "by": f"llama-cpp-python {llama_cpp.__version__}, CPU",
        "settings": {"n_ctx": N_CTX, "n_seq_max": 1, "threads": THREADS, "type_k": "f32", "type_v": "f32", "flash_attn": "off"},
        **demo,
        "cases": cases,
    }


def compact(data):
    """JSON with one line a position, so that a change of the facts can be read in a diff."""
    head = json.dumps({k: v for k, v in data.items() if k != "cases"}, ensure_ascii=False, separators=(",", ":"))[:-1]
    out = [head + ',"cases":[']
    for n, case in enumerate(data["cases"]):
        fields = [json.dumps(k) + ":" + json.dumps(v, ensure_ascii=False, separators=(",", ":")) for k, v in case.items()]
        out.append("{" + ",\n".join(fields) + "}" + ("," if n + 1 < len(data["cases"]) else ""))
    return "\n".join(out) + "\n]}\n"


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(FILES)
    here = os.path.dirname(os.path.abspath(__file__))
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, None)
    llama_cpp.llama_backend_init()
    for name in names:
        data = facts(name, os.path.join(folder, FILES[name]), show=True)
        with open(os.path.join(here, f"real-{name}.json"), "w", encoding="utf-8") as f:
            f.write(compact(data))


if __name__ == "__main__":
    main()
