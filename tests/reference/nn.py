"""Writes tests/data/nn.safetensors: results of PyTorch in f64, for test_nn.c and test_train.c.

    python tests/reference/nn.py tests/data/nn.safetensors        # torch 2.15.0, safetensors 0.8.0

Names: CASE/x (inputs), CASE/y (results), CASE/g.x (gradient of sum(y * CASE/seed) with respect to x). Weights are in eingrad's
order: W_q (m h d), W_o (h e m), linear (in out)."""
import sys, torch
from torch import nn
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
out = {}

def put(name, x): out[name] = x.detach().clone().contiguous()

def heads_in(w, h): return w.T.reshape(w.shape[1], h, -1)          # (h d, m) -> m h d
def heads_out(w, h): return w.T.reshape(h, -1, w.shape[0])         # (m, h e) -> h e m

def put_mha(case, a, h, grad):
    e, pick = a.embed_dim, (lambda p: p.grad) if grad else (lambda p: p)
    g = "g." if grad else ""
    ws = pick(a.in_proj_weight).chunk(3) if a._qkv_same_embed_dim else [pick(p) for p in (a.q_proj_weight, a.k_proj_weight, a.v_proj_weight)]
    for n, w, b in zip("qkv", ws, pick(a.in_proj_bias).chunk(3)):
        put(f"{case}/{g}W_{n}", heads_in(w, h)); put(f"{case}/{g}b_{n}", b.reshape(h, -1))
    put(f"{case}/{g}W_o", heads_out(pick(a.out_proj.weight), h)); put(f"{case}/{g}b_o", pick(a.out_proj.bias))

def scramble(module):                                              # biases are 0 and gains 1 otherwise
    for p in module.parameters(): nn.init.normal_(p, std=0.4)

# -- multi-head attention ---------------------------------------------------------------------------------------------------
def mha(case, self_attention, causal):
    b, i, j, m, h = 2, 4, 4 if self_attention else 5, 12, 3
    a = nn.MultiheadAttention(m, h, batch_first=True, **({} if self_attention else dict(kdim=10, vdim=8)))
    scramble(a)
    q = torch.randn(b, i, m, requires_grad=True)
    k, v = (q, q) if self_attention else (torch.randn(b, j, 10, requires_grad=True), torch.randn(b, j, 8, requires_grad=True))
    pad = torch.ones(b, j, dtype=torch.bool); pad[1, j - 2:] = False
    mask = torch.ones(i, j).triu(1).bool() if causal else None
    y, w = a(q, k, v, key_padding_mask=None if causal else ~pad, attn_mask=mask, need_weights=True, average_attn_weights=False)
    seed = torch.randn_like(y); (y * seed).sum().backward()
    for n, x in dict(q=q, k=k, v=v, seed=seed, y=y, weights=w, pad=pad, **{"g.q": q.grad, "g.k": k.grad, "g.v": v.grad}).items(): put(f"{case}/{n}", x)
    put_mha(case, a, h, False); put_mha(case, a, h, True)

mha("self", True, True)
mha("cross", False, False)

# -- a whole encoder block ---------------------------------------------------------------------------------------------------
def block(case, norm_first, activation):
    b, i, m, h, f = 2, 5, 12, 3, 20
    layer = nn.TransformerEncoderLayer(m, h, f, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first)
    scramble(layer)
    x = torch.randn(b, i, m, requires_grad=True)
    pad = torch.ones(b, i, dtype=torch.bool); pad[0, i - 2:] = False
    y = layer(x, src_key_padding_mask=~pad)
    seed = torch.randn_like(y); (y * seed).sum().backward()
    for n, t in dict(x=x, seed=seed, y=y, pad=pad, **{"g.x": x.grad}).items(): put(f"{case}/{n}", t)
    for g, pick in (("", lambda p: p), ("g.", lambda p: p.grad)):
        put_mha(f"{case}/self.", layer.self_attn, h, g != "")
        for ours, l in (("up", layer.linear1), ("down", layer.linear2)):
            put(f"{case}/ffn./{g}{ours}.W", pick(l.weight).T); put(f"{case}/ffn./{g}{ours}.b", pick(l.bias))
        for ours, l in (("norm_self", layer.norm1), ("norm_ffn", layer.norm2)):
            put(f"{case}/{ours}./{g}gain", pick(l.weight)); put(f"{case}/{ours}./{g}bias", pick(l.bias))

block("pre", True, "gelu")
block("post", False, "relu")

# -- optimisers: 20 steps with given gradients, two parameters --------------------------------------------------------------------
steps, sizes = 20, (7, 4)
start = [torch.randn(n) for n in sizes]
gradients = [[torch.randn(n) * (1 + t % 5) for n in sizes] for t in range(steps)]
for k, n in enumerate(sizes):
    put(f"opt/start{k}", start[k]); put(f"opt/g{k}", torch.stack([g[k] for g in gradients]))

def optimiser(case, make, clip_norm=None, clip_value=None, schedule=None, norm_type=2.0):
    ps = [nn.Parameter(x.clone()) for x in start]
    op = make(ps); sched = schedule(op) if schedule else None; seen = [[], []]
    for t in range(steps):
        for p, g in zip(ps, gradients[t]): p.grad = g.clone()
        if clip_value: nn.utils.clip_grad_value_(ps, clip_value)
        if clip_norm: nn.utils.clip_grad_norm_(ps, clip_norm, norm_type)
        op.step()
        if sched: sched.step()
        for k, p in enumerate(ps): seen[k].append(p.detach().clone())
    for k in range(2): put(f"opt/{case}{k}", torch.stack(seen[k]))

O, S = torch.optim, torch.optim.lr_scheduler
optimiser("sgd", lambda p: O.SGD(p, lr=0.1))
optimiser("sgd_decay", lambda p: O.SGD(p, lr=0.1, weight_decay=0.03))
optimiser("momentum", lambda p: O.SGD(p, lr=0.1, momentum=0.9))
optimiser("dampening", lambda p: O.SGD(p, lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.01))
optimiser("nesterov", lambda p: O.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.02))
optimiser("adam", lambda p: O.Adam(p, lr=0.05))
optimiser("adam_options", lambda p: O.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1))
optimiser("adamw", lambda p: O.AdamW(p, lr=0.05))
optimiser("adamw_decay", lambda p: O.AdamW(p, lr=0.05, weight_decay=0.2))
optimiser("clip_norm", lambda p: O.SGD(p, lr=0.1, momentum=0.9), clip_norm=4.0)
optimiser("clip_value", lambda p: O.Adam(p, lr=0.05), clip_value=0.7)
optimiser("clip_both", lambda p: O.AdamW(p, lr=0.05), clip_value=1.5, clip_norm=2.0)
optimiser("cosine", lambda p: O.AdamW(p, lr=0.05), schedule=lambda o: S.CosineAnnealingLR(o, T_max=20, eta_min=0.005))

optimiser("rmsprop", lambda p: O.RMSprop(p))
optimiser("rmsprop_momentum", lambda p: O.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-4, momentum=0.8, weight_decay=0.05))
optimiser("rmsprop_centered", lambda p: O.RMSprop(p, lr=0.02, alpha=0.95, momentum=0.5, centered=True))
optimiser("adagrad", lambda p: O.Adagrad(p))
optimiser("adagrad_options", lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.05, weight_decay=0.02, initial_accumulator_value=0.3, eps=1e-3))
optimiser("amsgrad", lambda p: O.Adam(p, lr=0.05, amsgrad=True, betas=(0.9, 0.7)))
optimiser("amsgrad_w", lambda p: O.AdamW(p, lr=0.05, amsgrad=True, betas=(0.9, 0.7), weight_decay=0.1))
optimiser("clip_infinity", lambda p: O.SGD(p, lr=0.1), clip_norm=1.5, norm_type=float("inf"))

def sparse(case, make):                                            # the second parameter gets no gradient in some steps
    ps = [nn.Parameter(x.clone()) for x in start]
    op = make(ps); seen = [[], []]
    for t in range(steps):
        for k, p in enumerate(ps): p.grad = None if k == 1 and t % 3 == 0 else gradients[t][k].clone()
        op.step()
        for k, p in enumerate(ps): seen[k].append(p.detach().clone())
    for k in range(2): put(f"opt/{case}{k}", torch.stack(seen[k]))

sparse("sparse_sgd", lambda p: O.SGD(p, lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.01))
sparse("sparse_adamw", lambda p: O.AdamW(p, lr=0.05, weight_decay=0.2))
sparse("sparse_adagrad", lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.05))

# -- schedules: lr of 20 steps, base 0.2 -------------------------------------------------------------------------------------------
def schedule(case, make):
    op = O.SGD([nn.Parameter(torch.zeros(1))], lr=0.2); s = make(op); lrs = []
    for _ in range(steps):
        lrs.append(op.param_groups[0]["lr"]); op.step(); s.step()
    put(f"schedule/{case}", torch.tensor(lrs))

def warm(o, w): return S.LambdaLR(o, lambda t: min(1, (t + 1) / w))
schedule("constant", lambda o: S.ConstantLR(o, factor=1))
schedule("warmup", lambda o: warm(o, 6))
schedule("linear", lambda o: S.LinearLR(o, start_factor=1, end_factor=0.25, total_iters=16))
schedule("cosine", lambda o: S.CosineAnnealingLR(o, T_max=19, eta_min=0.02))
schedule("warm_linear", lambda o: S.LambdaLR(o, lambda t: (t + 1) / 5 if t < 5 else 1 + (0.1 - 1) * min(1, (t - 5) / 12)))
schedule("warm_cosine", lambda o: S.SequentialLR(o, [warm(o, 4), S.CosineAnnealingLR(o, T_max=16, eta_min=0)], milestones=[4]))
schedule("step", lambda o: S.StepLR(o, step_size=6, gamma=0.3))
schedule("step_default", lambda o: S.StepLR(o, step_size=8))
schedule("multistep", lambda o: S.MultiStepLR(o, milestones=[3, 4, 11], gamma=0.5))
schedule("exponential", lambda o: S.ExponentialLR(o, gamma=0.9))
schedule("warm_step", lambda o: S.SequentialLR(o, [warm(o, 4), S.StepLR(o, step_size=5, gamma=0.5)], milestones=[4]))
schedule("warm_exponential", lambda o: S.SequentialLR(o, [warm(o, 3), S.ExponentialLR(o, gamma=0.8)], milestones=[3]))
schedule("noam", lambda o: S.LambdaLR(o, lambda t: 64 ** -0.5 * min((t + 1) ** -0.5, (t + 1) * 7 ** -1.5)))
def wsd(t, f): return (t + 1) / 3 if t < 3 else 1 if t < 11 else 0.1 + 0.9 * (1 - f(min(1, (t - 11) / 6)))
schedule("wsd", lambda o: S.LambdaLR(o, lambda t: wsd(t, lambda x: x)))
schedule("wsd_sqrt", lambda o: S.LambdaLR(o, lambda t: wsd(t, lambda x: x ** 0.5)))

save_file(out, sys.argv[1])
