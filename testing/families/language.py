"""Models of text, of `transformers`, made small."""

from __future__ import annotations

from typing import Any

import torch

from testing.families.pretrained import Pretrained, alike, tokens

_ROUTED: dict[str, Any] = {"n_routed_experts": 4, "first_k_dense_replace": 1, "topk_group": 1}
_RANKS = dict.fromkeys(("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8)
_LATENT: dict[str, Any] = {**_ROUTED, **_RANKS, "n_shared_experts": 1, "num_key_value_heads": 4}

LANGUAGE: tuple[Pretrained, ...] = (
    *alike(
        "bert",
        "text",
        "RobertaForMaskedLM ElectraForPreTraining AlbertForMaskedLM MPNetForMaskedLM XLNetLMHeadModel "
        "CamembertForMaskedLM ErnieForMaskedLM RemBertForMaskedLM RoFormerForMaskedLM ConvBertForMaskedLM "
        "ModernBertForMaskedLM XLMRobertaXLForMaskedLM EsmForMaskedLM IBertForMaskedLM "
        "MegatronBertForMaskedLM NomicBertForMaskedLM EuroBertForMaskedLM YosoForMaskedLM RoCBertForMaskedLM "
        "TapasModel Data2VecTextForMaskedLM",
    ),
    *alike(
        "bert",
        "text",
        "DebertaForMaskedLM DebertaV2ForMaskedLM",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        pooler_hidden_size=32,
    ),
    *alike("bert", "text", "DistilBertForMaskedLM", hidden_dim=64),
    *alike("bert", "text", "MobileBertForMaskedLM", intra_bottleneck_size=16, embedding_size=32, hidden_size=32),
    *alike(
        "bert",
        "text",
        "SqueezeBertForMaskedLM",
        q_groups=2,
        k_groups=2,
        v_groups=2,
        post_attention_groups=2,
        intermediate_groups=2,
        output_groups=2,
    ),
    *alike("bert", "ids", "FNetForMaskedLM", use_tpu_fourier_optimizations=False),
    *alike(
        "bert",
        lambda: {"input_ids": tokens(), "bbox": torch.tensor([1, 2, 9, 12]).expand(2, 12, 4).clone()},
        "LayoutLMForMaskedLM",
    ),
    *alike(
        "bert",
        lambda: {"input_ids": tokens(16)},
        "CanineForSequenceClassification",
        downsampling_rate=4,
        local_transformer_stride=8,
        upsampling_kernel_size=4,
        num_hash_buckets=64,
        num_hash_functions=2,
    ),
    *alike("bert", "text", "FunnelForMaskedLM", block_sizes=[1, 1], num_decoder_layers=1),
    *alike("bert", "text", "LongformerForMaskedLM", attention_window=4),
    *alike("bert", "text", "BigBirdForMaskedLM", attention_type="original_full"),
    *alike(
        "bert",
        "text",
        "ReformerModelWithLMHead",
        axial_pos_shape=(4, 8),
        axial_pos_embds_dim=(16, 16),
        attn_layers=["local", "local"],
        attention_head_size=8,
        feed_forward_size=64,
        is_decoder=True,
        local_attn_chunk_length=4,
        local_num_chunks_before=1,
        hash_seed=0,
    ),
    *alike("bert", "text", "MraForMaskedLM", block_per_row=1),
    *alike("bert", "text", "SplinterForQuestionAnswering", question_token_id=3),
    *alike("bert", "text", "XmodForMaskedLM", default_language="en_XX", languages=("en_XX",)),
    *alike(
        "decoder",
        "text",
        "GPTNeoXForCausalLM OPTForCausalLM MptForCausalLM BloomForCausalLM GPTBigCodeForCausalLM "
        "CTRLLMHeadModel OpenAIGPTLMHeadModel XGLMForCausalLM BioGptForCausalLM Phi3ForCausalLM "
        "PhiForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM OlmoForCausalLM Olmo2ForCausalLM CohereForCausalLM "
        "StableLmForCausalLM GraniteForCausalLM Starcoder2ForCausalLM NemotronForCausalLM GlmForCausalLM "
        "Glm4ForCausalLM PersimmonForCausalLM SmolLM3ForCausalLM HeliumForCausalLM DiffLlamaForCausalLM "
        "BitNetForCausalLM Ernie4_5ForCausalLM ApertusForCausalLM GemmaForCausalLM "
        "ModernBertDecoderForCausalLM ImageGPTForCausalImageModeling NanoChatForCausalLM",
    ),
    *alike("decoder", "text", "GPTJForCausalLM CodeGenForCausalLM", rotary_dim=4),
    *alike("decoder", "text", "GPTNeoForCausalLM", attention_types=[[["global", "local"], 1]], window_size=4),
    *alike("decoder", "text", "FalconForCausalLM", alibi=True),
    *alike(
        "decoder",
        "text",
        "Gemma2ForCausalLM Gemma3ForCausalLM MistralForCausalLM Cohere2ForCausalLM Exaone4ForCausalLM",
        sliding_window=4,
    ),
    *alike(
        "moe",
        "text",
        "MixtralForCausalLM Qwen2MoeForCausalLM Qwen3MoeForCausalLM OlmoeForCausalLM PhimoeForCausalLM "
        "JetMoeForCausalLM GraniteMoeForCausalLM Llama4ForCausalLM MiniMaxForCausalLM",
    ),
    *alike("moe", "text", "GptOssForCausalLM", sliding_window=4),
    *alike("moe", "text", "DeepseekV2ForCausalLM", n_group=1, **_LATENT),
    *alike("moe", "text", "DeepseekV3ForCausalLM", n_group=2, **_LATENT),
    *alike("moe", "text", "Glm4MoeForCausalLM", n_group=1, **_ROUTED),
    *alike("moe", "text to text", "SwitchTransformersForConditionalGeneration NllbMoeForConditionalGeneration"),
    *alike("state space", "ids", "Mamba2ForCausalLM", num_heads=8, head_dim=8, n_groups=2, chunk_size=4, state_size=8),
    *alike(
        "state space", "ids", "FalconMambaForCausalLM NemotronHForCausalLM KimiLinearForCausalLM OlmoHybridForCausalLM"
    ),
    *alike(
        "state space",
        "ids",
        "JambaForCausalLM",
        mamba_d_state=4,
        use_mamba_kernels=False,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        mamba_dt_rank=4,
    ),
    *alike("state space", "ids", "RwkvForCausalLM", attention_hidden_size=32, context_length=64),
    *alike(
        "state space",
        "ids",
        "RecurrentGemmaForCausalLM",
        num_hidden_layers=3,
        attention_window_size=8,
        num_key_value_heads=1,
    ),
    *alike(
        "state space",
        "ids",
        "BambaForCausalLM",
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=4,
        attn_layer_indices=[1],
    ),
    *alike("state space", "ids", "xLSTMForCausalLM", num_blocks=2, chunk_size=4),
    *alike(
        "state space",
        "ids",
        "FalconH1ForCausalLM",
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_d_ssm=64,
        mamba_chunk_size=4,
    ),
    *alike(
        "state space",
        "ids",
        "Qwen3NextForCausalLM",
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        shared_expert_intermediate_size=8,
    ),
    *alike(
        "state space",
        "ids",
        "Zamba2ForCausalLM",
        layers_block_type=["mamba", "hybrid"],
        mamba_d_state=8,
        mamba_headdim=8,
        n_mamba_heads=8,
        mamba_ngroups=1,
        chunk_size=4,
        adapter_rank=4,
        attention_head_dim=16,
    ),
    *alike(
        "state space",
        "ids",
        "GraniteMoeHybridForCausalLM",
        layer_types=["mamba", "attention"],
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=4,
        shared_intermediate_size=32,
    ),
    *alike("moe", "text", "Lfm2MoeForCausalLM", layer_types=["conv", "full_attention"], num_dense_layers=1),
    *alike("state space", "ids", "Lfm2ForCausalLM", layer_types=["conv", "full_attention"], full_attn_idxs=None),
    *alike("encoder-decoder", "text to text", "T5ForConditionalGeneration", num_layers=2),
    *alike(
        "encoder-decoder",
        "text to text",
        "BartForConditionalGeneration MarianMTModel PegasusForConditionalGeneration "
        "MBartForConditionalGeneration BlenderbotForConditionalGeneration M2M100ForConditionalGeneration "
        "PLBartForConditionalGeneration UMT5ForConditionalGeneration MvpForConditionalGeneration "
        "BigBirdPegasusForConditionalGeneration PegasusXForConditionalGeneration "
        "T5GemmaForConditionalGeneration",
    ),
    *alike("encoder-decoder", "text to text", "LEDForConditionalGeneration", attention_window=4),
    *alike("encoder-decoder", "text to text", "ProphetNetForConditionalGeneration", hidden_size=32, ngram=2),
    *alike("encoder-decoder", "text to text", "LongT5ForConditionalGeneration", local_radius=3),
    *alike(
        "encoder-decoder",
        "text to text",
        "FSMTForConditionalGeneration",
        langs=["en", "de"],
        src_vocab_size=99,
        tgt_vocab_size=99,
    ),
)
