#!/usr/bin/env python3
"""Token ids as llama.cpp gives them: writes golden/tokenizer.json, which test_vocabs compares with.

tokenizer.py DATA/vocab MODELS      needs the PyPI package llama_cpp_python; MODELS holds the two real models of `make demo`

Texts are hexadecimal UTF-8: some by hand, some random from a fixed seed. For each vocabulary: "plain" without and "special" with
control tokens in the text (null where both agree), "lossy" the texts that llama.cpp does not give back (bytes without a token,
U+2581 under SentencePiece). Not in the texts, because llama.cpp departs there from what the files say: "</s>" (a control token
to it everywhere), and letters newer than the Unicode 14 of PCRE2 10.42.
"""
import ctypes
import json
import os
import random
import sys

import llama_cpp

MODELS = ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"]

BY_HAND = [
    "", " ", "  ", "\n", "\n\n\n", "\t", "a", " a", "a ", "A", "1", "The quick brown fox jumps over the lazy dog.",
    "It's what we'd've said; they'll say \"I'M\" or 'TWAS, won't they?",
    "def f(x):\n    if x > 0:\n        return [x ** 2 for _ in range(10)]  # comment\n\treturn None\n",
    "#include <stdio.h>\r\nint main(void)\r\n{\r\n    printf(\"%d\\n\", 0x1F);\r\n}\r\n",
    "{\"key\": [1, 2.5e-3, null], \"nested\": {\"a\": \"b\\u0041\"}}",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- item\n  - sub\n1. one\n",
    "123456789012345678901234567890", "1 12 123 1234 12345 3.14159 1,000,000 0x1F 1e-9 2024-01-31",
    " " * 63, "x" + " " * 40 + "y", "\n" * 40, "\r\n" * 12, " \n \n  \n\t\n", "\t\t\tx\t\ty", "a" * 100, "=" * 80, "-" * 33 + ">",
    "Größe, naïve façade, Žluťoučký kůň, Ærøskøbing, İstanbul", "Ελληνικά γράμματα και τόνοι", "Съешь ещё этих мягких булок",
    "שלום עולם, נִקּוּד", "مرحبا بالعالم، كيف الحال؟ ١٢٣", "नमस्ते दुनिया, क्षत्रिय", "สวัสดีชาวโลก ภาษาไทย", "გამარჯობა", "ជំរាបសួរ",
    "你好，世界！今天天气很好。", "日本語のテキスト、カタカナとひらがな。", "안녕하세요 세계", "한글 자모", "𠜎𠜱𠝹 𝕬𝖇𝖈 𝟘𝟙",
    "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ☺️ ❤️‍🔥", "e\u0301 a\u0308\u0304 Z\u0351\u036b\u0343 q\u0307\u0323", "\ufeffBOM", "zero\u200bwidth\u200djoin",
    "\x00\x01\x02\x1b[31mred\x1b[0m\x7f", "\u00a0nbsp\u3000wide\u2028line\u2029par\x85nel\u180emvs", "ﬁ ﬂ ǅ Ⅷ ½ ² ₃ ①",
    "<|im_start|>user\nhi<|im_end|>\n", "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nx<|eot_id|>", "<|endoftext|>",
    "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", "<s>x<unk>y", "a<s> b", "<|im_start|", "<<|im_end|>>",
    "[toxicity=0] <h1>title</h1> <table><tr><td>", "<0x41><0x0A>", "<unused5><pad>", " \u2581 \u2581\u2581x", ">\u2581</ >  </",
    "https://example.org/a/b?c=d&e=%20#f", "C:\\Users\\x\\file.txt", "CamelCaseHTTPServer snake_case_name kebab-case", "’s ‘quoted’ “text” – — …",
]
BLOCKS = [(0x20, 0x7e)] * 6 + [(0x30, 0x39)] * 2 + [(0x41, 0x5a), (0x61, 0x7a)] * 2 + [
    (0xa0, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x10a0, 0x10ff),
    (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x218f), (0x2190, 0x23ff), (0x2500, 0x27bf), (0x3000, 0x30ff),
    (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xe0ff), (0xfe00, 0xfe0f), (0xff00, 0xffef), (0x1f300, 0x1f64f), (0x1d400, 0x1d7ff),
    (0x20000, 0x2a6d0), (0x300, 0x36f), (0x1, 0x1f), (0x7f, 0xa0), (0x660, 0x669), (0x1780, 0x17ff), (0x180b, 0x180f)]
SPACES = [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "\r", "\u00a0", "\u3000", "\u2028", "\x0b", "\x85", " \n", " \t ", "\n "]
MARKS = ["'s", "'S", "'ll", "'RE", " 'd", "'ve ", "<s>", "<|endoftext|>", "<|im_start|>", "<|eot_id|>", "<bos>", "<end_of_turn>", "<0x41>",
         "\u200d", "\ufe0f", "<h1>", "</s", "<|", "|>", "[toxicity=0]", "\u2581"]
WORDS = ["the", "Hello", "world", "don't", "naïve", "int", "return", "привет", "你好", "日本語", "안녕", "हिन्दी", "3.14159", "x86_64", "CamelCase", "I'M"]


def random_text(r):
    out = []
    for _ in range(r.randint(1, r.choice([3, 8]))):
        k = r.random()
        if k < 0.3:
            out.append(r.choice(WORDS))
        elif k < 0.5:
            out.append(r.choice(SPACES) * r.choice([1, 1, 2, 5]))
        elif k < 0.6:
            out.append(r.choice(MARKS))
        else:
            a, b = r.choice(BLOCKS)
            out.extend(chr(r.randint(a, b)) for _ in range(r.randint(1, 5)))
    return "".join(out)


def piece(m, token):
    buffer = ctypes.create_string_buffer(256)
    n = llama_cpp.llama_token_to_piece(m._model.vocab, token, buffer, 256, 0, True)
    return buffer.raw[:n]


def main():
    r = random.Random(20240229)
    texts = BY_HAND + [random_text(r) for _ in range(220)]
    encoded = [t.encode() for t in texts]
    vocabs = {}
    files = [os.path.join(sys.argv[1], f) for f in sorted(os.listdir(sys.argv[1])) if f.endswith(".gguf")]
    for path in files + [os.path.join(sys.argv[2], f) for f in MODELS]:
        m = llama_cpp.Llama(model_path=path, vocab_only=True, verbose=False)
        plain = [m.tokenize(t, add_bos=False, special=False) for t in encoded]
        special = [m.tokenize(t, add_bos=False, special=True) for t in encoded]
        pieces = [b"".join(piece(m, i) for i in ids) for ids in plain]
        # "llama-spm" puts a space before a text.
        lossy = [i for i, t in enumerate(encoded) if pieces[i] not in (t, b" " + t)]
        vocabs[os.path.basename(path)] = {"plain": plain, "lossy": lossy,
                                          "special": [None if s == p else s for s, p in zip(special, plain)]}
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "tokenizer.json"), "w") as out:
        out.write('{"texts": [\n' + ",\n".join(json.dumps(t.hex()) for t in encoded) + "\n]")
        for name, v in vocabs.items():
            out.write(",\n%s: {" % json.dumps(name))
            out.write(", ".join("%s: [\n%s\n]" % (json.dumps(k), ",\n".join(json.dumps(x, separators=(",", ":")) for x in v[k])) for k in v))
            out.write("}")
        out.write("}\n")


main()
