"""The verdicts of torch.autograd.gradcheck on the wrong gradients of docs/gradcheck.md: the same mistakes and sizes, in f64.
usage: python3 tests/reference/gallery.py      (torch 2.15)"""
import warnings

import torch
from torch.autograd import Function, gradcheck

torch.manual_seed(0)
warnings.simplefilter("ignore")


def row(forward, backward):
    """An operation with a backward of its own: backward(g, operands, result) -> cotangents."""
    class Row(Function):
        @staticmethod
        def forward(ctx, *x):
            y = forward(*x)
            ctx.save_for_backward(*x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            *x, y = ctx.saved_tensors
            return backward(g, x, y)
    return Row.apply


def normal(*size):
    return torch.randn(*size, dtype=torch.float64).requires_grad_()


def softmax(x):
    return torch.softmax(x, 1)


def softmax_rule(axis):
    return lambda g, x, y: y * (g - (g * y).sum(axis, keepdim=True))


def worked_example(cut):
    x = torch.arange(4.)[:, None] + torch.arange(1., 9)
    wq, wk, wv = ((torch.arange(8.)[:, None] + torch.tensor(d, dtype=torch.float64)) * 0.1 for d in ([1, 2, 3, 4], [2, 1, 4, 3], [3, 4, 1, 2]))

    def f(wq, wk, wv):
        q, k, v = x.double() @ (wq.detach() if cut else wq), x.double() @ wk, x.double() @ wv
        return softmax(q @ k.T / 2) @ v
    return f, tuple(w.double().requires_grad_() for w in (wq, wk, wv))


def stale(x):
    y = torch.exp(x)
    y.mul_(0.5)
    return y


def first_alias(g, x, y):
    d = 2 * g * x[0]
    d[1:] = 0
    return d


CASES = [
    ("sign", row(lambda a, b: a * b, lambda g, x, y: (g * x[1], -g * x[0])), (normal(3), normal(3))),
    ("factor", row(lambda x: x * x, lambda g, x, y: g * x[0]), (normal(2, 3),)),
    ("transposed", row(lambda a, b: a @ b, lambda g, x, y: (g @ x[1].T, x[0] @ g)), (normal(3, 3), normal(3, 3))),
    ("dropped term", row(softmax, lambda g, x, y: g * y), (normal(3, 4),)),
    ("wrong axis", row(softmax, softmax_rule(0)), (normal(3, 3),)),
    ("detached path", lambda x: x * torch.exp(x).detach(), (normal(4),)),
    ("aliasing counted once", row(lambda x: (x * x).sum(), first_alias), (normal(3).detach().expand(4, 3).requires_grad_(),)),
    ("aliasing, the right gradient", lambda x: (x * x).sum(), (normal(3).detach().expand(4, 3).requires_grad_(),)),
    ("broadcast not undone", row(lambda x, b: x + b, lambda g, x, y: (g, g)), (normal(3, 4), normal(4))),
    ("saturated", *worked_example(False)),
    ("saturated and cut", *worked_example(True)),
    ("kink", torch.relu, (torch.tensor([0., 1, -1], dtype=torch.float64, requires_grad=True),)),
    ("stale value", stale, (normal(4),)),
    ("a cast to f32", lambda x: torch.exp(x.float()).double(), (normal(3),)),
]

for name, f, xs in CASES:
    try:
        said = str(gradcheck(f, xs))
    except Exception as e:  # noqa: BLE001  whatever it raises is the answer
        said = f"{type(e).__name__}: {e}"
    print(f"-- {name}\n{said}\n")
