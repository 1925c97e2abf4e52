"""Writes tests/data/models/CASE/{config.json, model…safetensors, expected.safetensors}: tiny models of the transformers package with
random weights, as written by save_pretrained, and their results.

    python tests/reference/models.py tests/data/models [CASE …]   # transformers 5.24.0, torch 2.15.0

expected: tokens (b l) and logits (b l v), or of BERT types (b l), keep (b l), hidden (b l m) and pooled (b m) or logits, all from the stored
weights in f32; and for decoders `greedy` (8): the continuation of the first row by the most probable token each time."""
import glob, json, os, shutil, sys
import torch
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, BertModel, DistilBertConfig, DistilBertModel, Gemma2Config, Gemma2ForCausalLM,
                          Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig, GemmaForCausalLM, GPT2Config, GPT2LMHeadModel, GPTJConfig,
                          GPTJForCausalLM, GPTNeoConfig, GPTNeoForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM, OPTConfig, OPTForCausalLM,
                          Phi3Config, Phi3ForCausalLM, PhiConfig, PhiForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, RobertaConfig, RobertaForMaskedLM, SmolLM3Config, SmolLM3ForCausalLM, StableLmConfig,
                          StableLmForCausalLM, Starcoder2Config, Starcoder2ForCausalLM)

top, only = sys.argv[1], sys.argv[2:]
attend = dict(attn_implementation="eager")

def scramble(net):                                                 # gains are 1 and biases 0 otherwise
    for name, p in sorted(net.named_parameters()):
        with torch.no_grad():
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if p.dim() == 1 and "bias" not in name else 0))

def write(case, net, expected, keep_config=(), **how):
    folder = os.path.join(top, case)
    shutil.rmtree(folder, ignore_errors=True)
    net.save_pretrained(folder, **how)
    for extra in glob.glob(folder + "/generation_config.json"): os.remove(extra)
    save_file({k: x.detach().clone().contiguous() for k, x in expected.items()}, folder + "/expected.safetensors")
    size = sum(os.path.getsize(f) for f in glob.glob(folder + "/*"))
    print(case, size, sorted(os.path.basename(f) for f in glob.glob(folder + "/*")))
    assert size < 60000, case

def decoder(case, model, config, seed, dtype=None, **how):
    if only and case not in only: return
    torch.manual_seed(seed)
    net = model._from_config(config, **attend).eval()
    scramble(net)
    for p in net.parameters() if dtype else ():                    # what the file can hold; buffers stay as they are
        p.data = p.data.to(dtype).to(torch.float32)
    tokens = torch.randint(0, 50, (2, 9))
    with torch.no_grad():
        logits = net(tokens).logits
        row = tokens[:1]
        for _ in range(8): row = torch.cat([row, net(row).logits[:, -1:].argmax(-1)], 1)
    if dtype: net = net.to(dtype)
    write(case, net, dict(tokens=tokens.int(), logits=logits, greedy=row[0, 9:].int()), **how)

def bert(case, model, config, seed):
    if only and case not in only: return
    torch.manual_seed(seed)
    net = model._from_config(config, **attend).eval()
    scramble(net)
    tokens, types = torch.randint(2, 50, (2, 9)), (torch.arange(9) > 4).long().expand(2, 9)   # 0 and 1 are padding tokens
    keep = torch.ones(2, 9, dtype=torch.long); keep[1, 7:] = 0
    if config.model_type in ("roberta", "distilbert"): types = torch.zeros_like(types)        # these have one type
    given = dict(attention_mask=keep) if config.model_type == "distilbert" else dict(attention_mask=keep, token_type_ids=types)
    with torch.no_grad():
        body = getattr(net, net.base_model_prefix, net)
        y = body(tokens, **given)
        if body is not net: logits = net(tokens, **given).logits
    expected = dict(tokens=tokens.int(), types=types.int(), keep=keep.bool(), hidden=y.last_hidden_state)
    if body is not net: expected["logits"] = logits
    elif config.model_type == "bert": expected["pooled"] = y.pooler_output
    write(case, net, expected)

tall = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, max_position_embeddings=32,
            bos_token_id=1, eos_token_id=2)
decoder("gpt2", GPT2LMHeadModel, GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=2), 1)
decoder("llama", LlamaForCausalLM, LlamaConfig(**tall, num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters=dict(
    rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)), 2)
decoder("llama_bf16", LlamaForCausalLM, LlamaConfig(**tall, num_key_value_heads=1, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
    head_dim=6, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), 3, dtype=torch.bfloat16, max_shard_size="6KB")
decoder("mistral", MistralForCausalLM, MistralConfig(**tall, num_key_value_heads=2, sliding_window=4), 4)
decoder("qwen2", Qwen2ForCausalLM, Qwen2Config(**tall, num_key_value_heads=2, tie_word_embeddings=True, use_sliding_window=True,
    sliding_window=3, max_window_layers=1), 5)
decoder("qwen2_yarn", Qwen2ForCausalLM, Qwen2Config(**{**tall, "num_hidden_layers": 1}, num_key_value_heads=4, rope_parameters=dict(
    rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8)), 9)
decoder("qwen3", Qwen3ForCausalLM, Qwen3Config(**tall, num_key_value_heads=2, head_dim=8), 6)
small = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=20)
bert("bert", BertModel, BertConfig(**small), 7)
bert("bert_mlm", BertForMaskedLM, BertConfig(**small, hidden_act="relu", layer_norm_eps=1e-5), 8)
bert("roberta", RobertaForMaskedLM, RobertaConfig(**{**small, "max_position_embeddings": 22}, type_vocab_size=1), 10)
bert("distilbert", DistilBertModel, DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=24,
    max_position_embeddings=20), 11)

two = dict(num_key_value_heads=2)
decoder("gemma", GemmaForCausalLM, GemmaConfig(**tall, num_key_value_heads=1, head_dim=6), 12)
decoder("gemma2", Gemma2ForCausalLM, Gemma2Config(**tall, **two, head_dim=6, sliding_window=3, query_pre_attn_scalar=7,
    attn_logit_softcapping=2.0, final_logit_softcapping=3.0), 13)
decoder("gemma3", Gemma3ForCausalLM, Gemma3TextConfig(**{**tall, "num_hidden_layers": 3}, **two, head_dim=8, sliding_window=3,
    query_pre_attn_scalar=7, layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=100.0),
        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=10000.0))), 14)
decoder("phi3", Phi3ForCausalLM, Phi3Config(**tall, **two, pad_token_id=0, sliding_window=4, rope_parameters=dict(
    rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), 15)
decoder("phi", PhiForCausalLM, PhiConfig(**{**tall, "num_attention_heads": 2}, num_key_value_heads=1, qk_layernorm=True), 16)
neox = {**tall, "num_attention_heads": 2}
decoder("gpt_neox", GPTNeoXForCausalLM, GPTNeoXConfig(**neox), 17)
decoder("gpt_neox_serial", GPTNeoXForCausalLM, GPTNeoXConfig(**neox, use_parallel_residual=False, attention_bias=False,
    tie_word_embeddings=True), 18)
decoder("gptj", GPTJForCausalLM, GPTJConfig(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32, rotary_dim=4, bos_token_id=1,
    eos_token_id=2), 19)
decoder("gpt_neo", GPTNeoForCausalLM, GPTNeoConfig(vocab_size=50, hidden_size=16, num_layers=2, num_heads=2, max_position_embeddings=32,
    window_size=3, attention_types=[[["global", "local"], 1]], bos_token_id=1, eos_token_id=2), 20)
decoder("opt", OPTForCausalLM, OPTConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, ffn_dim=24, num_attention_heads=2,
    max_position_embeddings=32, word_embed_proj_dim=16), 21)
decoder("olmo2", Olmo2ForCausalLM, Olmo2Config(**tall, **two), 22)
decoder("smollm3", SmolLM3ForCausalLM, SmolLM3Config(**{**tall, "num_hidden_layers": 4}, **two, pad_token_id=0), 23)
decoder("stablelm", StableLmForCausalLM, StableLmConfig(**{**tall, "num_attention_heads": 2}, num_key_value_heads=1, use_qkv_bias=True), 24)
decoder("stablelm_parallel", StableLmForCausalLM, StableLmConfig(**{**tall, "num_attention_heads": 2}, num_key_value_heads=2,
    use_parallel_residual=True), 25)
decoder("starcoder2", Starcoder2ForCausalLM, Starcoder2Config(**tall, **two, sliding_window=4), 26)
