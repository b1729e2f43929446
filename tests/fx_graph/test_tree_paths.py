"""Paths of the leaves of classes that are registered without functions for their keys."""

import collections

import torch
from torch.utils import _pytree as pytree

from fx_importer import lower
from fx_importer.fx_graph.tree_paths import leaves_with_path


class Named(collections.OrderedDict):
    """Registered as diffusers registers its outputs."""


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


pytree.register_pytree_node(
    Named,
    lambda node: (list(node.values()), list(node)),
    lambda values, context: Named(zip(context, values, strict=True)),
    serialized_type_name="test_tree_paths.Named",
)
pytree.register_pytree_node(
    Pair,
    lambda node: ([node.first, node.second], None),
    lambda values, _: Pair(*values),
    serialized_type_name="test_tree_paths.Pair",
)


def test_classes_without_key_functions_have_keys_of_the_context_or_indices():
    tree = {"a": Named(x=1, y=Pair(2, [3, 4])), "b": (5,)}
    paths = {pytree.keystr(path): leaf for path, leaf in leaves_with_path(tree)}
    assert paths == {"['a']['x']": 1, "['a']['y'][0]": 2, "['a']['y'][1][0]": 3, "['a']['y'][1][1]": 4, "['b'][0]": 5}


def test_outputs_of_such_classes_lower_and_are_built_by_run():
    x = torch.ones(2)
    lowered = lower(lambda x: Named(x=x + 1, y=Pair(x * 2, x)), x, output_type="linalg-on-tensors")
    got = lowered.run(x)
    assert isinstance(got, Named)
    assert isinstance(got["y"], Pair)
    assert torch.equal(got["y"].first, x * 2)
