"""Models of images, sound, series and decisions, of `transformers`, made small."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.families.pretrained import Pretrained, numbers, padding, tokens


def image(*shape: int) -> dict[str, Tensor]:
    return {"pixel_values": numbers(*shape)}


def _backbone(kind: str, **settings: Any) -> Any:
    import transformers

    return getattr(transformers, kind)(**settings)


_STAGES = [f"stage{i}" for i in range(1, 5)]
_RESIDUAL: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_sizes": [8, 8, 16, 16],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_WINDOWS: dict[str, Any] = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [1, 1, 1, 1],
    "num_heads": [2, 2, 2, 2],
    "window_size": 4,
    "out_features": _STAGES,
}
_PATCHES: dict[str, Any] = {
    "image_size": 28,
    "patch_size": 7,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "reshape_hidden_states": False,
    "out_features": _STAGES,
}
residual_stages = partial(_backbone, "ResNetConfig", **_RESIDUAL, out_features=_STAGES[1:])
last_residual_stage = partial(_backbone, "ResNetConfig", **_RESIDUAL, out_features=_STAGES[3:])
window_stages = partial(_backbone, "SwinConfig", **_WINDOWS)
patch_stages = partial(_backbone, "Dinov2Config", **_PATCHES)


PERCEPTION: tuple[Pretrained, ...] = (
    Pretrained("WhisperForConditionalGeneration", "speech", "spectrum to text"),
    Pretrained(
        "Speech2TextForConditionalGeneration",
        "speech",
        lambda: {"input_features": numbers(32, 16), "decoder_input_ids": tokens(6)},
        {"input_feat_per_channel": 16, "conv_channels": 32, "use_cache": False},
    ),
    Pretrained(
        "Wav2Vec2ForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
        },
    ),
    Pretrained(
        "HubertForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
        },
    ),
    Pretrained(
        "SEWForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
        },
    ),
    Pretrained(
        "SEWDForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
            "squeeze_factor": 2,
            "position_buckets": 8,
            "max_position_embeddings": 64,
        },
    ),
    Pretrained(
        "WavLMForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
            "num_buckets": 8,
            "max_bucket_distance": 16,
        },
    ),
    Pretrained(
        "UniSpeechForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
        },
    ),
    Pretrained(
        "UniSpeechSatForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
        },
    ),
    Pretrained(
        "Data2VecAudioForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 2,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
            "conv_pos_kernel_size": 3,
        },
    ),
    Pretrained(
        "Wav2Vec2ConformerForCTC",
        "speech",
        "wave",
        {
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 4),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "apply_spec_augment": False,
        },
    ),
    Pretrained("Wav2Vec2BertForCTC", "speech", lambda: {"input_features": numbers(16, 160)}),
    Pretrained(
        "ASTForAudioClassification",
        "speech",
        lambda: {"input_values": numbers(32, 16)},
        {"max_length": 32, "num_mel_bins": 16, "frequency_stride": 4, "time_stride": 4},
    ),
    Pretrained(
        "ClapAudioModel",
        "speech",
        lambda: {"input_features": numbers(1, 64, 16), "is_longer": None},
        {
            "spec_size": 64,
            "num_mel_bins": 16,
            "patch_embeds_hidden_size": 16,
            "depths": [1, 1],
            "num_attention_heads": [2, 2],
            "hidden_size": 32,
            "patch_size": 4,
            "patch_stride": [4, 4],
            "window_size": 4,
            "num_hidden_layers": 2,
        },
    ),
    Pretrained(
        "EncodecModel",
        "speech",
        lambda: {"input_values": numbers(1, 640)},
        {
            "hidden_size": 16,
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "codebook_size": 16,
            "codebook_dim": 16,
            "chunk_length_s": None,
            "num_lstm_layers": 1,
        },
    ),
    Pretrained(
        "DacModel",
        "speech",
        lambda: {"input_values": numbers(1, 640)},
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "decoder_hidden_size": 32,
            "n_codebooks": 2,
            "codebook_size": 16,
            "codebook_dim": 4,
        },
    ),
    Pretrained(
        "MimiModel",
        "speech",
        lambda: {"input_values": numbers(1, 1920)},
        {
            "hidden_size": 32,
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "codebook_size": 16,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "num_quantizers": 4,
            "num_semantic_quantizers": 1,
            "num_hidden_layers": 1,
            "head_dim": 8,
            "upsample_groups": 32,
        },
    ),
    Pretrained(
        "SpeechT5HifiGan",
        "speech",
        lambda: {"spectrogram": torch.randn(2, 10, 8)},
        {"model_in_dim": 8, "upsample_initial_channel": 16, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4]},
    ),
    Pretrained("FastSpeech2ConformerModel", "speech", "ids"),
    Pretrained(
        "MoonshineForConditionalGeneration",
        "speech",
        lambda: {"input_values": numbers(3200), "decoder_input_ids": tokens(6), "use_cache": False},
    ),
    Pretrained("DeiTForImageClassification", "vision", "image"),
    Pretrained(
        "BeitForImageClassification", "vision", "image", {"use_relative_position_bias": True, "out_indices": None}
    ),
    Pretrained(
        "Swinv2ForImageClassification",
        "vision",
        "image",
        {"patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    Pretrained(
        "PvtForImageClassification",
        "vision",
        "image",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sequence_reduction_ratios": [2, 1],
            "hidden_sizes": [16, 32],
            "patch_sizes": [4, 2],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
    ),
    Pretrained(
        "PvtV2ForImageClassification",
        "vision",
        "image",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 32],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
    ),
    Pretrained(
        "SegformerForSemanticSegmentation",
        "vision",
        "large image",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 32],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    Pretrained("MobileNetV1ForImageClassification", "vision", "image", {"depth_multiplier": 0.25}),
    Pretrained("MobileNetV2ForImageClassification", "vision", "image", {"depth_multiplier": 0.25}),
    Pretrained(
        "MobileViTForImageClassification",
        "vision",
        "image",
        {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16], "image_size": 32, "patch_size": 2},
    ),
    Pretrained(
        "RegNetForImageClassification",
        "vision",
        "image",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16, 16, 32],
            "depths": [1, 1, 1, 1],
            "groups_width": 8,
            "layer_type": "y",
        },
    ),
    Pretrained(
        "BitForImageClassification",
        "vision",
        "image",
        {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "num_groups": 4},
    ),
    Pretrained(
        "HieraForImageClassification",
        "vision",
        "image",
        {
            "image_size": [32, 32],
            "patch_size": [3, 3],
            "patch_stride": [2, 2],
            "patch_padding": [1, 1],
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [1, 2],
            "query_stride": [2, 2],
            "masked_unit_size": [4, 4],
            "num_query_pool": 1,
            "masked_unit_attention": [True, False],
        },
    ),
    Pretrained("Dinov2ForImageClassification", "vision", "image"),
    Pretrained("Dinov2WithRegistersForImageClassification", "vision", "image"),
    Pretrained("DINOv3ViTModel", "vision", "image"),
    Pretrained("IJepaForImageClassification", "vision", "image"),
    Pretrained(
        "ConvNextV2ForImageClassification",
        "vision",
        "image",
        {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    ),
    Pretrained(
        "FocalNetForImageClassification",
        "vision",
        "image",
        {"embed_dim": 16, "depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3], "patch_size": 4},
    ),
    Pretrained("ViTMAEModel", "vision", "image"),
    Pretrained("ViTMSNForImageClassification", "vision", "image"),
    Pretrained("VitDetModel", "vision", "image", {"window_size": 2}),
    Pretrained(
        "SwiftFormerForImageClassification", "vision", "image", {"embed_dims": [16, 16, 32, 32], "depths": [1, 1, 1, 1]}
    ),
    Pretrained(
        "DonutSwinModel",
        "vision",
        "image",
        {"patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    Pretrained(
        "Swin2SRForImageSuperResolution",
        "vision",
        lambda: image(3, 16, 16),
        {
            "image_size": 16,
            "patch_size": 1,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "upscale": 2,
        },
    ),
    Pretrained(
        "TimesformerForVideoClassification",
        "vision",
        lambda: {"pixel_values": numbers(4, 3, 32, 32)},
        {"num_frames": 4},
    ),
    Pretrained(
        "VideoMAEForVideoClassification", "vision", lambda: {"pixel_values": numbers(4, 3, 32, 32)}, {"num_frames": 4}
    ),
    Pretrained(
        "VivitForVideoClassification",
        "vision",
        lambda: {"pixel_values": numbers(4, 3, 32, 32)},
        {"num_frames": 4, "tubelet_size": [2, 8, 8]},
    ),
    Pretrained(
        "VJEPA2Model",
        "vision",
        lambda: {"pixel_values_videos": numbers(4, 3, 32, 32)},
        {
            "crop_size": 32,
            "patch_size": 8,
            "frames_per_clip": 4,
            "hidden_size": 48,
            "pred_hidden_size": 48,
            "pred_num_attention_heads": 4,
            "pred_num_hidden_layers": 1,
            "pred_num_mask_tokens": 2,
        },
    ),
    Pretrained("CLIPModel", "multimodal", "image and text"),
    Pretrained("SiglipModel", "multimodal", "image and text"),
    Pretrained("AltCLIPModel", "multimodal", "image and text"),
    Pretrained("ChineseCLIPModel", "multimodal", "image and text"),
    Pretrained("BlipForConditionalGeneration", "multimodal", "image and text"),
    Pretrained("GroupViTModel", "multimodal", "image and text"),
    Pretrained(
        "CLIPSegForImageSegmentation", "multimodal", "image and text", {"extract_layers": [0, 1], "reduce_dim": 16}
    ),
    Pretrained("ViltModel", "multimodal", "image and text"),
    Pretrained("FlavaImageModel", "multimodal", "image"),
    Pretrained("Blip2VisionModel", "multimodal", "image"),
    Pretrained("GitForCausalLM", "multimodal", "image and text"),
    Pretrained(
        "LxmertModel",
        "multimodal",
        lambda: {"input_ids": tokens(), "visual_feats": numbers(5, 16), "visual_pos": numbers(5, 4)},
        {"visual_feat_dim": 16, "l_layers": 1, "r_layers": 1, "x_layers": 1},
    ),
    Pretrained(
        "VisualBertModel",
        "multimodal",
        lambda: {"input_ids": tokens(), "visual_embeds": numbers(5, 16)},
        {"visual_embedding_dim": 16},
    ),
    Pretrained("YolosForObjectDetection", "detection", "image", {"image_size": [32, 32], "num_detection_tokens": 4}),
    Pretrained(
        "DetrForObjectDetection",
        "detection",
        "large image",
        {
            "backbone_config": last_residual_stage,
            "use_timm_backbone": False,
            "backbone": None,
            "use_pretrained_backbone": False,
        },
    ),
    Pretrained(
        "ConditionalDetrForObjectDetection",
        "detection",
        "large image",
        {
            "backbone_config": last_residual_stage,
            "use_timm_backbone": False,
            "backbone": None,
            "use_pretrained_backbone": False,
        },
    ),
    Pretrained(
        "TableTransformerForObjectDetection",
        "detection",
        "large image",
        {
            "backbone_config": last_residual_stage,
            "use_timm_backbone": False,
            "backbone": None,
            "use_pretrained_backbone": False,
        },
    ),
    Pretrained(
        "DeformableDetrForObjectDetection",
        "detection",
        "large image",
        {
            "backbone_config": residual_stages,
            "use_timm_backbone": False,
            "backbone": None,
            "use_pretrained_backbone": False,
        },
    ),
    Pretrained(
        "Mask2FormerForUniversalSegmentation", "segmentation", "large image", {"backbone_config": window_stages}
    ),
    Pretrained("MaskFormerForInstanceSegmentation", "segmentation", "large image", {"backbone_config": window_stages}),
    Pretrained(
        "UperNetForSemanticSegmentation",
        "segmentation",
        "large image",
        {"backbone_config": window_stages, "hidden_size": 16, "auxiliary_in_channels": 64, "pool_scales": [1, 2]},
    ),
    Pretrained(
        "GLPNForDepthEstimation",
        "depth",
        "large image",
        {
            "num_encoder_blocks": 4,
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 16, 16, 32],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 16,
        },
    ),
    Pretrained(
        "DepthAnythingForDepthEstimation",
        "depth",
        lambda: image(3, 28, 28),
        {
            "backbone_config": patch_stages,
            "patch_size": 7,
            "reassemble_hidden_size": 32,
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
            "head_hidden_size": 8,
        },
    ),
    Pretrained(
        "SuperPointForKeypointDetection",
        "detection",
        "image",
        {
            "encoder_hidden_sizes": [8, 8, 16, 16],
            "decoder_hidden_size": 16,
            "keypoint_decoder_dim": 65,
            "descriptor_decoder_dim": 16,
        },
    ),
    Pretrained(
        "AutoformerModel",
        "time series",
        lambda: {
            "past_values": numbers(21),
            "past_time_features": numbers(21, 2),
            "past_observed_mask": torch.ones(2, 21),
            "future_time_features": numbers(4, 2),
            "future_values": numbers(4),
        },
        {
            "prediction_length": 4,
            "context_length": 14,
            "lags_sequence": [1, 2, 3, 7],
            "num_time_features": 2,
            "label_length": 4,
            "moving_average": 5,
        },
    ),
    Pretrained(
        "InformerModel",
        "time series",
        lambda: {
            "past_values": numbers(21),
            "past_time_features": numbers(21, 2),
            "past_observed_mask": torch.ones(2, 21),
            "future_time_features": numbers(4, 2),
            "future_values": numbers(4),
        },
        {"prediction_length": 4, "context_length": 14, "lags_sequence": [1, 2, 3, 7], "num_time_features": 2},
    ),
    Pretrained(
        "TimeSeriesTransformerModel",
        "time series",
        lambda: {
            "past_values": numbers(21),
            "past_time_features": numbers(21, 2),
            "past_observed_mask": torch.ones(2, 21),
            "future_time_features": numbers(4, 2),
            "future_values": numbers(4),
        },
        {"prediction_length": 4, "context_length": 14, "lags_sequence": [1, 2, 3, 7], "num_time_features": 2},
    ),
    Pretrained(
        "PatchTSTForPrediction",
        "time series",
        "series",
        {"context_length": 32, "patch_length": 8, "patch_stride": 8, "num_input_channels": 2, "prediction_length": 4},
    ),
    Pretrained(
        "PatchTSMixerForPrediction",
        "time series",
        "series",
        {"context_length": 32, "patch_length": 8, "patch_stride": 8, "num_input_channels": 2, "prediction_length": 4},
    ),
    Pretrained(
        "TimesFmModelForPrediction",
        "time series",
        lambda: {"past_values": numbers(32), "freq": torch.zeros(2, 1, dtype=torch.int64)},
    ),
    Pretrained(
        "DecisionTransformerModel",
        "decision",
        lambda: {
            "states": numbers(5, 3),
            "actions": numbers(5, 2),
            "rewards": numbers(5, 1),
            "returns_to_go": numbers(5, 1),
            "timesteps": torch.arange(5).expand(2, 5).clone(),
            "attention_mask": torch.ones(2, 5),
        },
        {"state_dim": 3, "act_dim": 2, "max_ep_len": 16},
    ),
    Pretrained(
        "PerceiverForMaskedLM",
        "perceiver",
        lambda: {"inputs": tokens(), "attention_mask": padding()},
        {
            "d_latents": 32,
            "num_latents": 8,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
            "qk_channels": 32,
            "v_channels": 32,
        },
    ),
    Pretrained(
        "PerceiverForImageClassificationLearned",
        "perceiver",
        lambda: {"inputs": numbers(3, 32, 32)},
        {
            "d_latents": 32,
            "num_latents": 8,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 1,
            "image_size": 32,
        },
    ),
    Pretrained("MusicgenForCausalLM", "music", lambda: {"input_ids": tokens(6).repeat(4, 1)[:8]}, {"num_codebooks": 4}),
)
