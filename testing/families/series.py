"""Models of sound, series and decisions, of `transformers`, made small."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from testing.families.pretrained import Pretrained, alike, numbers, tokens

_WAVE: dict[str, Any] = {
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False,
}
_CODEC: dict[str, Any] = {
    "num_filters": 4,
    "upsampling_ratios": [4, 2],
    "codebook_size": 16,
    "codebook_dim": 16,
}
_LAGS: dict[str, Any] = {
    "prediction_length": 4,
    "context_length": 14,
    "lags_sequence": [1, 2, 3, 7],
    "num_time_features": 2,
}


def lagged() -> dict[str, Tensor]:
    """Return a series with what is known of its times, past and future."""
    return {
        "past_values": numbers(21),
        "past_time_features": numbers(21, 2),
        "past_observed_mask": torch.ones(2, 21),
        "future_time_features": numbers(4, 2),
        "future_values": numbers(4),
    }


SERIES: tuple[Pretrained, ...] = (
    *alike("speech", "spectrum to text", "WhisperForConditionalGeneration"),
    *alike(
        "speech",
        lambda: {"input_features": numbers(32, 16), "decoder_input_ids": tokens(6)},
        "Speech2TextForConditionalGeneration",
        input_feat_per_channel=16,
        conv_channels=32,
        use_cache=False,
    ),
    *alike(
        "speech",
        "wave",
        "Wav2Vec2ForCTC HubertForCTC SEWForCTC UniSpeechForCTC UniSpeechSatForCTC Wav2Vec2ConformerForCTC",
        **_WAVE,
    ),
    *alike("speech", "wave", "SEWDForCTC", **_WAVE, squeeze_factor=2, position_buckets=8, max_position_embeddings=64),
    *alike("speech", "wave", "WavLMForCTC", **_WAVE, num_buckets=8, max_bucket_distance=16),
    *alike("speech", "wave", "Data2VecAudioForCTC", **(_WAVE | {"num_conv_pos_embeddings": 2}), conv_pos_kernel_size=3),
    *alike("speech", lambda: {"input_features": numbers(16, 160)}, "Wav2Vec2BertForCTC"),
    *alike(
        "speech",
        lambda: {"input_values": numbers(32, 16)},
        "ASTForAudioClassification",
        max_length=32,
        num_mel_bins=16,
        frequency_stride=4,
        time_stride=4,
    ),
    *alike(
        "speech",
        lambda: {"input_features": numbers(1, 64, 16), "is_longer": None},
        "ClapAudioModel",
        spec_size=64,
        num_mel_bins=16,
        patch_embeds_hidden_size=16,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        hidden_size=32,
        patch_size=4,
        patch_stride=[4, 4],
        window_size=4,
        num_hidden_layers=2,
    ),
    *alike(
        "speech",
        lambda: {"input_values": numbers(1, 640)},
        "EncodecModel",
        **_CODEC,
        hidden_size=16,
        chunk_length_s=None,
        num_lstm_layers=1,
    ),
    *alike(
        "speech",
        lambda: {"input_values": numbers(1, 640)},
        "DacModel",
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=32,
        n_codebooks=2,
        codebook_size=16,
        codebook_dim=4,
    ),
    *alike(
        "speech",
        lambda: {"input_values": numbers(1, 1920)},
        "MimiModel",
        **_CODEC,
        hidden_size=32,
        vector_quantization_hidden_dimension=16,
        num_quantizers=4,
        num_semantic_quantizers=1,
        num_hidden_layers=1,
        head_dim=8,
        upsample_groups=32,
    ),
    *alike(
        "speech",
        lambda: {"spectrogram": torch.randn(2, 10, 8)},
        "SpeechT5HifiGan",
        model_in_dim=8,
        upsample_initial_channel=16,
        upsample_rates=[2, 2],
        upsample_kernel_sizes=[4, 4],
    ),
    *alike(
        "speech",
        lambda: {"input_features": numbers(64, 80)},
        "ParakeetForCTC",
        encoder_config={
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "subsampling_conv_channels": 8,
        },
    ),
    *alike("speech", "ids", "BarkSemanticModel", input_vocab_size=99, output_vocab_size=99, block_size=64),
    *alike("speech", "ids", "FastSpeech2ConformerModel"),
    *alike(
        "speech",
        lambda: {"input_values": numbers(3200), "decoder_input_ids": tokens(6), "use_cache": False},
        "MoonshineForConditionalGeneration",
    ),
    *alike("time series", lagged, "AutoformerModel", **_LAGS, label_length=4, moving_average=5),
    *alike("time series", lagged, "InformerModel TimeSeriesTransformerModel", **_LAGS),
    *alike(
        "time series",
        "series",
        "PatchTSTForPrediction PatchTSMixerForPrediction",
        context_length=32,
        patch_length=8,
        patch_stride=8,
        num_input_channels=2,
        prediction_length=4,
    ),
    *alike(
        "time series",
        lambda: {"past_values": numbers(32), "freq": torch.zeros(2, 1, dtype=torch.int64)},
        "TimesFmModelForPrediction",
    ),
    *alike(
        "decision",
        lambda: {
            "states": numbers(5, 3),
            "actions": numbers(5, 2),
            "rewards": numbers(5, 1),
            "returns_to_go": numbers(5, 1),
            "timesteps": torch.arange(5).expand(2, 5).clone(),
            "attention_mask": torch.ones(2, 5),
        },
        "DecisionTransformerModel",
        state_dim=3,
        act_dim=2,
        max_ep_len=16,
    ),
    *alike("music", lambda: {"input_ids": tokens(6).repeat(4, 1)[:8]}, "MusicgenForCausalLM", num_codebooks=4),
)
