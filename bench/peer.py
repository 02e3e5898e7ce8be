#!/usr/bin/env python3
"""One sample of llama.cpp on a GGUF file: the median times of decode steps and of a prefill, as JSON on stdout.

    peer.py MODEL THREADS DECODE_STEPS DEPTH PREFILL_TOKENS PREFILL_REPEATS

Uses the C API through llama-cpp-python, so nothing of Python lies inside a measured interval but one call. Token ids are drawn from a
fixed seed, as `hone trace` does: what they are does not matter to the time.
"""
import ctypes
import json
import random
import statistics
import sys
import time

import llama_cpp as lc


def batch_of(ids, first, want):
    batch = lc.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i] = token
        batch.pos[i] = first + i
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = 0
        batch.logits[i] = 1 if want and i == len(ids) - 1 else 0
    return batch


def timed(ctx, ids, first):
    batch = batch_of(ids, first, True)
    start = time.perf_counter()
    if lc.llama_decode(ctx, batch) != 0:
        sys.exit("llama_decode failed")
    lc.llama_get_logits_ith(ctx, -1)  # waits for the result
    spent = time.perf_counter() - start
    lc.llama_batch_free(batch)
    return spent


def main():
    path, threads, steps, depth, prefill, repeats = sys.argv[1], *map(int, sys.argv[2:7])
    quiet = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    if not model:
        sys.exit(f"{path}: llama.cpp cannot load it")
    params = lc.llama_context_default_params()
    params.n_ctx = max(512, depth + prefill + steps + 64)
    params.n_batch = params.n_ubatch = max(512, prefill, depth)
    params.n_threads = params.n_threads_batch = threads
    ctx = lc.llama_init_from_model(model, params)
    memory = lc.llama_get_memory(ctx)
    rng = random.Random(1)
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    draw = lambda n: [rng.randrange(n_vocab) for _ in range(n)]
    prefills = []
    for _ in range(repeats + 1):  # the first touches the weights
        lc.llama_memory_clear(memory, True)
        prefills.append(timed(ctx, draw(prefill), 0))
    lc.llama_memory_clear(memory, True)
    if depth:
        timed(ctx, draw(depth), 0)
    decodes = []
    for _ in range(steps):
        decodes.append(timed(ctx, draw(1), depth))
        lc.llama_memory_seq_rm(memory, 0, depth, -1)
    print(json.dumps({
        "engine": "llama.cpp", "decode_s": statistics.median(decodes), "prefill_s": statistics.median(prefills[1:]),
        "prefill_tokens": prefill, "depth": depth, "threads": threads,
    }))


main()
