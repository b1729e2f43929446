"""Models of images, alone and with text, of `transformers`, made small."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from testing.families.pretrained import Pretrained, alike, numbers, padding, tokens


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
pose_stage = partial(
    _backbone,
    "VitPoseBackboneConfig",
    image_size=[32, 32],
    patch_size=[8, 8],
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    out_indices=[2],
)

_PYRAMID: dict[str, Any] = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "hidden_sizes": [16, 32],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
}
_PROMPTED: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_pos_feats": 16,
    "image_size": 64,
    "patch_size": 8,
}
_DRAWN: dict[str, Any] = {"hidden_size": 32, "d_ff": 32, "d_kv": 8}
_OWN_BACKBONE: dict[str, Any] = {"use_timm_backbone": False, "backbone": None, "use_pretrained_backbone": False}
_LATENTS: dict[str, Any] = {
    "d_latents": 32,
    "num_latents": 8,
    "num_blocks": 1,
    "num_self_attends_per_block": 2,
    "num_self_attention_heads": 4,
}

PERCEPTION: tuple[Pretrained, ...] = (
    *alike(
        "vision",
        "image",
        "DeiTForImageClassification Dinov2ForImageClassification Dinov2WithRegistersForImageClassification "
        "DINOv3ViTModel IJepaForImageClassification ViTMSNForImageClassification",
    ),
    *alike("vision", lambda: {**image(3, 32, 32), "noise": numbers(16)}, "ViTMAEModel"),
    *alike("vision", "image", "BeitForImageClassification", use_relative_position_bias=True, out_indices=None),
    *alike(
        "vision",
        "image",
        "Swinv2ForImageClassification DonutSwinModel",
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    *alike(
        "vision", "image", "PvtForImageClassification", sequence_reduction_ratios=[2, 1], patch_sizes=[4, 2], **_PYRAMID
    ),
    *alike("vision", "image", "PvtV2ForImageClassification", sr_ratios=[2, 1], patch_sizes=[7, 3], **_PYRAMID),
    *alike(
        "vision",
        "large image",
        "SegformerForSemanticSegmentation",
        sr_ratios=[2, 1],
        patch_sizes=[7, 3],
        **_PYRAMID,
        decoder_hidden_size=16,
    ),
    *alike(
        "vision", "image", "MobileNetV1ForImageClassification MobileNetV2ForImageClassification", depth_multiplier=0.25
    ),
    *alike(
        "vision",
        "image",
        "MobileViTForImageClassification",
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 8, 8, 8, 8, 16],
        image_size=32,
        patch_size=2,
    ),
    *alike(
        "vision",
        "image",
        "RegNetForImageClassification",
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        groups_width=8,
        layer_type="y",
    ),
    *alike(
        "vision",
        "image",
        "BitForImageClassification",
        embedding_size=8,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        num_groups=4,
    ),
    *alike(
        "vision",
        "image",
        "HieraForImageClassification",
        image_size=[32, 32],
        patch_size=[3, 3],
        patch_stride=[2, 2],
        patch_padding=[1, 1],
        embed_dim=16,
        depths=[1, 1],
        num_heads=[1, 2],
        query_stride=[2, 2],
        masked_unit_size=[4, 4],
        num_query_pool=1,
        masked_unit_attention=[True, False],
    ),
    *alike("vision", "image", "ConvNextV2ForImageClassification", hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
    *alike(
        "vision",
        "image",
        "FocalNetForImageClassification",
        embed_dim=16,
        depths=[1, 1],
        focal_levels=[2, 2],
        focal_windows=[3, 3],
        patch_size=4,
    ),
    *alike(
        "vision",
        "large image",
        "LevitForImageClassification",
        image_size=64,
        patch_size=16,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=[2, 3, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    *alike("vision", "image", "PoolFormerForImageClassification", hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    *alike(
        "vision",
        "large image",
        "EfficientNetForImageClassification",
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=0.3,
        hidden_dim=320,
    ),
    *alike("vision", "image", "VitDetModel", window_size=2),
    *alike("vision", "image", "SwiftFormerForImageClassification", embed_dims=[16, 16, 32, 32], depths=[1, 1, 1, 1]),
    *alike(
        "vision",
        lambda: image(3, 16, 16),
        "Swin2SRForImageSuperResolution",
        image_size=16,
        patch_size=1,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
        upscale=2,
    ),
    *alike(
        "vision",
        lambda: {"pixel_values": numbers(4, 3, 32, 32)},
        "TimesformerForVideoClassification VideoMAEForVideoClassification",
        num_frames=4,
    ),
    *alike(
        "vision",
        lambda: {"pixel_values": numbers(4, 3, 32, 32)},
        "VivitForVideoClassification",
        num_frames=4,
        tubelet_size=[2, 8, 8],
    ),
    *alike(
        "vision",
        lambda: {"pixel_values_videos": numbers(4, 3, 32, 32)},
        "VJEPA2Model",
        crop_size=32,
        patch_size=8,
        frames_per_clip=4,
        hidden_size=48,
        pred_hidden_size=48,
        pred_num_attention_heads=4,
        pred_num_hidden_layers=1,
        pred_num_mask_tokens=2,
    ),
    *alike(
        "multimodal",
        "image and text",
        "CLIPModel SiglipModel AltCLIPModel ChineseCLIPModel BlipForConditionalGeneration GroupViTModel "
        "ViltModel GitForCausalLM",
    ),
    *alike("multimodal", "image and text", "CLIPSegForImageSegmentation", extract_layers=[0, 1], reduce_dim=16),
    *alike("multimodal", "image", "FlavaImageModel Blip2VisionModel"),
    *alike(
        "multimodal",
        lambda: {"input_ids": tokens(), "visual_feats": numbers(5, 16), "visual_pos": numbers(5, 4)},
        "LxmertModel",
        visual_feat_dim=16,
        l_layers=1,
        r_layers=1,
        x_layers=1,
    ),
    *alike(
        "multimodal",
        lambda: {"input_ids": tokens(), "visual_embeds": numbers(5, 16)},
        "VisualBertModel",
        visual_embedding_dim=16,
    ),
    *alike(
        "detection",
        "image and text",
        "OwlViTForObjectDetection",
        projection_dim=32,
        text_config={"projection_dim": 32, "hidden_size": 32},
    ),
    *alike("detection", "image", "YolosForObjectDetection", image_size=[32, 32], num_detection_tokens=4),
    *alike(
        "detection",
        "large image",
        "DetrForObjectDetection ConditionalDetrForObjectDetection TableTransformerForObjectDetection",
        backbone_config=last_residual_stage,
        **_OWN_BACKBONE,
    ),
    *alike(
        "detection", "large image", "DeformableDetrForObjectDetection", backbone_config=residual_stages, **_OWN_BACKBONE
    ),
    *alike(
        "detection",
        "image",
        "SuperPointForKeypointDetection",
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        keypoint_decoder_dim=65,
        descriptor_decoder_dim=16,
    ),
    *alike(
        "detection",
        "large image",
        "RTDetrForObjectDetection",
        d_model=32,
        encoder_hidden_dim=32,
        encoder_in_channels=[8, 16, 16],
        encoder_ffn_dim=32,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=32,
        decoder_attention_heads=4,
        feat_strides=[8, 16, 32],
        num_feature_levels=3,
        backbone_config=residual_stages,
        **_OWN_BACKBONE,
    ),
    *alike("keypoints", "image", "VitPoseForPoseEstimation", backbone_config=pose_stage),
    *alike(
        "segmentation",
        lambda: {**image(3, 64, 64), "input_points": torch.tensor([[[[5.0, 9.0]]], [[[30.0, 20.0]]]])},
        "SamModel",
        vision_config=_PROMPTED | {"output_channels": 32, "window_size": 4, "global_attn_indexes": [1], "mlp_dim": 64},
        prompt_encoder_config=_PROMPTED | {"mask_input_channels": 4},
        mask_decoder_config={"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 4, "iou_head_hidden_dim": 16},
    ),
    *alike(
        "segmentation",
        "large image",
        "Mask2FormerForUniversalSegmentation MaskFormerForInstanceSegmentation",
        backbone_config=window_stages,
    ),
    *alike(
        "segmentation",
        "large image",
        "UperNetForSemanticSegmentation",
        backbone_config=window_stages,
        hidden_size=16,
        auxiliary_in_channels=64,
        pool_scales=[1, 2],
    ),
    *alike(
        "depth",
        "large image",
        "GLPNForDepthEstimation",
        num_encoder_blocks=4,
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 16, 32],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
    ),
    *alike(
        "depth",
        "image",
        "DPTForDepthEstimation",
        num_hidden_layers=4,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        is_hybrid=False,
    ),
    *alike(
        "text in images",
        lambda: {"flattened_patches": numbers(9, 50).abs().round(), "decoder_input_ids": tokens(6)},
        "Pix2StructForConditionalGeneration",
        vision_config=_DRAWN | {"patch_embed_hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
        text_config=_DRAWN | {"num_layers": 2, "num_heads": 4, "vocab_size": 99},
    ),
    *alike("text in images", "ids", "TrOCRForCausalLM"),
    *alike(
        "text in images",
        "image",
        "MgpstrForSceneTextRecognition",
        image_size=[32, 32],
        max_token_length=5,
        num_character_labels=9,
        num_bpe_labels=20,
        num_wordpiece_labels=20,
    ),
    *alike(
        "text in images",
        lambda: {**image(3, 32, 32), "input_ids": tokens(), "bbox": torch.tensor([1, 2, 9, 12]).repeat(2, 12, 1)},
        "LayoutLMv3ForTokenClassification",
        input_size=32,
        coordinate_size=4,
        shape_size=8,
        max_2d_position_embeddings=64,
    ),
    *alike(
        "depth",
        lambda: image(3, 28, 28),
        "DepthAnythingForDepthEstimation",
        backbone_config=patch_stages,
        patch_size=7,
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        head_hidden_size=8,
    ),
    *alike(
        "perceiver",
        lambda: {"inputs": tokens(), "attention_mask": padding()},
        "PerceiverForMaskedLM",
        **_LATENTS,
        num_cross_attention_heads=4,
        qk_channels=32,
        v_channels=32,
    ),
    *alike(
        "perceiver",
        lambda: {"inputs": numbers(3, 32, 32)},
        "PerceiverForImageClassificationLearned",
        **_LATENTS,
        num_cross_attention_heads=1,
        image_size=32,
    ),
)
