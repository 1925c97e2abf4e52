"""Writes tests/data/variants.safetensors: results of PyTorch in f64, for test_variants.c.

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

# -- rotary positions, as transformers writes them: Llama (halves), GPT-J (neighbours), GPT-NeoX (a part of the width) -------------
def rotate_half(x): return torch.cat((-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]), -1)
def rotate_every_two(x): return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

def turn(x, places, inv_freq, neighbours=False, width=None):       # x (b i h d), places (b i)
    width = width or x.shape[-1]
    angle = places[..., None] * inv_freq                           # (b i d/2)
    angle = angle.repeat_interleave(2, -1) if neighbours else torch.cat((angle, angle), -1)
    angle, rest, x = angle[:, :, None, :], x[..., width:], x[..., :width]
    x = x * angle.cos() + (rotate_every_two(x) if neighbours else rotate_half(x)) * angle.sin()
    return torch.cat((x, rest), -1)

def inv_freq(width, base=10000.0): return 1.0 / base ** (torch.arange(0, width, 2) / width)

b, i, h, d = 2, 5, 2, 8
places = torch.tensor([[0, 1, 2, 3, 4], [7, 3, 3, 0, 1000]])
put("rotary/places", places)
def rotary(case, f, **more):
    x = leaf(b, i, h, d)
    store(case, f(x, **more), x=x, **more)
rotary("rotary_llama", lambda x: turn(x, places, inv_freq(d, 500000.0)))
rotary("rotary_gptj", lambda x: turn(x, places, inv_freq(d), True))
rotary("rotary_neox", lambda x: turn(x, places, inv_freq(4), False, 4))
rotary("rotary_linear", lambda x: turn(x, places / 4.0, inv_freq(d)))
rotary("rotary_learned", lambda x, positions, frequencies: turn(x, positions, frequencies), positions=leaf(b, i), frequencies=leaf(d // 2))

# -- attention: norms of query and key, temperatures, further keys ---------------------------------------------------------------
def rms(x, gain, eps): return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain

def attention(case, groups=1, norm=None, eps=1e-5, base=None, temperature=None, sink=False, bias=True):
    m, h = 12, 4; d = m // h; g = h // groups
    xs = dict(x=leaf(2, 5, m), W_q=leaf(m, h, d), W_k=leaf(m, g, d), W_v=leaf(m, g, d), W_o=leaf(h, d, m))
    if bias: xs |= dict(b_q=leaf(h, d), b_k=leaf(g, d), b_v=leaf(g, d), b_o=leaf(m))
    if norm in ("rms", "layer"): xs |= dict(norm_q__gain=leaf(d), norm_k__gain=leaf(d))
    if norm == "layer" and bias: xs |= dict(norm_q__bias=leaf(d), norm_k__bias=leaf(d))
    if temperature: xs |= dict(temperature=leaf(h))
    if sink: xs |= dict(sink=leaf(h))
    def project(n):
        y = torch.einsum("bim,mhd->bihd", xs["x"], xs["W_" + n])
        if bias: y = y + xs["b_" + n]
        if n != "v":
            gain = xs.get(f"norm_{n}__gain")
            if norm == "rms": y = rms(y, gain, eps)
            if norm == "layer": y = F.layer_norm(y, (d,), gain, xs.get(f"norm_{n}__bias"), eps)
            if norm == "unit": y = F.normalize(y, dim=-1)
            if base: y = turn(y, torch.arange(5).expand(2, 5), inv_freq(2, base), False, 2)
        return y
    q, k, v = project("q"), project("k").repeat_interleave(groups, 2), project("v").repeat_interleave(groups, 2)
    s = torch.einsum("bihd,bjhd->bhij", q, k) / (1 if norm == "unit" else d ** 0.5)
    if temperature: s = s * xs["temperature"][:, None, None]
    s = s.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    if sink: s = torch.cat((s, xs["sink"][None, :, None, None].expand(2, h, 5, 1)), -1)   # GPT-OSS
    a = s.softmax(-1)[..., :5]
    y = torch.einsum("bhij,bjhd,hdm->bim", a, v, xs["W_o"])
    if bias: y = y + xs["b_o"]
    put(f"{case}/weights", a)
    store(case, y, **xs)

attention("qk_rms", 2, "rms", 1e-6, 10000.0, bias=False)           # Qwen3, but for its widths; the first 2 of 3 numbers turned
attention("qk_layer", 1, "layer")
attention("qk_unit", 1, "unit", temperature=True)
attention("qk_warm", 2, "rms", temperature=True)
attention("sinks", 2, sink=True)

def torch_mha(case, causal, **o):                                  # nn.MultiheadAttention
    m, h = 12, 3
    a = nn.MultiheadAttention(m, h, batch_first=True, **o)
    for p in a.parameters(): nn.init.normal_(p, std=0.5)
    x = leaf(2, 4, m)
    pad = torch.ones(2, 4, dtype=torch.bool); pad[1, 2:] = False
    if not causal: pad[0] = False                                  # a row of no key but the further ones
    mask = torch.ones(4, 4).triu(1).bool() if causal else None
    y, w = a(x, x, x, attn_mask=mask, key_padding_mask=None if causal else ~pad, average_attn_weights=False)
    seed = torch.randn_like(y)
    ps = dict(a.named_parameters())
    gs = dict(zip(["x", *ps], torch.autograd.grad((y * seed).sum(), [x, *ps.values()])))
    put(f"{case}/pad", pad); put(f"{case}/weights", w[..., :4]); put(f"{case}/y", y); put(f"{case}/seed", seed)
    put(f"{case}/x", x); put(f"{case}/g.x", gs["x"])
    for g, t in (("", ps), ("g.", gs)):
        for n, wt, bs in zip("qkv", t["in_proj_weight"].chunk(3), t["in_proj_bias"].chunk(3)):
            put(f"{case}/{g}W_{n}", wt.T.reshape(m, h, -1)); put(f"{case}/{g}b_{n}", bs.reshape(h, -1))
        put(f"{case}/{g}W_o", t["out_proj.weight"].T.reshape(h, -1, m)); put(f"{case}/{g}b_o", t["out_proj.bias"])
        if "bias_k" in t:
            put(f"{case}/{g}bias_k", t["bias_k"].reshape(h, -1)); put(f"{case}/{g}bias_v", t["bias_v"].reshape(h, -1))

torch_mha("bias_kv", True, add_bias_kv=True)
torch_mha("zero_attn", True, add_zero_attn=True)
torch_mha("bias_zero", False, add_bias_kv=True, add_zero_attn=True)

save_file(out, sys.argv[1])
