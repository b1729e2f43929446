"""State: buffers that a program reads, mutates and keeps between calls, on the JIT against eager PyTorch."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export, load, save
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

from fx_importer import FxImporter, UnsupportedProgramError, UsageError, lower
from fx_importer.manifest import Manifest


class Kept(nn.Module):
    """A tensor held in one of four ways; ``writes`` says whether ``forward`` mutates it."""

    def __init__(self, how: str, writes: bool):
        super().__init__()
        value = torch.arange(3.0)
        self.value: Any
        if how == "parameter":
            self.value = nn.Parameter(value)
        elif how == "constant":
            self.value = value
        else:
            self.register_buffer("value", value, persistent=how == "persistent")
        self.writes = writes

    def forward(self, x):
        if self.writes:
            with torch.no_grad():
                self.value.mul_(2).add_(x)
        return self.value * x


HOW = ("parameter", "persistent", "non-persistent", "constant")
X = torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("mutation", ["error", "functional", "mutable"])
def test_unmutated_tensor_is_a_constant(how, mutation):
    model = Kept(how, writes=False)
    lowered = lower(model, X, mutation=mutation, output_type="linalg")
    assert torch.equal(lowered.run(X), model(X).detach())
    assert not lowered.manifest.state
    (held,) = lowered.manifest.constants.values()
    assert held.kind == ("constant" if how == "constant" else "parameter" if how == "parameter" else "buffer")
    assert held.persistent == (how != "non-persistent")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_mutated_tensor_is_state(how, mutation):
    model = Kept(how, writes=True)
    lowered = lower(copy.deepcopy(model), X, mutation=mutation, output_type="linalg")
    assert list(lowered.manifest.state) == ["value"]
    caller = lowered.caller()
    for turn in range(4):
        assert torch.equal(caller(X + turn), model(X + turn).detach())
        assert torch.equal(caller.state["value"], model.value)
    torch.testing.assert_close(lowered.caller().state["value"], torch.arange(3.0))  # each starts from the initial state


@pytest.mark.parametrize("how", HOW)
def test_mutation_without_a_policy_is_an_error(how):
    with pytest.raises(UnsupportedProgramError, match=r"(?s)value: the.*test_state.py") as raised:
        lower(Kept(how, writes=True), X)
    assert "mutation='functional'" in str(raised.value)
    assert "mutation='mutable'" in str(raised.value)


class Decoder(nn.Module):
    """One attention head over a cache of eight positions."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.keys: torch.Tensor
        self.values: torch.Tensor
        self.position: torch.Tensor
        self.register_buffer("keys", torch.zeros(8, 4))
        self.register_buffer("values", torch.zeros(8, 4), persistent=False)
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        query, key, value = self.qkv(x).split(4, -1)
        at = self.position + torch.arange(x.shape[0])
        self.keys.index_copy_(0, at, key)
        self.values.index_copy_(0, at, value)
        self.position.add_(x.shape[0])
        seen = torch.arange(8)[None] <= at[:, None]
        scores = torch.where(seen, query @ self.keys.T, float("-inf"))
        return scores.softmax(-1) @ self.values


def entry_points(model: nn.Module, through_files: bool) -> dict[str, torch.export.ExportedProgram]:
    with torch.no_grad():
        programs = {"prefill": export(model, (torch.randn(3, 4),)), "decode": export(model, (torch.randn(1, 4),))}
    if not through_files:
        return programs
    loaded = {}
    for name, program in programs.items():
        save(program, file := io.BytesIO())
        loaded[name] = load(io.BytesIO(file.getvalue()))
    return loaded


@pytest.mark.slow_rows("^linalg-.*-True$")
@pytest.mark.parametrize(
    "output_type, mutation, through_files",
    [
        *(
            ("linalg", mutation, through_files)
            for mutation in ("functional", "mutable")
            for through_files in (False, True)
        ),
        ("tosa", "functional", False),
        ("stablehlo", "functional", True),
    ],
)
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # of torch 2.12 in torch.export.load
def test_prefill_and_four_steps_of_decoding(output_type, mutation, through_files):
    torch.manual_seed(0)
    model = Decoder().eval()
    lowered = lower(entry_points(model, through_files), mutation=mutation, output_type=output_type)
    if output_type != "tosa":  # whose constants are folded and transposed
        assert str(lowered.module).count("qkv.weight: ") == 1  # stored once
    assert list(lowered.manifest.state) == ["keys", "values", "position"]
    decoder = lowered.caller()
    with torch.no_grad():
        for x in (torch.randn(3, 4), *torch.randn(4, 1, 4)):
            step = decoder["prefill" if len(x) == 3 else "decode"]
            torch.testing.assert_close(step(x), model(x))
        for name, tensor in model.named_buffers():
            torch.testing.assert_close(decoder.state[name], tensor)


class Step(nn.Module):
    """One decoding step."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4, bias=False)
        self.keys: torch.Tensor
        self.position: torch.Tensor
        self.register_buffer("keys", torch.zeros(8, 4))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int32))

    def forward(self, x):
        places = torch.arange(8, dtype=torch.int32)
        here = (places == self.position)[:, None]
        self.keys.copy_(torch.where(here, self.project(x), self.keys))
        seen = (places <= self.position)[None]
        self.position.add_(1)
        scores = torch.where(seen, x @ self.keys.T, -1e9)
        return scores.softmax(-1) @ self.keys


@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_four_steps_of_decoding_in_every_dialect(output_type):
    model = Step().requires_grad_(False)
    lowered = lower(copy.deepcopy(model), torch.zeros(1, 4), mutation="functional", output_type=output_type)
    decoder = lowered.caller()
    torch.manual_seed(0)
    for _ in range(4):
        x = torch.randn(1, 4)
        torch.testing.assert_close(decoder(x), model(x))
    torch.testing.assert_close(decoder.state, dict(model.named_buffers()))


class Library(nn.Module):
    """Keeps its cache in an object that is not a module, and the same tensor in a buffer, as transformers does."""

    class Cache:
        def __init__(self):
            self.rows = torch.zeros(1, 2, 8, 4)
            self.length = torch.zeros(1, dtype=torch.int64)

    def __init__(self):
        super().__init__()
        self.cache = self.Cache()
        self.register_buffer("rows", self.cache.rows, persistent=False)

    def forward(self, x):
        self.cache.rows.index_copy_(2, self.cache.length, x)
        self.cache.length.add_(1)
        return self.cache.rows.sum(2)


@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_cache_that_is_a_buffer_and_an_attribute(output_type):
    model = Library()
    lowered = lower(copy.deepcopy(model), torch.ones(1, 2, 1, 4), mutation="functional", output_type=output_type)
    assert list(lowered.manifest.state)[:1] == ["rows"]
    assert len(lowered.manifest.state) == 2
    ours = lowered.caller()
    for turn in range(4):
        x = torch.full((1, 2, 1, 4), turn + 1.0)
        torch.testing.assert_close(ours(x), model(x))
    torch.testing.assert_close(ours.state["rows"], model.cache.rows)


@pytest.mark.slow_rows("^stablehlo$")
@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_static_cache_of_transformers(output_type):
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    llama = LlamaForCausalLM(config).eval()
    llama.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=8,
        cache_config={"batch_size": 1, "max_cache_len": 8, "device": "cpu"},
    )
    model = TorchExportableModuleWithStaticCache(llama)

    def inputs(token: int, position: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[token]]), "cache_position": torch.tensor([position])}

    with torch.no_grad():
        lowered = lower(copy.deepcopy(model), kwargs=inputs(1, 0), mutation="functional", output_type=output_type)
        assert list(lowered.manifest.state)[:3] == ["key_cache_0", "value_cache_0", "cumulative_length_0"]
        remarks = [remark for stage in lowered.trace.stages for remark in stage.remarks]
        assert not [remark for remark in remarks if "traced again" in remark]
        if output_type != "tosa":  # which has no conversion of 64-bit positions to floats
            for position in range(4):
                given = inputs(7 + position, position)
                torch.testing.assert_close(lowered.run(**given), model(**given))


def test_state_mutated_by_another_entry_point_is_state():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count: torch.Tensor
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x, step: bool):
            if step:
                self.count.add_(x)
            return self.count * 10

    model = Counter()
    programs = {
        "step": export(model, (torch.ones(2), True)),
        "read": export(model, (torch.ones(2), False)),
    }
    caller = lower(programs, mutation="functional", output_type="linalg").caller()
    caller["step"](torch.ones(2), True)
    assert torch.equal(caller["read"](torch.ones(2), False), torch.full((2,), 10.0))


@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_mutated_inputs(mutation):
    def model(x, rows):
        rows["out"][0] = x
        return rows["out"].sum()

    lowered = lower(model, X, {"out": torch.zeros(2, 3)}, mutation=mutation, output_type="linalg")
    ours, eager = {"out": torch.ones(2, 3)}, {"out": torch.ones(2, 3)}
    assert torch.equal(lowered.run(X, ours), model(X, eager))
    assert torch.equal(ours["out"], eager["out"])


@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_input_that_is_written_as_a_result_of_broadcast_tensors(mutation):
    def model(x, y):
        rows, others = torch.broadcast_tensors(x, y)
        rows.sigmoid_()
        return others + 1

    lowered = lower(model, X, torch.ones(3), mutation=mutation, output_type="linalg")
    ours, eager = X.clone(), X.clone()
    assert torch.equal(lowered.run(ours, torch.ones(3)), model(eager, torch.ones(3)))
    torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_swapped_state(mutation):
    """New values are old values of others, and results are old values: no buffer may be read after its write."""

    class Exchange(nn.Module):
        def __init__(self):
            super().__init__()
            self.a: torch.Tensor
            self.b: torch.Tensor
            self.register_buffer("a", torch.zeros(3))
            self.register_buffer("b", torch.ones(3))

        def forward(self, x):
            old_a, old_b = self.a.clone(), self.b.clone()
            self.a.copy_(old_b)
            self.b.copy_(x)
            return old_a, old_b.view(3, 1)

    model = Exchange()
    caller = lower(copy.deepcopy(model), X, mutation=mutation, output_type="linalg").caller()
    for turn in range(3):
        for ours, eager in zip(caller(X + turn), model(X + turn), strict=True):
            assert torch.equal(ours, eager)
        assert torch.equal(caller.state["a"], model.a)
        assert torch.equal(caller.state["b"], model.b)


@pytest.mark.parametrize("output_type", ["tosa", "stablehlo"])
def test_only_torch_and_linalg_mutate_in_place(output_type):
    with pytest.raises(UsageError, match="mutation='functional'"):
        lower(Kept("persistent", writes=True), X, mutation="mutable", output_type=output_type)


def test_export_does_not_change_attributes():
    model = Kept("constant", writes=True)
    lower(model, X, mutation="functional")
    assert torch.equal(model.value, torch.arange(3.0))


def test_attribute_that_is_an_inference_tensor():
    model = Kept("persistent", writes=False)
    with torch.inference_mode():
        model.other = torch.ones(3)
    model.forward = lambda x: x + model.other
    assert torch.equal(lower(model, X, output_type="linalg").run(X), X + 1)


@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_input_and_buffer_of_one_name_in_eager(mutation):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.x: torch.Tensor
            self.register_buffer("x", torch.zeros(3))

        def forward(self, x):
            self.x.add_(x)
            return self.x * 1

    model = Model()
    caller = lower(copy.deepcopy(model), X, mutation=mutation, output_type="linalg").caller(backend="eager")
    for _ in range(2):
        torch.testing.assert_close(caller(X), model(X))
    torch.testing.assert_close(caller.state["x"], model.x)


class Broadcast(nn.Module):
    """Writes to a buffer that ``broadcast_tensors`` of a loss returned, beside a view that makes torch retrace."""

    seen: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(3))

    def forward(self, x):
        view = self.seen.as_strided((2,), (2,))
        loss = nn.functional.smooth_l1_loss(x, self.seen)
        return self.seen.add_(loss), view * 1


def test_writes_to_broadcast_state_are_kept():
    model = Broadcast()
    call = lower(model, X, output_type="linalg-on-tensors", mutation="functional").caller()
    for _ in range(3):
        torch.testing.assert_close(call(X), model(X))


def test_manifest_does_not_fit_other_functions():
    importer = FxImporter()
    lower(Kept("persistent", writes=True), X, fx_importer=importer, func_name="first", mutation="functional")
    second = lower(nn.Linear(3, 3), X, fx_importer=importer, func_name="second")
    assert list(second.manifest.functions) == ["second"]
    assert not second.manifest.state
    assert sorted(second.manifest.constants) == ["bias", "weight"]


@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_written_input_whose_elements_share_memory_is_an_error(mutation):
    def add(x, y):
        return x.add_(y) * 2

    call = lower(add, torch.ones(3, 2), torch.ones(2), output_type="linalg-on-tensors", mutation=mutation).caller()
    for overlapping in (torch.ones(2).expand(3, 2), torch.ones(6).as_strided((3, 2), (1, 1))):
        with pytest.raises(UsageError, match=r"the input 'x' is written, but its elements share memory"):
            call(overlapping, torch.ones(2))
    for strided in (torch.ones(3, 4)[:, ::2], torch.ones(2, 3).t(), torch.ones(3, 2)):
        torch.testing.assert_close(call(strided, torch.ones(2)), torch.full((3, 2), 4.0))
        torch.testing.assert_close(strided, torch.full((3, 2), 2.0))
    assert call(torch.ones(3, 2), torch.ones(1).expand(2)).shape == (3, 2)  # which is only read
    memory = torch.ones(8)
    for other in (memory[5:7], memory[0:6:4]):
        with pytest.raises(UsageError, match=r"the input 'x' is written, and another input shares its memory"):
            call(memory[:6].view(3, 2), other)
    assert torch.equal(call(memory[:6].view(3, 2), memory[6:]), torch.full((3, 2), 4.0))
    columns = torch.ones(3, 4)
    assert torch.equal(call(columns[:, :2], columns[0, 2:]), torch.full((3, 2), 4.0))


@pytest.mark.parametrize(
    "write", [lambda x: x.zero_(), lambda x: x[:, 0].fill_(2.0), lambda x: x.masked_fill_(x > 2, 0)]
)
def test_writes_to_expanded_tensors_are_refused(write):
    def model(x):
        write(x.expand(2, 3, 2))
        return x * 2

    with pytest.raises(UnsupportedProgramError, match="elements share memory(.|\\n)*has the strides"):
        lower(model, torch.ones(3, 2), output_type="linalg-on-tensors", mutation="functional")


def test_outputs_that_alias_a_written_tensor_are_named():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.state: torch.Tensor
            self.register_buffer("state", torch.zeros(2))

        def forward(self, x, y):
            self.state.add_(y[0])
            x.split(1)[0].mul_(2)
            return x, x.t()[0], x + 1, x.clone(), x.half(), y, self.state[:1]

    lowered = lower(Writes(), torch.ones(2, 2), torch.ones(2, 2), output_type="linalg", mutation="functional")
    results = lowered.manifest.functions["main"].results
    assert [each.alias_of for each in results if each.kind == "output"] == ["x", "x", None, None, None, None, "state"]
    assert Manifest.from_json(lowered.manifest.to_json()) == lowered.manifest
