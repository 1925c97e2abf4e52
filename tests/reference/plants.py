"""How many of the wrong gradients of tests/test_gradcheck_wrong.c and tests/test_gradcheck_rare.c are detected by PyTorch's gradcheck (slow and
fast) and by JAX's check_grads: the same mistakes, the same sizes, f64, all at their defaults.
usage: python3 tests/reference/plants.py        (torch 2.15, jax 0.10)

Mistakes that a library cannot express are not counted: in JAX a rule cannot write, keep state or see a layout, and jvp and
vjp are one rule; neither has .uses. Mistakes of second order are also tested by gradgradcheck and order=2. The row of a class
has detected / planted for each of slow, fast and JAX."""
import math
import warnings

import jax
import jax.numpy as jnp
import numpy
import torch
from jax.test_util import check_grads
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

warnings.simplefilter("ignore")
torch.manual_seed(0)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

BASES = {
    "square": (lambda m, x: x * x, lambda m, x: 2 * x),
    "exp": (lambda m, x: m.exp(x), lambda m, x: m.exp(x)),
    "tanh": (lambda m, x: m.tanh(x), lambda m, x: 1 - m.tanh(x) ** 2),
    "sin": (lambda m, x: m.sin(x), lambda m, x: m.cos(x)),
    "cube": (lambda m, x: x * x * x, lambda m, x: 3 * x * x),
}


def times(m, x, wrong):
    """1 but where wrong, a list of (index, factor), says something else"""
    v = numpy.ones(x.shape)
    for k, factor in wrong:
        if k < v.size:
            v.reshape(-1)[k] = factor
    return torch.from_numpy(v) if m is torch else jnp.asarray(v)


def where(m, condition, x, factor):
    return m.where(condition, factor * m.ones_like(x), m.ones_like(x))


def if_(m, condition, r, factor):
    """factor · r if the condition, which may be an array of one truth, holds"""
    return m.where(condition, factor * r, r) if hasattr(condition, "dtype") else factor * r if condition else r


# rule(m, g, x, d): the wrong cotangent of y = f(x), d = f'(x), m is torch or jax.numpy
PLAIN = [("sign", lambda m, g, x, d: -g * d), ("factor", lambda m, g, x, d: 2 * g * d), ("zero", lambda m, g, x, d: 0 * g * d),
         ("1e-6", lambda m, g, x, d: g * d * (1 + 1e-6)), ("shifted", lambda m, g, x, d: g * d + 1e-4 * g),
         ("one element", lambda m, g, x, d: g * d * times(m, x, [(3, 1.001)])),
         ("NaN", lambda m, g, x, d: g * d * times(m, x, [(5, numpy.nan)]))]
SEVENTH = [("1.1e-7", lambda m, g, x, d: g * d * times(m, x, [(1, 1 + 1.1e-7)]))]
SMALL = [("flip", lambda m, g, x, d: g * d * times(m, x, [(1, -1)])), ("cut", lambda m, g, x, d: g * d * times(m, x, [(1, 0)])),
         ("twice", lambda m, g, x, d: g * d * times(m, x, [(2, 2)]))]
NOT_LINEAR = [("clip", lambda m, g, x, d: m.clip(g, -5, 5) * d), ("abs", lambda m, g, x, d: m.abs(g) * d),
              ("exp log", lambda m, g, x, d: m.exp(m.log(g)) * d), ("g = 0", lambda m, g, x, d: m.where(g == 0, m.ones_like(g), g) * d),
              ("normalised", lambda m, g, x, d: g * d * (1 + 1e-3 * m.abs(g.max()))),
              ("floor", lambda m, g, x, d: m.where(m.abs(g) < 1e-8, m.zeros_like(g), g) * d),
              ("squared", lambda m, g, x, d: g * m.abs(g) * d), ("biased", lambda m, g, x, d: g * d + 1e-3)]


def tail(n, factor):
    return lambda m, g, x, d: g * d * times(m, x, [(k, factor) for k in range(x.shape[0] // n * n, x.shape[0])])


def stop(m, x):
    return x.detach() if m is torch else jax.lax.stop_gradient(x)


SECOND = [("moved", lambda m, g, x, d: g * (d + (x - stop(m, x)) * stop(m, x)), 6)]
TAILS = [("8", tail(8, 0.5), 8), ("16", tail(16, 0), 16), ("block", lambda m, g, x, d: g * d * (1.25 if x.shape[0] >= 32 else 1), 6)]


def value(condition):
    return lambda m, g, x, d: g * d * where(m, condition(m, x), x, 1.5)


def whole(condition):
    return lambda m, g, x, d: if_(m, condition(m, g, x), g * d, 1.5)


def ordered(m, x, sign):
    f = x.reshape(-1)
    return (sign * (f[1:] - f[:-1]) >= 0).all()


def pairs(m, x):
    f = x.reshape(-1)
    return (f[1:] == f[:-1]).any()


def size(x):
    return math.prod(x.shape)


def strides(t):
    return t.stride()


RARE = [("negative", value(lambda m, x: x < 0)), ("-0", value(lambda m, x: (x == 0) & m.signbit(x))), ("0", value(lambda m, x: x == 0)),
        ("1", value(lambda m, x: x == 1)), ("whole", value(lambda m, x: (x == m.round(x)) & (x != 0))),
        ("above 4", value(lambda m, x: m.abs(x) > 4)), ("above 40", value(lambda m, x: m.abs(x) > 40)),
        ("below .01", value(lambda m, x: m.abs(x) < 0.01)), ("subnormal", value(lambda m, x: (x != 0) & (m.abs(x) < 2.3e-308))),
        ("neighbours", whole(lambda m, g, x: pairs(m, x))), ("equal", whole(lambda m, g, x: (x == x.reshape(-1)[0]).all())),
        ("ascending", whole(lambda m, g, x: ordered(m, x, 1))), ("descending", whole(lambda m, g, x: ordered(m, x, -1))),
        ("largest first", whole(lambda m, g, x: x.reshape(-1).argmax() == 0)), ("mean < 0", whole(lambda m, g, x: x.mean() < 0)),
        ("both signs", whole(lambda m, g, x: (x.min() < 0) & (x.max() > 0))), ("size 1", whole(lambda m, g, x: size(x) == 1)),
        ("odd size", whole(lambda m, g, x: size(x) % 2 == 1)),
        ("last of four", lambda m, g, x, d: g * d * times(m, x, [(size(x) - 1, 1.5)] if size(x) % 4 else [])),
        ("last of seven", lambda m, g, x, d: g * d * times(m, x, [(size(x) - 1, 1.5)] if size(x) % 8 == 7 else [])),
        ("above 100", whole(lambda m, g, x: size(x) > 100)),
        ("block", lambda m, g, x, d: g * d * times(m, x, [(k, 0) for k in range(63, size(x), 64)])),
        ("g = 1", whole(lambda m, g, x: (g == 1).all())), ("g equal", whole(lambda m, g, x: (g == g.reshape(-1)[0]).all() & (g.reshape(-1)[0] != 0))),
        ("g with -0", whole(lambda m, g, x: ((g == 0) & m.signbit(g)).any())),
        ("g whole", whole(lambda m, g, x: (g == m.round(g)).all() & (g.max() > 1))),
        ("half of g", lambda m, g, x, d: (0.5 * g + 0.5 * stop(m, g)) * d, "second"),
        ("second order", lambda m, g, x, d: g * (d + (d - stop(m, d))), "second")]
RARE_TORCH = [("padded", whole(lambda m, g, x: strides(x)[1] == 1 and strides(x)[0] > x.shape[1])),
              ("g padded", whole(lambda m, g, x: strides(g)[1] == 1 and strides(g)[0] > x.shape[1])),
              ("third call", None), ("draws", lambda m, g, x, d: g * d * (1 + 1e-3 * torch.rand(x.shape, dtype=x.dtype)))]


# -- one row in each library --------------------------------------------------------------------
def torch_row(f, df, rule, before=None):
    class Row(Function):
        @staticmethod
        def forward(ctx, x):
            y = f(torch, x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            if before:
                before(g, x, y)
            return rule(torch, g, x, df(torch, x))
    return Row.apply


def jax_row(f, df, rule):
    @jax.custom_vjp
    def row(x):
        return f(jnp, x)
    row.defvjp(lambda x: (f(jnp, x), x), lambda x, g: (rule(jnp, g, x, df(jnp, x)),))
    return row


def caught_torch(f, xs, fast=False, second=False):
    try:
        good = gradcheck(f, xs, fast_mode=fast)
        return not (good and (not second or gradgradcheck(f, xs, fast_mode=fast)))
    except GradcheckError:
        return True
    except RuntimeError as e:  # what backward may not do is refused by autograd itself
        print("refused:", str(e).splitlines()[0][:100])
        return True


def caught_jax(f, xs, second=False):
    try:
        check_grads(f, xs, order=2 if second else 1, modes=["rev"])
        return False
    except AssertionError:
        return True


count = {}


def note(name, slow=None, fast=None, jaxed=None):
    row = count.setdefault(name, [[0, 0], [0, 0], [0, 0]])
    for k, said in enumerate((slow, fast, jaxed)):
        if said is not None:
            row[k][0] += said
            row[k][1] += 1


def ask(name, f, df, rule, x, scale=None, second=False, jaxed=True, before=None):
    """the row on x, times scale"""
    one, other = torch_row(f, df, rule, before), jax_row(f, df, rule)
    s = None if scale is None else torch.from_numpy(scale)

    def in_torch(t):
        return one(t) if s is None else one(t) * s

    def in_jax(t):
        return other(t) if scale is None else other(t) * scale
    t = (torch.from_numpy(x).requires_grad_(),)
    note(name, caught_torch(in_torch, t, False, second), caught_torch(in_torch, t, True, second),
         caught_jax(in_jax, (jnp.asarray(x),), second) if jaxed else None)


random = numpy.random.default_rng(0)


def drawn(*size):
    return random.uniform(0.3, 1.2, size)


for f, df in BASES.values():
    t = (torch.from_numpy(drawn(6)).requires_grad_(),)
    assert not caught_torch(torch_row(f, df, lambda m, g, x, d: g * d), t, second=True)
    assert not caught_jax(jax_row(f, df, lambda m, g, x, d: g * d), (jnp.asarray(drawn(6)),), True)
    for _, rule in PLAIN:
        ask("plain", f, df, rule, drawn(6))
    for _, rule in SEVENTH:
        ask("one element wrong by 1.1e-7", f, df, rule, drawn(6))
    for _, rule in SMALL:
        ask("1 a small element", f, df, rule, drawn(4), numpy.array([1e5, 1e-5, 1e-5, 1]))
    for _, rule in NOT_LINEAR:
        ask("4 not linear in g", f, df, rule, drawn(6))
    for _, rule, n in TAILS:
        ask("9 tails", f, df, rule, drawn(n))
    for _, rule, n in SECOND:
        ask("9 second order", f, df, rule, drawn(n), second=True)
    ask("9 second order", f, df, lambda m, g, x, d, df=df: g * df(m, stop(m, x)), drawn(6), second=True)

    # what JAX cannot express: writes, raw memory, state
    def add(which):
        def write(*all):
            all[which].data.view(-1)[0] += 0.25
        return write
    for which in range(3):
        ask("5 writes", f, df, lambda m, g, x, d: g * d, drawn(6), jaxed=False, before=add(which))
    ask("4 not linear in g", f, df, lambda m, g, x, d: torch.as_strided(g, g.shape, (1,)) * d, drawn(6), jaxed=False)
    state = {"last": None, "first": None}

    def keep(m, x, f=f, state=state):
        state["last"] = x.detach().clone()
        state["first"] = state["last"] if state["first"] is None else state["first"]
        return f(m, x)
    for kept in "last", "first":
        state["first"] = None
        t = (torch.from_numpy(drawn(6)).requires_grad_(),)
        row = torch_row(keep, df, lambda m, g, x, d, df=df, kept=kept, state=state: g * df(m, state[kept]))
        note("6 state", caught_torch(row, t), caught_torch(row, t, True))
    seen = set()

    def twice(m, g, x, d, seen=seen):
        again = x.data_ptr() in seen
        seen.add(x.data_ptr())
        return g * d * (1.5 if again else 1)
    ask("6 state", f, df, twice, drawn(6), jaxed=False)

    # two operands: y = f(a) b, the jvp wrong; the same tensor twice
    for kind in "alone", "first", "second", "sign", "same":
        class Two(Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.a, ctx.b, ctx.same = a, b, a is b
                return f(torch, a) * b

            @staticmethod
            def backward(ctx, g):
                return g * ctx.b * df(torch, ctx.a) * (1.5 if kind == "same" and ctx.same else 1), g * f(torch, ctx.a)

            @staticmethod
            def jvp(ctx, da, db):
                p = None if da is None else da * ctx.b * df(torch, ctx.a)
                q = None if db is None else db * f(torch, ctx.a)
                alone = p is None or q is None
                if kind == "sign" and q is not None:
                    q = -q
                if p is not None and alone and kind in ("first", "alone"):
                    p = p * 2
                if q is not None and alone and kind in ("second", "alone"):
                    q = q * 2
                return p + q if p is not None and q is not None else q if p is None else p
        t = tuple(torch.from_numpy(drawn(6)).requires_grad_() for _ in range(2))
        said = []
        for fast in False, True:
            try:
                said.append(not gradcheck(Two.apply, t, fast_mode=fast, check_forward_ad=kind != "same"))
            except GradcheckError:
                said.append(True)
        note("9 one tensor twice" if kind == "same" else "7 jvp", *said)


# -- functions ----------------------------------------------------------------------------------
def vjp_jax(f, rule, n):
    row = jax.custom_vjp(f)
    row.defvjp(lambda *x: (f(*x), x), lambda x, g: rule(jnp, g, *x))
    return row


def vjp_torch(f, rule, n):
    class Row(Function):
        @staticmethod
        def forward(ctx, *x):
            ctx.save_for_backward(*x)
            return f(*x)

        @staticmethod
        def backward(ctx, g):
            return rule(torch, g, *ctx.saved_tensors)
    return Row.apply


def function(name, f, rule, *xs):
    n = len(xs)
    one, other = vjp_torch(lambda *x: f(torch, *x), rule, n), vjp_jax(lambda *x: f(jnp, *x), rule, n)
    t = tuple(torch.tensor(x, dtype=torch.float64).requires_grad_() for x in xs)
    note(name, caught_torch(one, t), caught_torch(one, t, True), caught_jax(other, tuple(jnp.asarray(x, dtype=float) for x in xs)))


INPUT = [[1., 2, 3], [-1, 0, 1]]


def lora(m, a, b):
    return (torch.tensor(INPUT, dtype=torch.float64) if m is torch else jnp.asarray(INPUT)) @ a @ b


def lora_rule(m, g, a, b):
    u = torch.tensor(INPUT, dtype=torch.float64) if m is torch else jnp.asarray(INPUT)
    return 2 * (u.T @ g @ b.T), (u @ a).T @ g


THREE = "3 a factor of 0 or 1"
function(THREE, lora, lora_rule, [[1, 2], [3, -1], [.5, 1]], [[0, 0, 0], [0, 0, 0]])
function(THREE, lora, lora_rule, [[0, 0], [0, 0], [0, 0]], [[1, 2, 0], [0, 1, 3]])
for matrix in [[1, 2, 3], [2, 4, 5], [3, 5, 6]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]:
    function(THREE, lambda m, a, v: a @ v, lambda m, g, a, v: (g[:, None] * v[None], a @ g), matrix, [1, 2, 3])
for x in [1, 2, 3], [0, 0, 0]:
    function(THREE, lambda m, a, v: a * v, lambda m, g, a, v: (g, g * a), x, [1, 1, 1])
function(THREE, lambda m, a: m.tanh(a), lambda m, g, a: (g,), [0, 0, 0])
ODD = "straight through, ties, detached"
function(ODD, lambda m, a: m.round(a), lambda m, g, a: (g,), [1.4, .3, -2.2])
function(ODD, lambda m, a: a.max(), lambda m, g, a: (g * (a == a.max()),), [1, 3, 3, 2])
function(ODD, lambda m, a: a.max(), lambda m, g, a: (g * (a == a.max()),), [3, 3, 3, 2])
for m, x in (torch, torch.tensor([.1, .2, .3], dtype=torch.float64, requires_grad=True)), (jnp, jnp.array([.1, .2, .3])):
    def detached(x, m=m):
        return x * stop(m, m.tanh(x))
    if m is torch:
        note(ODD, caught_torch(detached, (x,)), caught_torch(detached, (x,), True))
    else:
        note(ODD, jaxed=caught_jax(detached, (x,)))


def cut_where_large(m, x):
    return m.where(m.abs(x) > 20, stop(m, m.tanh(0.01 * x)), m.tanh(0.01 * x))


t = (torch.tensor([1., 2, 30, 25], dtype=torch.float64, requires_grad=True),)
note("2 cut", caught_torch(lambda x: cut_where_large(torch, x), t), caught_torch(lambda x: cut_where_large(torch, x), t, True),
     caught_jax(lambda x: cut_where_large(jnp, x), (jnp.array([1., 2, 30, 25]),)))
EIGHT = "8 wrong in f32 alone"
for naive in (lambda m, x: m.exp(x) / m.exp(x).sum(), lambda m, x: m.log(m.exp(x).sum()), lambda m, x: m.exp(x) / (1 + m.exp(x))):
    x = [100., 99, 98]
    t = (torch.tensor(x, dtype=torch.float64, requires_grad=True),)
    note(EIGHT, caught_torch(lambda x, n=naive: n(torch, x), t), caught_torch(lambda x, n=naive: n(torch, x), t, True),
         caught_jax(lambda x, n=naive: n(jnp, x), (jnp.array(x),)))

# -- rare ---------------------------------------------------------------------------------------
sine = (lambda m, x: 2 * m.sin(x), lambda m, x: 2 * m.cos(x))
for name, rule, *second in RARE:
    for outer in False, True:
        f = sine[0]
        x = random.uniform(0.3, 0.9, (4, 2))
        one, other = torch_row(*sine, rule), jax_row(*sine, rule)

        def in_torch(t, one=one, outer=outer):
            return one(t + 0.1) ** 2 if outer else one(t)

        def in_jax(t, other=other, outer=outer):
            return other(t + 0.1) ** 2 if outer else other(t)
        t = (torch.from_numpy(x).requires_grad_(),)
        second_too = bool(second)
        note("rare", caught_torch(in_torch, t, False, second_too), caught_torch(in_torch, t, True, second_too),
             caught_jax(in_jax, (jnp.asarray(x),), second_too))
for name, rule in RARE_TORCH:
    calls = [0]

    def third(m, g, x, d, calls=calls):
        calls[0] += 1
        return g * d * (1.5 if calls[0] > 3 else 1)
    for outer in False, True:
        calls[0] = 0
        one = torch_row(*sine, rule or third)
        t = (torch.from_numpy(random.uniform(0.3, 0.9, (4, 2))).requires_grad_(),)

        def in_torch(t, one=one, outer=outer):
            return one(t + 0.1) ** 2 if outer else one(t)
        note("rare", caught_torch(in_torch, t), caught_torch(in_torch, t, True))

print(f"torch {torch.__version__}, jax {jax.__version__}")
total = [[0, 0], [0, 0], [0, 0]]
for name, row in list(count.items()):
    print(f"| {name} | " + " | ".join(f"{a}/{b}" if b else "–" for a, b in row) + " |")
    for k in range(3):
        total[k] = [total[k][0] + row[k][0], total[k][1] + row[k][1]]
print("| all | " + " | ".join(f"{a}/{b}" for a, b in total) + " |")
