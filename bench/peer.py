#!/usr/bin/env python3
"""peer.py MODEL [-t THREADS] [-p N] [-n N] [-d N] [-r N]: tokens a second of llama.cpp on a GGUF file, as one line of JSON.

Run it through bench/peer.sh, which builds the pinned version. It times llama_decode through the low-level calls of
llama-cpp-python with the monotonic clock, so that what Python does between two steps is not counted; llama.cpp's own counters
(llama_perf) stand beside it. What is fed is the same ids in every run (a fixed recurrence), and decode goes on greedily from there.

  -p N  prefill: one batch of N tokens on an empty cache      -t N  threads (default 2)
  -n N  decode: N steps of one token                          -r N  repetitions, after one that is thrown away (default 3)
  -d N  tokens in the cache before the decode steps (default 8)
  --kv f16|f32|q8_0   --flash-attn on|off|auto                --wait: prints "ready" after loading and warming, then runs one
                                                              repetition for each line on stdin: for interleaved comparisons
Samples are nanoseconds; ids of the decode are printed too, since a speed counts only beside an output.
"""
import argparse
import ctypes
import json
import os
import statistics
import sys
import time

import llama_cpp as ll


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("-t", "--threads", type=int, default=2)
    a.add_argument("-p", "--prefill", type=int, default=128)
    a.add_argument("-n", "--decode", type=int, default=64)
    a.add_argument("-d", "--depth", type=int, default=8)
    a.add_argument("-r", "--repeat", type=int, default=3)
    a.add_argument("--kv", default="f16", choices=["f16", "f32", "q8_0"])
    a.add_argument("--flash-attn", default="auto", choices=["on", "off", "auto"])
    a.add_argument("--wait", action="store_true")
    return a.parse_args()


class Peer:
    def __init__(self, args):
        self.args = args
        mp = ll.llama_model_default_params()
        mp.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(os.fsencode(args.model), mp)
        if not self.model:
            sys.exit(f"peer.py: llama.cpp cannot load {args.model}")
        self.vocab = ll.llama_model_get_vocab(self.model)
        self.n_vocab = ll.llama_vocab_n_tokens(self.vocab)
        cp = ll.llama_context_default_params()
        need = max(args.prefill, args.depth + args.decode) + 8
        cp.n_ctx = (need + 255) // 256 * 256
        cp.n_batch = cp.n_ubatch = max(512, args.prefill)
        cp.n_seq_max = 1
        cp.n_threads = cp.n_threads_batch = args.threads
        cp.type_k = cp.type_v = {"f16": ll.GGML_TYPE_F16, "f32": ll.GGML_TYPE_F32, "q8_0": ll.GGML_TYPE_Q8_0}[args.kv]
        cp.flash_attn_type = {
            "on": ll.LLAMA_FLASH_ATTN_TYPE_ENABLED,
            "off": ll.LLAMA_FLASH_ATTN_TYPE_DISABLED,
            "auto": ll.LLAMA_FLASH_ATTN_TYPE_AUTO,
        }[args.flash_attn]
        cp.no_perf = False
        self.ctx = ll.llama_init_from_model(self.model, cp)
        if not self.ctx:
            sys.exit("peer.py: llama.cpp makes no context")

    def ids(self, n):
        """n ids that look like nothing, the same in every run."""
        x, out = 12345, []
        for _ in range(n):
            x = (x * 1103515245 + 12345) % 2**31
            out.append(100 + x // 65536 % min(20000, self.n_vocab - 100))
        return out

    def clear(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.ctx), True)

    def step(self, ids):
        """Nanoseconds of one llama_decode."""
        array = (ll.llama_token * len(ids))(*ids)
        batch = ll.llama_batch_get_one(array, len(ids))
        start = time.monotonic_ns()
        rc = ll.llama_decode(self.ctx, batch)
        ll.llama_synchronize(self.ctx)
        spent = time.monotonic_ns() - start
        if rc:
            sys.exit(f"peer.py: llama_decode gave {rc}")
        return spent

    def best(self):
        logits = ll.llama_get_logits_ith(self.ctx, -1)
        return self.argmax(logits)

    def argmax(self, logits):
        try:
            import numpy as np

            return int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.n_vocab,))))
        except ImportError:
            values = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * self.n_vocab)).contents
            return max(range(self.n_vocab), key=lambda i: (values[i], -i))

    def prefill(self):
        self.clear()
        return self.step(self.ids(self.args.prefill))

    def decode(self):
        """Nanoseconds of the N steps, the ids that they chose."""
        self.clear()
        self.step(self.ids(self.args.depth))
        spent, out = 0, []
        for _ in range(self.args.decode):
            out.append(self.best())
            spent += self.step([out[-1]])
        return spent, out

    def once(self):
        a = self.args
        ll.llama_perf_context_reset(self.ctx)
        sample = {"prefill_ns": self.prefill() if a.prefill else None}
        if a.decode:
            sample["decode_ns"], sample["ids"] = self.decode()
        perf = ll.llama_perf_context(self.ctx)
        sample["perf_eval_ms"], sample["perf_n_eval"] = perf.t_eval_ms, perf.n_eval
        return sample


def summary(args, samples):
    def rate(key, n):
        ns = [s[key] for s in samples if s.get(key)]
        return round(n * 1e9 / statistics.median(ns), 3) if ns else None

    return {
        "peer": "llama.cpp",
        "version": "llama-cpp-python " + ll.__version__,
        "system": ll.llama_print_system_info().decode().strip(),
        "model": args.model,
        "threads": args.threads,
        "kv": args.kv,
        "flash_attn": args.flash_attn,
        "n_prefill": args.prefill,
        "n_decode": args.decode,
        "depth": args.depth,
        "prefill_tokens_per_second": rate("prefill_ns", args.prefill),
        "decode_tokens_per_second": rate("decode_ns", args.decode),
        "ids_agree": all(s.get("ids") == samples[0].get("ids") for s in samples),
        "samples": samples,
    }


def main():
    args = arguments()
    quiet = ll.llama_log_callback(lambda *_: None)
    ll.llama_log_set(quiet, None)
    ll.llama_backend_init()
    peer = Peer(args)
    peer.once()
    samples = []
    if args.wait:
        print("ready", flush=True)
        for _ in sys.stdin:
            samples.append(peer.once())
            print(json.dumps(summary(args, samples[-1:])), flush=True)
    else:
        samples = [peer.once() for _ in range(args.repeat)]
        print(json.dumps(summary(args, samples)))


if __name__ == "__main__":
    main()
