"""Models of a few thousand random weights, in the architectures that the exporter is tried on."""

from __future__ import annotations

from pathlib import Path

import tokenizers
import torch
from transformers import AutoConfig, PreTrainedTokenizerFast

from export.attention_capture import loader_of

VOCABULARY = 96
# Sharp enough that a wrong mask, scale or order shows in the outputs.
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48,
         "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256,
         "initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**SMALL, "num_key_value_heads": 2}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256,
        "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2}

LATENT = {**SMALL, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 8,
          "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6,
          "first_k_dense_replace": 2}

INDEXED = {**LATENT, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 16,
           "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16,
           "n_group": 1, "topk_group": 1}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.2, 1.3],
            "long_factor": [1.5, 2.0, 4.0, 8.0], "original_max_position_embeddings": 32}

MODELS = {
    "llama": {**GROUPED, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    "llama3_scaled": {**GROUPED, "model_type": "llama", "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "qwen2": GROUPED,  # a bias of keys
    "qwen3": {**GROUPED, "head_dim": 16},
    "mistral": {**GROUPED, "sliding_window": 24},
    "gemma2": {**GROUPED, "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 24,
               "attn_logit_softcapping": 5.0, "layer_types": ["sliding_attention",
                                                              "full_attention"]},
    "gemma3_text": {**GROUPED, "num_hidden_layers": 3, "head_dim": 16, "query_pre_attn_scalar": 24,
                    "sliding_window": 24,
                    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                    "rope_parameters": {
                        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                        "full_attention": {"rope_type": "linear", "rope_theta": 10000.0,
                                           "factor": 8.0}}},
    "gpt2": {**GPT2, "scale_attn_by_inverse_layer_idx": True},
    "phi": {**GROUPED, "partial_rotary_factor": 0.5},
    "gpt_neox": {**SMALL, "rotary_pct": 0.25},
    "cohere": {**GROUPED, "logit_scale": 1.0,
               "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "cohere2": {**GROUPED, "sliding_window": 24,
                "layer_types": ["sliding_attention", "full_attention"]},
    "granite": {**GROUPED, "attention_multiplier": 0.17},
    # Latent attention: d differs from dv, and the last dimensions of q and k are turned.
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    # Two attentions per decoder layer; latents are scaled before they are expanded.
    "longcat_flash": {**{name: value for name, value in LATENT.items()
                         if name not in ("num_hidden_layers", "first_k_dense_replace", "intermediate_size")},
                      "num_layers": 1, "head_dim": 4, "ffn_hidden_size": 48, "expert_ffn_hidden_size": 16,
                      "n_routed_experts": 4, "moe_topk": 2, "zero_expert_num": 2},
    # Attention in one layer of two; the other's state is not keys and values.
    "qwen3_next": {**GROUPED, "head_dim": 16, "linear_num_value_heads": 2,
                   "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
                   "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16,
                   "shared_expert_intermediate_size": 16,
                   "layer_types": ["linear_attention", "full_attention"]},
    "gpt_oss": {**GROUPED, "head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1,
                "sliding_window": 24},
    "llama4_text": {**GROUPED, "head_dim": 16, "intermediate_size_mlp": 48, "num_local_experts": 2,
                    "attention_chunk_size": 20, "num_experts_per_tok": 1,
                    "no_rope_layers": [1, 0]},
    # Factors by dimension, other ones from 33 tokens on; frequencies that grow with the text.
    "longrope": {**GROUPED, "model_type": "llama", "rope_parameters": LONGROPE},
    "phi3": {**GROUPED, "original_max_position_embeddings": 32, "rope_parameters": LONGROPE},
    "dynamic": {**GROUPED, "model_type": "llama", "max_position_embeddings": 24,
                "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
    # The last two of five layers read the keys and values of layers 1 and 2.
    "gemma3n_text": {**GROUPED, "num_hidden_layers": 5, "head_dim": 16, "sliding_window": 24,
                     "num_kv_shared_layers": 2, "vocab_size_per_layer_input": VOCABULARY,
                     "hidden_size_per_layer_input": 8, "laurel_rank": 4, "altup_num_inputs": 2,
                     "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                                     "sliding_attention", "full_attention"]},
    # Layers of two head sizes; with full attention, values are the keys before norm and rotation.
    "gemma4_text": {**GROUPED, "num_hidden_layers": 4, "head_dim": 8, "global_head_dim": 16,
                    "num_global_key_value_heads": 1, "attention_k_eq_v": True, "num_kv_shared_layers": 0,
                    "sliding_window": 24, "vocab_size_per_layer_input": VOCABULARY,
                    "hidden_size_per_layer_input": 8,
                    "layer_types": ["sliding_attention", "full_attention"] * 2},
    "opt": {"vocab_size": VOCABULARY, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 256, "word_embed_proj_dim": 32,
            "init_std": 0.3},
    "gpt_bigcode": GPT2,
    "stablelm": {**GROUPED, "qk_layernorm": True},
    "glm4": {**GROUPED, "head_dim": 8},
    "ernie4_5": {**GROUPED, "head_dim": 8},
    "olmo3": {**GROUPED, "sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]},
    "exaone4": {**GROUPED, "sliding_window": 24,
                "layer_types": ["sliding_attention", "full_attention"]},
    "smollm3": {**GROUPED, "no_rope_layers": [1, 0]},
    # Norms of queries and keys come after the rotation, which they leave none of.
    "hunyuan_v1_dense": {**GROUPED, "head_dim": 8},
    # Sinks and more KV heads in windowed layers; values are shorter than keys.
    "mimo_v2_flash": {**GROUPED, "head_dim": 8, "v_head_dim": 6, "swa_num_attention_heads": 4,
                      "swa_num_key_value_heads": 4, "swa_head_dim": 8, "swa_v_head_dim": 6,
                      "sliding_window": 24, "n_routed_experts": 2, "num_experts_per_tok": 1,
                      "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
                      "layer_types": ["full_attention", "sliding_attention"]},
    "granite_swa": {**GROUPED, "attention_multiplier": 0.3, "sliding_window": 24},
    # Attention and a recurrent state in the same layer.
    "falcon_h1": {**GROUPED, "head_dim": 8, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16,
                  "mamba_d_state": 8, "mamba_chunk_size": 16},
    # Language models that read pictures too.
    "mistral3": {"text_config": {**GROUPED, "model_type": "mistral", "head_dim": 8,
                                 "sliding_window": None},
                 "vision_config": {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16,
                                   "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8,
                                   "image_size": 28, "patch_size": 14}, "image_token_index": 90},
    # 16 keys are chosen per row.
    "deepseek_v32": INDEXED,
    "glm_moe_dsa": INDEXED,
    "bert": SMALL,
    # ALiBi, computed within the modules; of 12 heads some slopes are not powers of 2.
    "bloom": {"vocab_size": VOCABULARY, "hidden_size": 96, "n_layer": 2, "n_head": 12,
              "initializer_range": 0.3},
    "mpt": {"vocab_size": VOCABULARY, "d_model": 96, "n_layers": 2, "n_heads": 12,
            "max_seq_len": 256, "expansion_ratio": 2, "initializer_range": 0.3},
    # Models that cannot be captured.
    "falcon": {**SMALL, "alibi": True},
    "gpt_neo": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
                "attention_types": [[["global", "local"], 1]], "window_size": 24},
    "zamba2": {**SMALL, "num_hidden_layers": 4, "num_key_value_heads": 4, "mamba_d_state": 8,
               "n_mamba_heads": 4, "chunk_size": 16, "adapter_rank": 4,
               "layers_block_type": ["linear_attention", "hybrid"] * 2},
    "jetmoe": {**GROUPED, "kv_channels": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "doge": GROUPED,
    # Keys are chosen by blocks of positions.
    "minimax_m3_vl_text": {**GROUPED, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1,
                           "index_n_heads": 2, "index_head_dim": 8, "index_block_size": 16,
                           "layer_types": ["full_attention", "minimax_m3_sparse"]},
    "diffllama": GROUPED,
    "gptj": {**GPT2, "rotary_dim": 4},
    "codegen": {**GPT2, "rotary_dim": 4},
}


def make(name: str, folder: Path, **changes: object) -> Path:
    """Saves a model of random weights; the same ones whenever it is called."""
    values = {**MODELS[name], **changes}
    config = AutoConfig.for_model(values.pop("model_type", name), **values)
    torch.manual_seed(7)
    model = loader_of(config).from_config(config).to(torch.float32)
    with torch.no_grad():  # parameters of 0 or 1 (biases, norms) would hide faults
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder / name)
    return folder / name


def save_tokenizer(path: Path, template: tuple[str, str] | None = None) -> None:
    """Gives a model a tokenizer of single letters. `template`: what stands before and behind a user's
    words in a chat."""
    letters = {letter: place for place, letter in enumerate(
        ["\n", *(chr(32 + place) for place in range(VOCABULARY - 1))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token=" "))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=" ")
    if template:
        before, behind = template
        fast.chat_template = f"{before}{{{{ messages[0]['content'] }}}}{behind}"
    fast.save_pretrained(path)


def pass_cache_position(method):
    """kvpress's forward_hook in a model: transformers no longer tells modules where they are in the
    cache, and kvpress asks."""
    def hook(self, module, inputs, kwargs, output):
        kwargs = {"cache_position": torch.arange(kwargs["hidden_states"].shape[1]), **kwargs}
        return method(self, module, inputs, kwargs, output)
    return hook
