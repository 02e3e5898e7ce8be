"""exact.py: logits of a GGUF model in double precision, written from the published descriptions of the architectures.

For facts alone: one sequence, all at once, no cache; 20 to 100 tokens a second. It shares nothing with hone or llama.cpp but the
weights, which the `gguf` package unpacks. Llama: Touvron et al. 2023 (RMSNorm before each block, rotary embedding of neighbouring
pairs, as GGUF files order them, SwiGLU). Gemma 3: its technical report, 2025 (embedding times sqrt(width), norms before and behind
each block, norms of each query and key head, five layers with a sliding window and local rope base to one global, GeGLU).
"""
import gguf
import numpy as np


class Exact:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.keys = {k: f.contents() for k, f in self.reader.fields.items() if len(f.data) < 100}
        self.arch = self.keys["general.architecture"]
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.weights = {}
        self.width = self.key("embedding_length")
        self.n_head = self.key("attention.head_count")
        self.n_kv = self.key("attention.head_count_kv", self.n_head)
        self.head = self.key("attention.key_length", self.width // self.n_head)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.base = self.key("rope.freq_base", 10000.0)
        assert self.arch in ("llama", "gemma3"), self.arch
        assert not any("scaling" in k for k in self.keys) and "rope_freqs.weight" not in self.tensors

    def key(self, name, default=None):
        return self.keys.get(f"{self.arch}.{name}", default)

    def weight(self, name):
        """[n_out, n_in] in double; kept, since every prompt needs it again."""
        if name not in self.weights:
            t = self.tensors[name]
            w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            self.weights[name] = w.reshape(tuple(int(n) for n in reversed(t.shape)))
        return self.weights[name]

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weight(name)

    def rope(self, x, base):
        """x [tokens, heads, head]: pairs of neighbours for llama, of halves for gemma3."""
        half = self.head // 2
        angle = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
        c, s = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        out = np.empty_like(x)
        first, second = (slice(0, None, 2), slice(1, None, 2)) if self.arch == "llama" else (slice(0, half), slice(half, None))
        out[..., first] = x[..., first] * c - x[..., second] * s
        out[..., second] = x[..., first] * s + x[..., second] * c
        return out

    def attention(self, x, layer):
        b, n = f"blk.{layer}.", len(x)
        local = self.arch == "gemma3" and (layer + 1) % 6 != 0
        q = (x @ self.weight(b + "attn_q.weight").T).reshape(n, self.n_head, self.head)
        k = (x @ self.weight(b + "attn_k.weight").T).reshape(n, self.n_kv, self.head)
        v = (x @ self.weight(b + "attn_v.weight").T).reshape(n, self.n_kv, self.head)
        if self.arch == "gemma3":
            q, k = self.norm(q, b + "attn_q_norm.weight"), self.norm(k, b + "attn_k_norm.weight")
        base = 10000.0 if local else self.base
        q, k = self.rope(q, base), self.rope(k, base)
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        seen = (distance >= 0) & (distance < (self.key("attention.sliding_window") if local else n))
        out = np.empty_like(q)
        for h in range(self.n_head):
            g = h * self.n_kv // self.n_head
            score = np.where(seen, q[:, h] @ k[:, g].T / np.sqrt(self.head), -np.inf)
            p = np.exp(score - score.max(axis=1, keepdims=True))
            out[:, h] = p / p.sum(axis=1, keepdims=True) @ v[:, g]
        return out.reshape(n, -1) @ self.weight(b + "attn_output.weight").T

    def ffn(self, x, layer):
        b = f"blk.{layer}.ffn_"
        gate, up = x @ self.weight(b + "gate.weight").T, x @ self.weight(b + "up.weight").T
        if self.arch == "llama":
            gate = gate / (1 + np.exp(-gate))
        else:
            gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        return (gate * up) @ self.weight(b + "down.weight").T

    def logits(self, ids, n_last):
        """The logits of the last n_last of ids."""
        x = self.weight("token_embd.weight")[ids]
        if self.arch == "gemma3":
            x = x * np.sqrt(self.width)
        for layer in range(self.key("block_count")):
            b = f"blk.{layer}."
            y = self.attention(self.norm(x, b + "attn_norm.weight"), layer)
            x = x + (self.norm(y, b + "post_attention_norm.weight") if self.arch == "gemma3" else y)
            y = self.ffn(self.norm(x, b + "ffn_norm.weight"), layer)
            x = x + (self.norm(y, b + "post_ffw_norm.weight") if self.arch == "gemma3" else y)
        x = self.norm(x[-n_last:], "output_norm.weight")
        return x @ self.weight("output.weight" if "output.weight" in self.tensors else "token_embd.weight").T
