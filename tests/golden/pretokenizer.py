#!/usr/bin/env python3
"""Words as an independent regular expression engine cuts them: writes golden/pretokenizer.json, which test_pretokenizer compares with.

Needs the PyPI package regex. The patterns are written here as the models' tokenizer.json files have them, in their own notation;
\\s is White_Space in both engines. The file holds, for each name, the sizes of the words in bytes for each text of tokenizer.json
that was written by hand (and some more) and is not empty.
"""
import json
import os

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
LETTERS = (r"\s?["
           r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
           r"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
           r"\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
           r"\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
           r"\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
           r"\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
           r"\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
           r"\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
           r"\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
           r"\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
           r"]+")
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [CL100K % r"\p{N}{1,3}"],
    "qwen2": [CL100K % r"\p{N}"],
    "minicpm5": [r"\p{N}{1,3}", CL100K % r"\p{N}+"],
    "laguna": [r"[^\n]+|[\n]+", CL100K % r"\p{N}"],
    "qwen35": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               r"\s+(?!\S)|\s+"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "tekken": [O200K % ("", "", r"\p{N}")],
    "gpt-4o": [O200K % (TAIL, TAIL, r"\p{N}{1,3}")],
    "deepseek-llm": ["[\r\n]", LETTERS, r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", CJK, r"\p{N}"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
                    r"\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bloom": [r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"],
    "viking": [r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+", r"\p{N}"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "gemma4": [r"[^\n]+|[\n]+"],
}
MORE = ["a  b   c    d \n e", "x's X'S 'll'LL'd've", "!!!\n\n???\r\n x", "/path/to/file\n//x", "ABCdef ABCDef aBcD ǅx ʰa ªb中A", "12345 ١٢٣٤٥ Ⅷ½²",
        "देवनागरी क्षि", "e\u0301e\u0301 \u0301x", "'ſ 'ſt", "…。，、(x|y) a.b,c!d?", " \t\n\t \u3000\u3000x\u3000", "a\u180eb \u0085 c\x1cd", "$+<=>^`|~ ´¨", "tail  "]


def cut(text, patterns):
    pieces = [text]
    for p in patterns:
        cutter, finer = regex.compile(p), []
        for piece in pieces:
            at = 0
            for m in cutter.finditer(piece):
                finer += [piece[at:m.start()], m.group()]
                at = m.end()
            finer.append(piece[at:])
        pieces = [p for p in finer if p]
    return pieces


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    texts = [bytes.fromhex(t).decode() for t in json.load(open(os.path.join(here, "tokenizer.json")))["texts"][1:75]] + MORE
    with open(os.path.join(here, "pretokenizer.json"), "w") as out:
        out.write('{"texts": [\n' + ",\n".join(json.dumps(t.encode().hex()) for t in texts) + "\n]")
        for name, patterns in PATTERNS.items():
            rows = [[len(w.encode()) for w in cut(t, patterns)] for t in texts]
            out.write(",\n%s: [\n%s\n]" % (json.dumps(name), ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows)))
        out.write("}\n")


main()
