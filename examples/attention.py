"""Attention from Python: pip install . && pip install numpy, then python examples/attention.py"""

import numpy

from fa4cpp import flash_attn_func

q = numpy.random.randn(1, 256, 8, 64).astype("float32")  # (batch, seqlen, heads, head_dim)
k = v = numpy.random.randn(1, 256, 2, 64).astype("float32")
out = flash_attn_func(q, k, v, causal=True)

print(f"out {out.shape}, its first row is the first value: {numpy.allclose(out[0, 0, 0], v[0, 0, 0], atol=1e-6)}")
