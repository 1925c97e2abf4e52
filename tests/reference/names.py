"""Writes tests/data/names.safetensors: modules of PyTorch, with the names that PyTorch and tutorials give their parameters, and
their results in f64, for test_names.c.

    python tests/reference/names.py tests/data/names.safetensors        # torch 2.15.0, safetensors 0.8.0

CASE/state.NAME: the state_dict; CASE/in.x …: inputs; CASE/out.y: result; CASE/out.seed and CASE/grad.x: gradient of sum(y · seed)."""
import sys, math, torch
from torch import nn
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
torch.manual_seed(3)
out = {}
M, H, F, B, I, J = 8, 2, 12, 2, 3, 4

def put(case, kind, **xs):
    for n, x in xs.items(): out[f"{case}/{kind}.{n}"] = x.detach().clone().contiguous()

def case(name, module, f, *inputs):
    for p in module.parameters(): nn.init.normal_(p, std=0.4)
    xs = [x.clone().requires_grad_() for x in inputs]
    y = f(module, *xs)
    seed = torch.randn_like(y); (y * seed).sum().backward()
    put(name, "state", **module.state_dict())
    put(name, "in", **{n: x for n, x in zip("xkv", xs)})
    put(name, "out", y=y, seed=seed)
    put(name, "grad", **{n: x.grad for n, x in zip("xkv", xs)})

# -- PyTorch's own --------------------------------------------------------------------------------------------------------------
x, k, v = torch.randn(B, I, M), torch.randn(B, J, M), torch.randn(B, J, M)
case("mha", nn.MultiheadAttention(M, H, batch_first=True), lambda m, x, k, v: m(x, k, v)[0], x, k, v)
case("mha_widths", nn.MultiheadAttention(M, H, batch_first=True, kdim=5, vdim=6), lambda m, x, k, v: m(x, k, v)[0], x, torch.randn(B, J, 5), torch.randn(B, J, 6))
case("mha_first", nn.MultiheadAttention(M, H, bias=False), lambda m, x: m(x, x, x)[0], torch.randn(I, B, M))

def layer(kind, pre, act, first): return kind(M, H, F, dropout=0.0, activation=act, norm_first=pre, batch_first=first)
E, D = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
case("encoder_pre_relu", layer(E, True, "relu", True), lambda m, x: m(x), x)
case("encoder_post_gelu", layer(E, False, "gelu", True), lambda m, x: m(x), x)
case("encoder_first", layer(E, False, "relu", False), lambda m, x: m(x), torch.randn(I, B, M))
causal = torch.ones(I, I).triu(1).bool()
case("decoder_pre_gelu", layer(D, True, "gelu", True), lambda m, x, k: m(x, k, tgt_mask=causal), x, k)
case("decoder_post_relu", layer(D, False, "relu", True), lambda m, x, k: m(x, k, tgt_mask=causal), x, k)
case("encoder", nn.TransformerEncoder(layer(E, True, "gelu", True), 2, nn.LayerNorm(M), enable_nested_tensor=False), lambda m, x: m(x), x)

case("transformer", nn.Transformer(M, H, 1, 1, F, dropout=0.0, activation="relu", batch_first=True, norm_first=True),
     lambda m, x, k: m(k, x, tgt_mask=causal), x, k)

# -- modules as tutorials write them, with their names and results ----------------------------------------------------------------
class Named(nn.Module):
    def __init__(self, q, k, v, o, prepared=False):
        super().__init__()
        self.names = [q, k, v, o]
        for n in (q, k, v):
            child = nn.Module() if prepared else nn.Linear(M, M)
            if prepared: child.linear = nn.Linear(M, M)
            setattr(self, n, child)
        setattr(self, o, nn.Linear(M, M))
    def forward(self, x, k, v):
        q, k, v = ((m.linear if hasattr(m, "linear") else m)(t) for m, t in zip((getattr(self, n) for n in self.names), (x, k, v)))
        q, k, v = (t.view(t.shape[0], -1, H, M // H).transpose(1, 2) for t in (q, k, v))
        a = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(M // H), -1)
        return getattr(self, self.names[3])((a @ v).transpose(1, 2).reshape(x.shape[0], -1, M))

run = lambda m, x, k, v: m(x, k, v)
case("W_q", Named("W_q", "W_k", "W_v", "W_o"), run, x, k, v)
case("q_proj", Named("q_proj", "k_proj", "v_proj", "o_proj"), run, x, k, v)
case("labml", Named("query", "key", "value", "output", prepared=True), run, x, k, v)

class Heads(nn.Module):                                     # h separate W_i, concatenated
    def __init__(self):
        super().__init__()
        for n in "qkv": setattr(self, f"W_{n}", nn.ModuleList(nn.Linear(M, M // H) for _ in range(H)))
        self.W_o = nn.ModuleList(nn.Linear(M // H, M, bias=False) for _ in range(H))
        self.W_o.register_parameter("bias", nn.Parameter(torch.zeros(M)))
    def forward(self, x, k, v):
        y = self.W_o.bias
        for q_, k_, v_, o_ in zip(self.W_q, self.W_k, self.W_v, self.W_o):
            y = y + o_(torch.softmax(q_(x) @ k_(k).transpose(-2, -1) / math.sqrt(M // H), -1) @ v_(v))
        return y
case("heads", Heads(), run, x, k, v)

class GPT2(nn.Module):                                                                  # weights are (in, out)
    def __init__(self):
        super().__init__()
        for n, width in (("c_attn", 3 * M), ("c_proj", M)):
            child = nn.Module(); child.weight = nn.Parameter(torch.zeros(M, width)); child.bias = nn.Parameter(torch.zeros(width)); setattr(self, n, child)
    def forward(self, x):
        q, k, v = ((x @ self.c_attn.weight + self.c_attn.bias).split(M, 2))
        q, k, v = (t.view(B, I, H, M // H).transpose(1, 2) for t in (q, k, v))
        s = (q @ k.transpose(-2, -1) / math.sqrt(M // H)).masked_fill(causal, -math.inf)
        return (torch.softmax(s, -1) @ v).transpose(1, 2).reshape(B, I, M) @ self.c_proj.weight + self.c_proj.bias
case("gpt2", GPT2(), lambda m, x: m(x), x)

save_file(out, sys.argv[1])
