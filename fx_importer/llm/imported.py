"""Import a language model: compile a folder or a GGUF file to a folder with a module of three functions."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.exc import UserError
from torch.export import ExportedProgram

from fx_importer import OutputType, UsageError, lower
from fx_importer.engines.engine_table import language_model_engine, language_model_engines
from fx_importer.errors import ExportError, FxImporterError, first_line
from fx_importer.fx_graph.programs import rename_state
from fx_importer.llm.architectures.vision import takes_images
from fx_importer.llm.checkpoints import gguf_blocks
from fx_importer.llm.checkpoints.loaded_model import LoadedModel
from fx_importer.llm.checkpoints.lora_arguments import AdapterArguments
from fx_importer.llm.checkpoints.model_folder import (
    GgufFile,
    ModelFolder,
    ModelSource,
    check_batch,
    read_source,
)
from fx_importer.llm.checkpoints.packed_weights import check_format
from fx_importer.llm.checkpoints.weight_stamps import stamps_of
from fx_importer.llm.entry_points import MOST_DRAFT, cache_form, export_programs
from fx_importer.llm.memory import check_conversion
from fx_importer.llm.settings import SETTINGS, Settings
from fx_importer.llm.source_settings import source_form, with_source
from fx_importer.mlir.output_files import complete_directory
from fx_importer.targets import target_for
from fx_importer.weights import write_weights

if TYPE_CHECKING:
    from fx_importer import Lowered

MODULE = "model.mlirbc"
WEIGHTS = "weights.safetensors"
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_CHUNK = 64


def import_model(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    output_type: str | OutputType = OutputType.LINALG_ON_TENSORS,
    batch: int = 1,
    context: int | None = None,
    dtype: str | None = None,
    quantize: str | Any = None,
    engine: str | None = None,
    lora: str | os.PathLike[str] | None = None,
    cache: str = "static",
    page_size: int | None = None,
    pages: int | None = None,
    draft: int | None = None,
    adapter_rank: int | None = None,
    adapter_targets: Sequence[str] | None = None,
    source_context: int | None = None,
) -> Path:
    """Compile a language model to a module with ``prefill``, ``decode`` and ``score``, plus the files to run it.

    Args:
        folder: a folder with config.json, tokenizer and safetensors, as `save_pretrained` writes it; or a GGUF file.
        output: the folder to write, which is complete or left as it was: ``model.mlirbc`` and its manifest,
            ``llm.json``, tokenizer and generation config. Weights stay in their original files where possible;
            otherwise they are written here.
        output_type: the output type of the module; ``raw`` is not supported.
        batch: the number of sequences, 1 to 8.
        context: the number of positions, at most the model's maximum; defaults to that maximum, capped at 4096.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``; by default the dtype of the weights, or float32 for
            quantized GGUF files.
        quantize: ``"int8"`` or ``"int4"``, the weight format of linear layers, or a configuration for torchao's
            ``quantize_``. The weights are then written to a new file in ``output``.
        engine: the engine that reductions over ``"int8"`` weights are optimized for; by default XLA for StableHLO, and
            the JIT otherwise. The module still runs on other engines.
        lora: a folder with a PEFT adapter to merge into the weights, which are then written to a new file in
            ``output``.
        cache: ``"static"``, with ``context`` slots per sequence, or ``"paged"``, with one pool for all sequences.
        page_size: the number of token slots per page; by default 16.
        pages: the number of pages in the pool; by default enough for ``batch`` sequences of ``context`` positions, plus
            one scratch page.
        draft: add ``verify``, which takes one token and this many draft tokens, 1 to 15, and returns all logits.
        adapter_rank: take a LoRA adapter of at most this rank as arguments: `LanguageModel.use_adapter`.
        adapter_targets: suffixes of the names of the linear layers to adapt, like PEFT's ``target_modules``; by default
            all linear layers except the output head.
        source_context: for an encoder-decoder, whose module also has ``encode``, the most tokens that this takes; by
            default the model's maximum, capped at 512.

    Returns:
        The folder that was written.

    Raises:
        UsageError: if the folder is incomplete, its weights are not the model's, an architecture or a number is
            not supported, files cannot be written, or there is not enough memory to convert the weights.
        FxImporterError: if the model cannot be exported or lowered.
    """
    path, target = Path(folder), Path(output)
    kind = OutputType.get(output_type)
    check_batch(batch)
    _check_arguments(dtype, quantize, engine, draft)
    if adapter_targets is not None and adapter_rank is None:
        raise UsageError("adapter_targets without adapter_rank, the largest rank of adapters that are arguments")
    source = read_source(path)
    _check_weights(source, path, dtype, is_changed=quantize is not None or lora is not None, packs=quantize is not None)
    positions = source.checked_context(context)
    form = cache_form(cache, batch, positions, page_size, pages)
    output_target = target_for(kind)
    dynamic = output_target.dynamic_shapes and not output_target.specializes_sizes
    chunk = None if dynamic else math.gcd(positions, _CHUNK)  # the number of tokens of a prompt in one call
    loaded = source.load(_DTYPES.get(dtype or ""))
    model = loaded.model
    form = with_source(form, model, source_context, adapter_rank)
    if lora is not None:
        _merge(model, Path(lora))
    default_engine = language_model_engine(kind)
    if quantize is not None:
        _quantize(model, quantize, engine or default_engine)
    adapters = None if adapter_rank is None else AdapterArguments(model, adapter_rank, adapter_targets)
    fused = language_model_engines()[default_engine].fuses_sums
    programs, chunk = _exported(form, model, chunk, positions, fused=fused, draft=draft, adapters=adapters)
    programs = {name: rename_state(program, loaded.names) for name, program in programs.items()}
    lowered = lower(
        programs, output_type=kind, mutation="functional", weights="external", extra=gguf_blocks.DECOMPOSITIONS
    )
    image_token = model.config.image_token_id if takes_images(model) else None
    try:
        with complete_directory(target) as new:
            weights = _save(lowered, loaded, path, new, partly=isinstance(source, GgufFile))
            settings = Settings(
                batch,
                positions,
                chunk,
                weights,
                _stop_tokens(model),
                form.page_size,
                form.pages,
                draft,
                image_token,
                adapters and adapters.form,
                source_form(model, form, chunk),
                stamps_of(new, weights),
            )
            (new / SETTINGS).write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")
            source.write_tokenizer(new)
            if WEIGHTS not in weights:
                (target / WEIGHTS).unlink(missing_ok=True)  # of an earlier import
    except OSError as error:
        raise UsageError(f"'{target}' cannot be written: {error}") from None
    return target


def _check_arguments(dtype: str | None, quantize: str | Any, engine: str | None, draft: int | None) -> None:
    if dtype is not None and dtype not in _DTYPES:
        raise UsageError(f"the dtype {dtype!r}: accepted are {', '.join(_DTYPES)}")
    if quantize is None or isinstance(quantize, str):
        check_format(quantize)
    if engine is not None and engine not in language_model_engines():
        raise UsageError(f"the engine {engine!r}: accepted are {', '.join(language_model_engines())}")
    if draft is not None and not 1 <= draft <= MOST_DRAFT:
        raise UsageError(f"a draft of {draft} tokens: accepted are 1 to {MOST_DRAFT}")


def _check_weights(source: ModelSource, path: Path, dtype: str | None, *, is_changed: bool, packs: bool) -> None:
    """Raise `UsageError` if the weights are packed and to be changed, or do not fit into memory once converted."""
    if source.is_quantized and is_changed:
        raise UsageError(
            f"the weights in '{path}' stay as they are: quantize and lora need a model that is not quantized"
        )
    if isinstance(source, ModelFolder) and not source.is_quantized:
        check_conversion(path, _DTYPES.get(dtype or ""), packs)


def _exported(
    form: Any, model: Any, chunk: int | None, positions: int, **options: Any
) -> tuple[dict[str, ExportedProgram], int | None]:
    """Return the result of `export_programs`, and the chunk, which is a number if the model's code needs one.

    Raises:
        ExportError: if torch.export cannot capture the model's code with our cache.
    """
    try:
        try:
            return export_programs(form, model, chunk, **options)
        except (UserError, AssertionError) as error:
            if isinstance(error, AssertionError) and _NO_SIZE not in str(error):
                raise
            # The code specializes on the prompt length.
            return export_programs(form, model, math.gcd(positions, _CHUNK), **options)
    except (FxImporterError, Warning):
        raise
    except Exception as error:
        raise ExportError(
            f"torch.export cannot capture transformers' {type(model).__name__} with its cache as state: "
            f"{first_line(error)}"
        ) from error


_NO_SIZE = "Cannot create Dim with inconsistent"
"""What torch.export says where it would suggest a dynamic size, and no size satisfies the code."""


def _merge(model: Any, adapter: Path) -> None:
    from fx_importer.llm.checkpoints.lora import merge

    merge(model, adapter)


def _quantize(model: Any, how: Any, engine: str) -> None:
    from fx_importer.llm.checkpoints.quantize import quantize, quantize_by_torchao

    if isinstance(how, str):
        quantize(model, how, engine=engine)
    else:
        quantize_by_torchao(model, how)


def _save(lowered: Lowered, loaded: LoadedModel, source: Path, target: Path, *, partly: bool) -> tuple[str, ...]:
    """Write the module, and the weights that differ from ``source``. Return the locations of the weights.

    Unless ``partly``, all weights are written if any of them differs.
    """
    listed = lowered.manifest.weights_by_name
    weights = lowered.held(listed)
    changed = {
        name: weights[name]
        for name, weight in listed.items()
        if not any(_is_same(loaded.stored.get(key), weights[name]) for key in (name, *weight.also))
    }
    if changed and not partly:
        lowered.save(target / MODULE, weights=target / WEIGHTS)
        return (WEIGHTS,)
    lowered.save(target / MODULE)
    if changed:
        write_weights(changed, target / WEIGHTS)
    return (*([WEIGHTS] if changed else ()), str(source.absolute()))


def _is_same(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Return whether tensors have the same type and bits. Aliases are not read, since they may be mapped files."""
    if one is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.data_ptr() == other.data_ptr() and one.stride() == other.stride():
        return True
    one, other = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return torch.equal(one, other)


def _stop_tokens(model: Any) -> tuple[int, ...]:
    tokens = model.generation_config.eos_token_id
    return () if tokens is None else tuple(tokens) if isinstance(tokens, list) else (tokens,)
