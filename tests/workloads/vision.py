"""Image and speech models from transformers."""

import torch

from workloads.base import Workload, model_loss, tokens

_CLASSES = 10
_IMAGE = 64


def _vit(dropout):
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(
        hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768, image_size=_IMAGE,
        patch_size=8, num_labels=_CLASSES))


def _resnet(dropout):
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic",
        num_labels=_CLASSES))


def _convnext(dropout):
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(ConvNextConfig(
        hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2], image_size=_IMAGE, num_labels=_CLASSES))


def _whisper(dropout):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    return WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=1024, num_mel_bins=80, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, max_source_positions=100,
        max_target_positions=64, use_cache=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None, apply_spec_augment=False))


def _images(rows):
    def make(generator):
        return {"pixel_values": torch.randn(rows, 3, _IMAGE, _IMAGE, generator=generator),
                "labels": torch.randint(0, _CLASSES, (rows,), generator=generator)}
    return make


def _speech(generator):
    return {"input_features": torch.randn(4, 80, 200, generator=generator), "labels": tokens(generator, 4, 32, 1024)}


VIT = Workload("vit", _vit, _images(8), model_loss)
RESNET = Workload("resnet", _resnet, _images(8), model_loss)
CONVNEXT = Workload("convnext", _convnext, _images(8), model_loss)
WHISPER = Workload("whisper", _whisper, _speech, model_loss)
