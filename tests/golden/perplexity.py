#!/usr/bin/env python3
"""perplexity.py MODEL N_CTX: the perplexity of perplexity.txt as llama.cpp's tool computes it, with llama.cpp's own library (llama-cpp-python,
CPU, f16 KV cache), as JSON on stdout. Stored as perplexity-<model>.json; tests/test_perplexity.c holds hone to it.

The windows, the bos and what is scored are those of llama.cpp's perplexity tool (tools/perplexity in its repository), written anew:
the tool itself is not part of the Python package.
"""
import json
import math
import os
import sys

import llama_cpp as ll
import numpy as np

path, n_ctx = sys.argv[1], int(sys.argv[2])
here = os.path.dirname(os.path.abspath(__file__))
text = open(os.path.join(here, "perplexity.txt"), encoding="utf-8").read()
llm = ll.Llama(path, n_ctx=n_ctx, n_batch=n_ctx, n_threads=2, logits_all=True, verbose=False)
ids = llm.tokenize(text.encode(), add_bos=True, special=False)
vocab = ll.llama_model_get_vocab(llm._model.model)
first, losses, chunks = n_ctx // 2, [], []
for c in range(len(ids) // n_ctx):
    window = ids[c * n_ctx : (c + 1) * n_ctx]
    fed = list(window)
    if ll.llama_vocab_get_add_bos(vocab):
        fed[0] = llm.token_bos()
    llm.reset()
    llm.eval(fed)
    rows = np.asarray(llm.scores[:n_ctx], dtype=np.float64)
    own = []
    for j in range(first, n_ctx - 1):
        top = rows[j].max()
        own.append(top + math.log(np.exp(rows[j] - top).sum()) - rows[j][window[j + 1]])
    chunks.append(math.exp(sum(own) / len(own)))
    losses += own
n = len(losses)
mean = sum(losses) / n
variance = sum(x * x for x in losses) / n - mean * mean
error = math.sqrt(variance / (n - 1))
json.dump(
    {
        "file": os.path.basename(path), "n_ctx": n_ctx, "tokens": len(ids), "scored": n, "nll": mean, "perplexity": math.exp(mean),
        "perplexity_error": math.exp(mean) * error, "chunks": chunks, "llama_cpp_python": ll.__version__,
    },
    sys.stdout, indent=1,
)
print()
