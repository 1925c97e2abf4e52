"""NumPy or PyTorch for `make bench`: reads a line, answers with a line (peers.c, bench_ask).
usage: peers.py NumPy|PyTorch THREADS    or --to-goal THREADS SEED: trains `reverse` to 99 %"""
import math
import os
import sys
import time

try:
    import numpy
except ImportError:
    numpy = None
try:
    if sys.argv[1] == "NumPy":
        raise ImportError
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

seconds = time.process_time if os.environ.get("BENCH_PROCESSOR_TIME") else time.perf_counter    # bench.c, --processor-time
cases = {}                                      # peer → function without arguments


def numpys_openblas():
    folder = os.path.join(os.path.dirname(os.path.dirname(numpy.__file__)), "numpy.libs") if numpy else ""
    names = [n for n in os.listdir(folder) if "openblas" in n] if os.path.isdir(folder) else []
    return os.path.join(folder, names[0]) if names else "-"


# -- contraction ----------------------------------------------------------------------------------------------------------------
def numbers(count):                             # the same as number() in einsum.c
    return ((numpy.arange(count, dtype=numpy.uint64) * 2654435761 & 0xFFFFFFFF) >> 8).astype(numpy.float64) / 16777216 - 0.5


def array(shape, view, dtype):
    dims = [int(n) for n in shape.split("x")] if shape else []
    base = list(dims)
    if view == "w":
        base = [n + 16 for n in dims]
    if view == "2":
        base[-1] *= 2
    if view == "p":
        base = dims[2:] + dims[:2]
    x = numbers(math.prod(base)).astype(dtype).reshape(base)
    if view == "p":
        return x.transpose(2, 3, 0, 1)
    if view == "w":
        return x[tuple(slice(8, 8 + n) for n in dims)]
    return x[..., ::2] if view == "2" else x


def einsum(dtype, spec, *operands):             # a transposition that would be a view is made real
    a = [array(*o.split("/"), {"f32": "float32", "f64": "float64"}[dtype]) for o in operands]
    if torch:
        t = [torch.from_numpy(x) for x in a]
        z = torch.einsum(spec, *t)
        view = any(z.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in t)
        cases["PyTorch"] = (lambda: torch.einsum(spec, *t).contiguous()) if view else (lambda: torch.einsum(spec, *t))
        y = z.numpy()
    else:
        y = numpy.einsum(spec, *a, optimize=True)
        view = any(numpy.shares_memory(y, x) for x in a)
        cases["NumPy"] = (lambda: numpy.ascontiguousarray(numpy.einsum(spec, *a, optimize=True))) if view else (
            lambda: numpy.einsum(spec, *a, optimize=True))
    return "sum %.17g" % numpy.dot(y.astype(numpy.float64).reshape(-1), numbers(y.size))


# -- small operations, rows -----------------------------------------------------------------------------------------------------
def graph20(x, w, b):                           # the same as graph20() in model.c
    h = x
    for k in range(4):
        h = torch.sigmoid(torch.tanh(h * w + b))
        h = h - x if k < 3 else h.sum()
    return h


def hvp():                                      # attention() in model.c; the faster of two ways: reverse over reverse, forward over reverse
    x = torch.rand(8, 16, 64) * 2 - 1
    w, v = ([torch.rand(shape) * .4 - .2 for shape in [(64, 4, 16)] * 3 + [(4, 16, 64)]] for _ in range(2))

    def loss(q, k, u, o):
        a = torch.softmax(torch.einsum("bihd,bjhd->bhij", torch.einsum("bim,mhd->bihd", x, q), torch.einsum("bim,mhd->bihd", x, k)) * .25, -1)
        return torch.einsum("bhij,bjhd,hdm->bim", a, torch.einsum("bim,mhd->bihd", x, u), o).square().sum()

    def twice():
        p = [t.requires_grad_() for t in w]
        return torch.autograd.grad(torch.autograd.grad(loss(*p), p, create_graph=True), p, v)

    def forward():
        return torch.func.jvp(torch.func.grad(loss, (0, 1, 2, 3)), tuple(t.detach() for t in w), tuple(v))

    def cost(f):
        f()
        start = seconds()
        for _ in range(20):
            f()
        return seconds() - start
    return min(twice, forward, key=cost)


def rows(name, dims, gradient):
    x = torch.rand(dims) * 2 - 1
    x.requires_grad_(gradient)
    gain, bias = torch.ones(dims[-1], requires_grad=gradient), torch.zeros(dims[-1], requires_grad=gradient)
    f = {"softmax": lambda: torch.softmax(x, -1), "gelu": lambda: F.gelu(x),
         "log_softmax": lambda: torch.log_softmax(x, -1), "cumsum": lambda: torch.cumsum(x, -1),
         "sort": lambda: torch.sort(x, -1).values, "topk": lambda: torch.topk(x, 8).values,
         "layernorm": lambda: F.layer_norm(x, (dims[-1],), gain, bias)}[name]
    if not gradient:
        return f
    over, g = [x, gain, bias] if name == "layernorm" else [x], torch.rand(f().shape)
    return lambda: torch.autograd.grad(f(), over, g)


def sdpa(length, causal, gradient):             # the same as attention.c: 8 heads of 64, stored as the products make them
    x = [torch.randn(1, length, 8, 64, requires_grad=gradient) for _ in range(3)]
    g = torch.randn(1, 8, length, 64)

    def forward():
        return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in x), is_causal=causal)
    return (lambda: torch.autograd.grad(forward(), x, g)) if gradient else forward


def flex(kind):                                 # score.c: compiled, forward alone
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    n, heads, width = 2048, 4, 32
    q, k, v = (torch.randn(1, heads, n, width) for _ in range(3))
    slopes, table, gates = torch.rand(heads) * .1, torch.randn(heads, 128), torch.rand(heads, n).neg().mul(.1).cumsum(-1)
    each = int(kind[9:]) if kind.startswith("documents") else n
    document = torch.arange(n) // each
    score = {"cap": lambda s, b, h, i, j: 30 * torch.tanh(s / 30), "alibi": lambda s, b, h, i, j: s - slopes[h] * (i - j),
             "table": lambda s, b, h, i, j: s + table[h, torch.clamp(i - j, 0, 127)],
             "gates": lambda s, b, h, i, j: s + gates[h, i] - gates[h, j]}.get(kind)
    mask = create_block_mask(lambda b, h, i, j: (j <= i) & (document[i] == document[j]), None, None, n, n, device="cpu")
    compiled = torch.compile(flex_attention)

    def forward():
        with torch.no_grad():
            return compiled(q, k, v, score_mod=score, block_mask=mask)
    try:
        forward()
    except Exception as e:                      # no compiler, or none that it likes
        print(f"peers.py: flex_attention: {' '.join(str(e).split())[:200]}", file=sys.stderr)
        return "no"
    cases["PyTorch"] = forward
    return "ok"


def module(kind, batch, length, width, heads, compiled):        # module.c
    nn = torch.nn
    x, g = (torch.randn(batch, length, width) for _ in range(2))
    x.requires_grad_()

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))

    def both(m, f):
        over = [x, *m.parameters()]
        return lambda: torch.autograd.grad(f(x), over, g)
    if kind == "attention":
        m = nn.MultiheadAttention(width, heads, batch_first=True)
        cases["PyTorch"] = both(m, lambda x: m(x, x, x, need_weights=False)[0])
        a = Attention()
        cases["SDPA"] = both(a, a)
        if compiled:
            try:
                c = torch.compile(a)
                cases["compiled"] = both(a, c)
                cases["compiled"]()
            except Exception as e:              # no compiler, or none that it likes
                cases.pop("compiled", None)
                print(f"peers.py: torch.compile: {' '.join(str(e).split())[:200]}", file=sys.stderr)
    else:
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0, activation="gelu", batch_first=True, norm_first=True)
        m = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        cases["PyTorch"] = both(m, m)
    return "ok " + " ".join(cases)


# -- the model of eg_transformer: pre-norm blocks, learned positions, exact GELU ------------------------------------------------
def model(vocabulary, length, layers, width, heads):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_self, self.norm_ffn = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, keep):
            b, n, _ = x.shape
            q, k, v = self.qkv(self.norm_self(x)).view(b, n, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, is_causal=keep is None)
            x = x + self.out(y.transpose(1, 2).reshape(b, n, width))
            return x + self.down(F.gelu(self.up(self.norm_ffn(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width) * 0.5)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, index, keep):
            x = self.tokens(index) + self.positions[:index.shape[1]]
            for block in self.blocks:
                x = block(x, keep)
            return self.logits(self.norm(x))

    m = Model()
    for name, p in m.named_parameters():        # as eg_transformer begins
        if name.endswith("weight") and p.dim() == 2:
            torch.nn.init.normal_(p, 0, 0.5) if "tokens" in name else torch.nn.init.xavier_uniform_(p)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)
    for block in m.blocks:
        for part in block.qkv.weight.data.chunk(3):
            torch.nn.init.xavier_uniform_(part)
    return m


def step(m, optimiser, index, target):
    keep = (index != 0)[:, None, None, :]
    logits = m(index, keep)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    return logits


def batch(generator, count):                    # `reverse`: 4 to 16 of 26 letters, 0 pads, letters from 3
    length = torch.randint(4, 17, (count, 1), generator=generator)
    place = torch.arange(16)[None, :]
    index = torch.where(place < length, torch.randint(3, 29, (count, 16), generator=generator), 0)
    back = (length - 1 - place).clamp(min=0)
    return index, torch.where(place < length, index.gather(1, back), 0)


def train(fused):
    m = model(29, 16, 2, 64, 4)
    o = torch.optim.Adam(m.parameters(), lr=3e-3, fused=fused)
    index, target = batch(torch.Generator().manual_seed(1), 64)
    return lambda: step(m, o, index, target)


def characters(fused):                          # the twin of characters() in model.c
    m = model(65, 128, 6, 384, 6)
    o = torch.optim.Adam(m.parameters(), lr=1e-3, fused=fused)
    text = torch.randint(3, 65, (8, 129), generator=torch.Generator().manual_seed(1))
    index, target = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def one():
        loss = F.cross_entropy(m(index, None).flatten(0, 1), target.flatten())
        o.zero_grad(set_to_none=True)
        loss.backward()
        o.step()
    return one


def exact(logits, target):
    return ((logits.argmax(-1) == target) | (target == 0)).all(1).float().mean().item()


def to_goal(threads, seed):                     # with eg_trainer's schedule and evaluations
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    generator, steps, warm, lr = torch.Generator().manual_seed(seed), 600, 50, 3e-3
    m = model(29, 16, 2, 64, 4)
    o = torch.optim.Adam(m.parameters(), lr=lr)
    test = batch(torch.Generator().manual_seed(12345), 1000)
    for s in range(steps):
        t = min(1.0, (s - warm) / (steps - warm))
        factor = (s + 1) / warm if s < warm else 0.05 + 0.95 * (1 + math.cos(math.pi * t)) / 2
        for group in o.param_groups:
            group["lr"] = lr * factor
        index, target = batch(generator, 64)
        logits = step(m, o, index, target)
        if (s + 1) % 25 == 0 and exact(logits, target) >= 0.94:
            with torch.no_grad():
                share = exact(m(test[0], (test[0] != 0)[:, None, None, :]), test[1])
            if share >= 0.99:
                break
    with torch.no_grad():
        share = exact(m(test[0], (test[0] != 0)[:, None, None, :]), test[1])
    print("steps %d exact %.3f" % (s + 1, share))


def op(name, *words):
    if name == "add":
        x, y = torch.rand(64, requires_grad=words[0] == "recorded"), torch.rand(64)
        cases["PyTorch"] = lambda: x + y
    elif name == "graph20":
        leaves = [torch.rand(64, requires_grad=True) for _ in range(3)]
        cases["PyTorch"] = lambda: torch.autograd.grad(graph20(*leaves), leaves)
    elif name == "hvp":
        cases["PyTorch"] = hvp()
    elif name == "rows":
        cases["PyTorch"] = rows(words[0], [int(n) for n in words[1].split("x")], words[2] == "gradient")
    elif name == "sdpa":
        cases["PyTorch"] = sdpa(int(words[0]), words[1] == "causal", words[2] == "gradient")
    elif name == "flex":
        return flex(words[0])
    elif name == "module":
        return module(words[0], *(int(n) for n in words[1:]))
    elif name == "train" and words:
        cases["PyTorch"] = characters(None)
        cases["PyTorch, fused Adam"] = characters(True)
    elif name == "train":
        cases["PyTorch"] = train(None)
        cases["PyTorch, fused Adam"] = train(True)
    return "ok"


# -- the line protocol ------------------------------------------------------------------------------------------------------------
def run(peer, length):                          # bench_turn() in bench.c
    f, best, count = cases[peer], math.inf, 1
    start = seconds()
    f()
    t = seconds()
    end = t + length
    if t - start > 0.1:
        return "best %.6g" % (t - start)
    while t < end or best == math.inf:
        before = t
        for _ in range(count):
            f()
        t = seconds()
        if t - before < 2e-4 and count < 1 << 20:
            count *= 2
            continue
        best = min(best, (t - before) / count)
    return "best %.6g" % best


def answer(words):
    if words[0] == "hello":
        module = numpy and (numpy if sys.argv[1] == "NumPy" else torch)
        return module.__version__ if module else "-"
    if words[0] == "openblas":
        return numpys_openblas()
    if words[0] == "run":
        return run(" ".join(words[1:-1]), float(words[-1]))
    cases.clear()
    return einsum(*words[1:]) if words[0] == "einsum" else op(*words[1:])


def serve(threads):
    if torch:
        torch.set_num_threads(threads)
    for line in sys.stdin:
        try:
            reply = answer(line.split())
        except Exception as e:                  # whatever it was, the other side waits for a line
            reply = "error " + " ".join(str(e).split())
        print(reply, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--to-goal":
        to_goal(int(sys.argv[2]), int(sys.argv[3]))
    else:
        serve(int(sys.argv[2]))
