"""The commands of ``fx-importer llm`` and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.following import Following
from fx_importer.cli.following_arguments import takes_following
from fx_importer.cli.help_layout import Group
from fx_importer.cli.shared_arguments import Blas, Device, Json
from fx_importer.engines.engine_table import DEFAULT_ENGINE, language_model_engines
from fx_importer.output_types import OutputType

_ENGINES = "|".join(language_model_engines())
_Engine = Annotated[
    str | None,
    typer.Option(metavar=_ENGINES, help=f"The engine that runs the module. Default: {DEFAULT_ENGINE}, where it runs."),
]
_Folder = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The directory that `llm import` wrote.")]
_Temperature = Annotated[float, typer.Option(help="0 picks the most likely token; above 0, tokens are sampled.")]
_TopK = Annotated[int | None, typer.Option(help="Sample from the K most likely tokens.", metavar="K")]
_TopP = Annotated[
    float | None,
    typer.Option(help="Sample from the most likely tokens whose probabilities add up to P.", metavar="P"),
]
_Seed = Annotated[int, typer.Option(help="The seed of the sampling.")]
_Adapter = Annotated[
    Path | None,
    typer.Option(
        "--lora", metavar="FOLDER", help="A LoRA adapter that peft saved, for a model imported with --adapter-rank."
    ),
]

llm = typer.Typer(cls=Group, no_args_is_help=True, help="Import a Hugging Face language model, and run it.")


@llm.command("import")
@takes_following
def llm_import(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A folder that transformers' save_pretrained writes, with tokenizer; or a GGUF file."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="The directory to write.")],
    output_type: Annotated[
        str, typer.Option(metavar="TYPE", help="The output type of the module.")
    ] = "linalg-on-tensors",
    batch: Annotated[int, typer.Option(help="The number of sequences, 1 to 8.")] = 1,
    context: Annotated[
        int | None, typer.Option(help="The number of positions. Default: the model's limit, at most 4096.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="float32|float16|bfloat16", help="Default: the dtype of the weights.")
    ] = None,
    quantize: Annotated[
        str | None, typer.Option(metavar="int8|int4", help="Pack the weights of linear layers and embeddings.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar=_ENGINES, help=f"The engine whose form int8 matmuls are written in. Default: {DEFAULT_ENGINE}."
        ),
    ] = None,
    lora: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A LoRA adapter that peft saved, to merge into the weights.")
    ] = None,
    cache: Annotated[
        str,
        typer.Option(
            metavar="static|paged", help="The KV cache: slots for each sequence, or a pool of pages that all share."
        ),
    ] = "static",
    page_size: Annotated[int | None, typer.Option(help="Slots of a page. Default: 16.")] = None,
    pages: Annotated[
        int | None, typer.Option(help="Pages of the pool. Default: enough for --batch and --context.")
    ] = None,
    draft: Annotated[
        int | None,
        typer.Option(
            help="For speculative decoding: also write 'verify', which checks this many drafted tokens, 1 to 15."
        ),
    ] = None,
    adapter_rank: Annotated[
        int | None, typer.Option(help="Accept LoRA adapters of at most this rank at run time: `llm run --lora`.")
    ] = None,
    adapter_target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A linear layer that adapters change, such as q_proj. May be repeated. Default: all."
        ),
    ] = None,
    source_context: Annotated[
        int | None,
        typer.Option(help="The most tokens that an encoder reads. Default: the model's limit, at most 512."),
    ] = None,
    json: Json = None,
    following: Following = Following(),  # noqa: B008 - it is frozen
) -> None:
    """Write a module with prefill, decode and score.

    Weights stay in the files that they are in.
    """
    from fx_importer.cli.commands.llm import import_language_model

    import_language_model(
        folder,
        output,
        output_type=OutputType.get(output_type),
        batch=batch,
        context=context,
        dtype=dtype,
        quantize=quantize,
        engine=engine,
        lora=lora,
        cache=cache,
        page_size=page_size,
        pages=pages,
        draft=draft,
        adapter_rank=adapter_rank,
        adapter_targets=adapter_target,
        source_context=source_context,
        json=json,
        following=following,
    )


@llm.command("run")
def llm_run(
    folder: _Folder,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="The prompt; for an encoder-decoder, the source. May be repeated, up to the batch size.",
        ),
    ] = None,
    features: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A .npy file with the source of an encoder-decoder, such as a spectrogram. May be repeated.",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The first text of an encoder-decoder's output. Default: the model's start token."
        ),
    ] = None,
    engine: _Engine = None,
    device: Device = "cpu",
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens to generate.")] = 128,
    temperature: _Temperature = 0.0,
    top_k: _TopK = None,
    top_p: _TopP = None,
    seed: _Seed = 0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A string at which generation stops. May be repeated.")
    ] = None,
    lora: _Adapter = None,
    json: Json = None,
) -> None:
    """Continue prompts.

    The text is printed to standard output, the speed to standard error.
    """
    from fx_importer.cli.commands.llm import run_language_model

    options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    options |= {"seed": seed, "stop": stop or ()}
    run_language_model(folder, prompt or (), features or (), start, engine, lora, json, device, **options)


@llm.command("build")
def llm_build(
    folder: _Folder,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIRECTORY", help="The directory to write. Its name is the prefix of names in C."
        ),
    ],
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="The processor, as in `fx-importer build`.")
    ] = None,
    kind: Annotated[str, typer.Option(metavar="KIND", help="shared, static or object.")] = "shared",
    threads: Annotated[
        str | None, typer.Option(metavar="openmp", help="Run loops on OpenMP threads. Default: on one thread.")
    ] = None,
    blas: Blas = None,
) -> None:
    """Build a native library with a C header.

    At run time it maps the weights, from files that the caller names.
    """
    from fx_importer.cli.commands.llm import build_language_model

    build_language_model(folder, output, target, kind, threads, blas)


@llm.command("chat")
def llm_chat(
    folder: _Folder,
    engine: _Engine = None,
    device: Device = "cpu",
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="The most tokens of an answer. Default: what the context leaves.")
    ] = None,
    temperature: _Temperature = 0.0,
    top_k: _TopK = None,
    top_p: _TopP = None,
    seed: _Seed = 0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A string at which an answer stops. May be repeated.")
    ] = None,
    lora: _Adapter = None,
) -> None:
    """Answer each line of standard input.

    `/reset` starts anew, `/exit` and the end of input end it.
    """
    from fx_importer.cli.commands.llm_chat import chat

    options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    chat(folder, engine, device, system, lora, **options, seed=seed, stop=stop or ())


@llm.command("score")
def llm_score(
    folder: _Folder,
    text: Annotated[
        list[str], typer.Option(metavar="TEXT", help="The text to score. May be repeated, up to the batch size.")
    ],
    engine: _Engine = None,
    device: Device = "cpu",
    beside: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Another imported model, to print its perplexity too.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="For an encoder-decoder: the source of each text, repeated as --text is."),
    ] = None,
    lora: _Adapter = None,
    json: Json = None,
) -> None:
    """Print the perplexity of texts, and the number of their tokens."""
    from fx_importer.cli.commands.llm import score_texts

    score_texts(folder, text, engine, beside, source, lora, json, device)


@llm.command("serve")
def llm_serve(
    folder: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The directory that `llm import --cache paged` wrote.")
    ],
    engine: _Engine = None,
    device: Device = "cpu",
    host: Annotated[
        str, typer.Option(help="The address to listen on. The default is reachable from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port. 0: a free one.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="The name of the model in requests. Default: the directory's name.")
    ] = None,
    lora: _Adapter = None,
) -> None:
    """Serve completions and chats with OpenAI's API.

    Ctrl-C ends it.
    """
    from fx_importer.cli.commands.llm_serve import serve

    serve(folder, engine, device, host, port, name, lora)
