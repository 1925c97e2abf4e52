"""Writes tests/data/variants.safetensors: what PyTorch computes, in f64, for test_variants.c.

    python tests/reference/variants.py tests/data/variants.safetensors        # torch 2.15.0, safetensors 0.8.0

Names: CASE/x, CASE/y, CASE/seed, CASE/PARAMETER, CASE/g.PARAMETER (gradient of sum(y * seed)). Weights are in eingrad's order:
W_q (m h d), W_o (h e m), linear (in out)."""
import sys, torch
from torch import nn
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
out = {}

def put(name, x): out[name] = x.detach().clone().contiguous()

def store(case, y, **xs):                                          # xs: leaves, in eingrad's layout
    seed = torch.randn_like(y)
    grads = torch.autograd.grad((y * seed).sum(), list(xs.values()), allow_unused=True)
    put(f"{case}/y", y); put(f"{case}/seed", seed)
    for (n, x), g in zip(xs.items(), grads):
        n = n.replace("__", ".")
        put(f"{case}/{n}", x)
        if g is not None: put(f"{case}/g.{n}", g)

def leaf(*dims): return torch.randn(*dims).requires_grad_()

# -- gated feed-forward: the first part goes through f ------------------------------------------------------------------------
def gated(case, f, width, bias):
    m = 6
    xs = dict(x=leaf(2, 3, m), gate__W=leaf(m, width), up__W=leaf(m, width), down__W=leaf(width, m))
    if bias: xs |= dict(gate__b=leaf(width), up__b=leaf(width), down__b=leaf(m))
    b = lambda n: xs.get(n)
    lin = lambda x, n: F.linear(x, xs[n + "__W"].T, b(n + "__b"))
    store(case, lin(f(lin(xs["x"], "gate")) * lin(xs["x"], "up"), "down"), **xs)

gated("swiglu", F.silu, 9, False)
gated("geglu", F.gelu, 7, True)
gated("reglu", F.relu, 5, True)
gated("glu", torch.sigmoid, 24, True)

save_file(out, sys.argv[1])
