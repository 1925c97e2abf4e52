"""Values, gradients and gradients of gradients by PyTorch for test_golden.c, in f64.
    python3 tests/reference/goldens.py tests/data/golden.safetensors      (pip install torch safetensors)
For each case: operands NAME/x0 …, the value NAME/y; with the cotangent c_k = cos(0.3 k) of y, the gradients NAME/d0 …; and with
s = sum_i <cos(0.3 k + i), d_i>, the gradients of s, NAME/e0 …. NAME is the public function without eg_."""
import sys
import torch
from torch.nn import functional as F
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
cases = {}


def wave(s, low, high, dims):
    n = 1
    for d in dims:
        n *= d
    return ((low + high) / 2 + (high - low) / 2 * torch.sin(0.7 * torch.arange(n) + s + .1)).reshape(dims)


def comb(y, phase=0.0):
    return torch.cos(0.3 * torch.arange(y.numel()) + phase).reshape(y.shape)


def case(name, f, *shapes, low=-2.0, high=2.0):
    """A shape is a tuple of sizes; or a tensor of integers or truths as it is."""
    xs = [s if torch.is_tensor(s) else wave(k, low, high, s) for k, s in enumerate(shapes)]
    floats = [x.requires_grad_() for x in xs if x.is_floating_point()]
    y = f(*xs)
    cases.update({f"{name}/x{k}": x for k, x in enumerate(xs)})
    cases[f"{name}/y"] = y
    if not y.is_floating_point() or not y.requires_grad:
        return
    def grad(of, seed):
        if not of.requires_grad:
            return [torch.zeros_like(x) for x in floats]
        g = torch.autograd.grad(of, floats, seed, create_graph=True, allow_unused=True)
        return [torch.zeros_like(x) if d is None else d for d, x in zip(g, floats)]
    first = grad(y, comb(y))
    s = sum((comb(d, i) * d).sum() for i, d in enumerate(first))
    second = grad(s, None)
    cases.update({f"{name}/d{k}": d for k, d in enumerate(first)})
    cases.update({f"{name}/e{k}": d for k, d in enumerate(second)})


# -- views and moves
A = (2, 3, 4)
case("permute", lambda x: x.permute(2, 0, 1).square(), A)
case("transpose", lambda x: x.transpose(0, 2).exp(), A)
case("view", lambda x: x.view(6, 4).square(), A)
case("reshape", lambda x: x.transpose(0, 1).reshape(3, 8).square(), A)
case("slice", lambda x: x[:, 1:, ::2].square(), A)
case("select", lambda x: x.select(1, 2).square(), A)
case("flip", lambda x: x.flip(2).square() * x, A)
case("expand", lambda x: x.expand(3, 4).square() * torch.arange(12.).reshape(3, 4), (1, 4))
case("squeeze", lambda x: x.squeeze(1).square(), (3, 1, 4))
case("unsqueeze", lambda x: x.unsqueeze(1).square(), (3, 4))
case("diagonal", lambda x: torch.diagonal(x, 1, 0, 1).square(), (3, 4, 2))
case("unfold", lambda x: x.unfold(1, 3, 2).square(), (2, 7))
case("contiguous", lambda x: x.transpose(0, 1).contiguous().square(), (3, 4))
case("copy", lambda x: x.clone().square(), (3, 4))
case("cast", lambda x: x.float().double(), (3, 4))
case("rearrange", lambda x: x.reshape(2, 3, 2, 2).permute(0, 2, 1, 3).square(), A)
case("concat", lambda a, b: torch.cat([a, b], 1).square(), (2, 3), (2, 2))
case("stack", lambda a, b: torch.stack([a, b], 1).square(), (2, 3), (2, 3))
case("pad", lambda x: F.pad(x, (1, 2), value=.5).square(), (2, 3))
case("tril", lambda x: x.tril(1).square(), (2, 4, 4))
case("triu", lambda x: x.triu(-1).square(), (4, 4))

# -- contraction
case("einsum", lambda a, b, c: torch.einsum("bij,bjk,kk->ik", a, b, c), (2, 3, 4), (2, 4, 2), (2, 2))
case("affine", lambda x, w, b: torch.einsum("ibm,mhd->bihd", x, w) + b, (2, 3, 4), (4, 2, 3), (2, 3))
case("on", lambda a, b: a * b[:, None, :].exp(), (2, 3, 4), (2, 4))
case("solve_triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), (2, 3, 3), (2, 3, 2), low=1., high=2.)

# -- reductions
case("sum", lambda x: x.sum((0, 2)).square(), A)
case("mean", lambda x: x.mean(1).square(), A)
case("prod", lambda x: x.prod(1), A)
case("max", lambda x: x.amax(1).square(), A)
case("min", lambda x: x.amin((0, 1)).square(), A)
case("logsumexp", lambda x: torch.logsumexp(x, (0, 2)), A)
case("var", lambda x: torch.var(x, (1, 2)), A)
case("std", lambda x: torch.std(x, (0, 2), correction=0), A)
case("pnorm", lambda x: torch.linalg.vector_norm(x, 3, (0, 2)), A)
case("argmax", lambda x: x.argmax(1), A)
case("argmin", lambda x: x.argmin(2), A)
case("any", lambda x: x.any(1), torch.tensor([[True, False], [False, False]]))
case("all", lambda x: x.all(0), torch.tensor([[True, False], [True, True]]))

# -- pointwise
M = (3, 4)
for name, low, high in [("neg", -2, 2), ("abs", -2, 2), ("sign", -2, 2), ("exp", -2, 2), ("exp2", -2, 2), ("expm1", -2, 2), ("log", .3, 3),
                        ("log2", .3, 3), ("log10", .3, 3), ("log1p", -.5, 3), ("sqrt", .3, 3), ("rsqrt", .3, 3), ("square", -2, 2),
                        ("sin", -2, 2), ("cos", -2, 2), ("tan", -1.2, 1.2), ("asin", -.9, .9), ("acos", -.9, .9), ("atan", -2, 2),
                        ("sinh", -2, 2), ("cosh", -2, 2), ("asinh", -2, 2), ("acosh", 1.2, 3), ("atanh", -.9, .9), ("tanh", -2, 2),
                        ("sigmoid", -4, 4), ("erf", -2, 2), ("relu", -2, 2), ("floor", -2.1, 2.2), ("ceil", -2.1, 2.2),
                        ("trunc", -2.1, 2.2), ("round", -2.1, 2.2)]:
    case(name, getattr(torch, name), M, low=low, high=high)
case("recip", torch.reciprocal, M, low=.3)
case("leaky_relu", lambda x: F.leaky_relu(x, .2), M)
case("elu", lambda x: F.elu(x, .7), M)
case("gelu", F.gelu, M, low=-4, high=4)
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), M, low=-4, high=4)
case("silu", F.silu, M, low=-4, high=4)
case("softplus", F.softplus, M, low=-4, high=4)
case("scale", lambda x: (-1.5 * x).square(), M)
case("shift", lambda x: (x - 1.5).square(), M)
case("powc", lambda x: x ** 2.5, M, low=.3)
case("clip", lambda x: x.clamp(-1, 1).square(), M)
case("isnan", torch.isnan, M)

# -- two operands
for name, f in [("add", lambda a, b: (a + b).square()), ("sub", lambda a, b: (a - b).square()), ("mul", torch.mul), ("div", torch.div),
                ("pow", torch.pow), ("atan2", torch.atan2), ("hypot", torch.hypot), ("logaddexp", torch.logaddexp), ("maximum", lambda a, b: torch.maximum(a, b).square()),
                ("minimum", lambda a, b: torch.minimum(a, b).square()), ("eq", torch.eq), ("ne", torch.ne), ("lt", torch.lt), ("le", torch.le),
                ("gt", torch.gt), ("ge", torch.ge)]:
    case(name, f, (2, 3, 4), (3, 1), low=.3)
T = torch.tensor([[True, False, True], [False, False, True]])
case("where", lambda c, a, b: torch.where(c, a.exp(), b.square()), T, (2, 3), (2, 1))
case("and", torch.logical_and, T, T[:, :1])
case("or", torch.logical_or, T, T[:, :1])
case("xor", torch.logical_xor, T, T[:, :1])
case("not", torch.logical_not, T)

# -- softmax, attention, norms, losses
def attention(q, k, v):
    s = torch.einsum("ibhd,jbhd->bhij", q, k) / 3 ** .5
    s = s.masked_fill(torch.ones(4, 4).triu(1) > 0, float("-inf"))
    return torch.einsum("bhij,jbhe->ibhe", s.softmax(-1), v)


case("softmax", lambda x: torch.softmax(x.permute(1, 0, 2).reshape(3, 8), -1).reshape(3, 2, 4).permute(1, 0, 2), A)
case("log_softmax", lambda x: torch.log_softmax(x, 1), A)
case("attention", attention, (4, 1, 2, 3), (4, 1, 2, 3), (4, 1, 2, 2))
case("layernorm", lambda x, w, b: F.layer_norm(x, (4,), w, b), A, (4,), (4,))
case("rmsnorm", lambda x, w: F.rms_norm(x, (4,), w, 1e-5), A, (4,))
case("cross_entropy", lambda x, t: F.cross_entropy(x, t, ignore_index=-100, label_smoothing=.1), (2, 5, 3), torch.tensor([[0, 4, 2], [1, -100, 3]]))
case("bce_logits", lambda x, t: F.binary_cross_entropy_with_logits(x, t), (3, 4), (3, 4))
case("mse", F.mse_loss, (3, 4), (3, 4))
case("huber", lambda a, b: F.huber_loss(a, b, delta=.9), (3, 4), (3, 4))
case("kl_div", lambda p, q: F.kl_div(q, p, reduction="none").sum(1), (3, 4), (3, 4), low=.1, high=.9)

# -- gather, order, recurrences
I = torch.tensor([[3, 0, 0], [1, 2, 3]])
def scan(a, b):
    y, h = [], torch.zeros(2, 3)
    for l in range(4):
        h = a[:, l] * h + b[:, l]
        y.append(h)
    return torch.stack(y, 1)


case("at", lambda x, i: x[i].square(), (4, 2), I)
case("scatter_add", lambda x, i, u: x.index_put((i,), u, accumulate=True).square(), (4, 2), I, (2, 3, 2))
case("one_hot", lambda i: F.one_hot(i, 5).double(), I)
case("cumsum", lambda x: x.cumsum(1).square(), A)
case("cummax", lambda x: x.cummax(1).values.square(), A)
case("cummin", lambda x: x.cummin(1).values.square(), A)
case("logcumsumexp", lambda x: x.logcumsumexp(1), A)
case("cumprod", lambda x: (x - x[0, 1, 2].detach()).cumprod(1), A)
case("linear_scan", scan, (2, 4, 3), (2, 4, 3))
case("sort", lambda x: x.sort(1, descending=True).values.square(), A)
case("argsort", lambda x: x.argsort(1), A)
case("topk", lambda x: x.topk(2, 2).values.square(), A)

save_file({k: v.detach().clone().contiguous() for k, v in cases.items()}, sys.argv[1], {"from": "tests/reference/goldens.py, PyTorch " + torch.__version__})
