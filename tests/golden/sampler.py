#!/usr/bin/env python3
"""The tokens that test_sampler expects of two seeds, worked out from the definitions: prints the rows of its table."""
import math

M = (1 << 64) - 1


class Rng:
    """xoshiro256** seeded by splitmix64 (Blackman and Vigna)."""
    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = (seed + 0x9e3779b97f4a7c15) & M
            z = seed
            z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & M
            z = (z ^ z >> 27) * 0x94d049bb133111eb & M
            self.s.append(z ^ z >> 31)

    def u64(self):
        def rotl(x, k):
            return (x << k | x >> 64 - k) & M
        s = self.s
        result = rotl(s[1] * 5 & M, 7) * 9 & M
        t = s[1] << 17 & M
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
        return result


def sample(logits, rng, temperature, top_k, top_p, min_p):
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    best = logits[order[0]]
    shares = [math.exp(logits[i] - best) for i in order]
    kept, reached = [], 0.0
    for i, share in zip(order, shares):
        if kept and (reached >= top_p * sum(shares) or share < min_p):
            break
        kept.append(i)
        reached += share
    weights = [math.exp((logits[i] - best) / temperature) for i in kept]
    place = (rng.u64() >> 11) * 2.0 ** -53 * sum(weights)
    for i, weight in zip(kept, weights):
        if place < weight:
            return i
        place -= weight
    return kept[-1]


r = Rng(31)
logits = [(r.u64() * 4096 >> 64) / 512 for _ in range(1000)]
f32 = lambda x: __import__("struct").unpack("f", __import__("struct").pack("f", x))[0]
for seed in (0, 12345678901234567):
    r = Rng(seed)
    print("{" + ", ".join(str(sample(logits, r, f32(0.8), 40, f32(0.95), f32(0.05))) for _ in range(12)) + "},")
