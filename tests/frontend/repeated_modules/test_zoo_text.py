"""Models of the zoo: the module is, text for text and with its locations, the one that tracing everything gives."""

import pytest

from fx_importer import lower
from testing.zoo import ZOO

QUICK = ("bert_small", "resnet_small", "llama_small")


def text(name: str, once: bool, dynamic: bool) -> str:
    model, args, kwargs = ZOO[name].build()
    shapes = ZOO[name].dynamic_shapes if dynamic else None
    lowered = lower(model, *args, kwargs=kwargs, output_type="torch", dynamic_shapes=shapes, reuse_traces=once)
    return lowered.module.operation.get_asm(enable_debug_info=True, large_elements_limit=8, large_resource_limit=8)


@pytest.mark.slow_rows(*(name for name in ZOO if name not in QUICK))
@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in ZOO])
def test_text_is_that_of_tracing_everything(name: str):
    assert text(name, True, False) == text(name, False, False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in ZOO if ZOO[name].dynamic_shapes])
def test_text_with_a_dynamic_batch(name: str):
    assert text(name, True, True) == text(name, False, True)
