"""Programs of several devices: running them, dividing them in another way, and the bytes that they move."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fx_importer.calls.mesh_caller import MeshCaller
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed import Mesh, Plan
from fx_importer.distributed.communication import Communication, of_function, of_hlo
from fx_importer.engines.engine_table import backend_named, mesh_loaders
from fx_importer.errors import UsageError
from fx_importer.mlir.module_contents import copy_module
from fx_importer.options import DecompositionOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines.division import divide
from fx_importer.results.lowered_record import LoweredRecord
from fx_importer.targets import Collectives, target_for

if TYPE_CHECKING:
    from typing_extensions import Self

    from fx_importer.results.lowered import Lowered


class LoweredOnMesh(LoweredRecord):
    """A lowering whose module may run on several devices."""

    def caller_on_mesh(
        self, states: Sequence[Mapping[str, torch.Tensor]] | None = None, *, backend: str | None = None
    ) -> MeshCaller:
        """Return the functions of the program of each rank, ready to run in this process.

        Args:
            states: the initial state of each rank, by default the exported programs' for all. May contain weights that
                functions take. After `join_processes`, only the ranks of this process, in order, have states, inputs
                and outputs here.
            backend: XLA's, a device of XLA for each rank, by default; or the JIT's, a thread for each, which needs no
                extra.

        Raises:
            NotInstalledError: without the extra that the backend needs.
            UsageError: if the module is not StableHLO with a mesh, or a program of whole tensors, XLA has fewer devices
                in this process, or a part of the state is missing.
        """
        self._check_stablehlo()
        loaders = mesh_loaders()
        default = next(iter(loaders))
        if self.options.importing.plan is not None:
            raise UsageError(
                f"the program has a plan, and takes whole tensors: run it with caller(backend={default!r})"
            )
        tensors = self.held({*self.manifest.state, *self.manifest.weights_by_name})
        initial = {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}
        module = self.linked
        load = loaders.get(backend or default)
        if load is None:
            accepted = " and ".join(map(repr, loaders))
            raise UsageError(f"backend={backend!r} does not run the program of each rank: {accepted} do")
        loaded = {name: load(module, name) for name in self.manifest.functions}
        devices = len(next(iter(loaded.values())).ranks)
        states_passed = [initial] * devices if states is None else states
        if len(states_passed) != devices:
            raise UsageError(
                f"the mesh has {devices} devices in this process, and states= has {len(states_passed)} values: pass "
                "one for each"
            )
        return MeshCaller(self.manifest, loaded, [{**initial, **state} for state in states_passed])

    def on_mesh(self, mesh: Any, plan: Mapping[str, Any] | str | Plan) -> Self:
        """Return the program of whole tensors divided as ``plan`` says, without lowering it again.

        Args:
            mesh: as `fx_importer.lower` takes it.
            plan: likewise.

        Raises:
            UsageError: if the module is not StableHLO, is a program of each rank, or the plan does not fit.
        """
        self._check_stablehlo()
        importing = self.options.importing
        if self.manifest.mesh and importing.plan is None:
            raise UsageError("the module is that of each rank, which holds its parts of tensors: lower the whole one")
        axes = Mesh.get(mesh)
        chosen = Plan.get(plan, axes)
        functions = chosen.sharded(self.manifest.functions, axes)
        module = copy_module(self.module.operation)
        for attribute in self.module.operation.attributes:
            module.operation.attributes[attribute] = self.module.operation.attributes[attribute]
        divide(module, axes, functions)
        importing = dataclasses.replace(importing, mesh=str(axes), plan=str(chosen))

        def again(
            f: Any,
            args: Sequence[Any],
            decompositions: DecompositionOptions | None = None,
            /,
            trace: Trace | None = None,
        ) -> Lowered:
            return self.recompile(f, args, decompositions, trace).on_mesh(axes, chosen)

        return dataclasses.replace(
            self,
            module=module,
            manifest=dataclasses.replace(self.manifest, functions=functions, mesh=dict(axes.axes)),
            options=dataclasses.replace(self.options, importing=importing),
            recompile=again,
        )

    def communication(self, name: str | None = None) -> Communication:
        """Return the collectives of a function and the bytes that each device sends in a call, to print as a table.

        The program of each rank has them in the module. XLA chooses the collectives of a program with a plan: it is
        compiled, on as many devices of the host as the mesh has.

        Args:
            name: of the function; by default the only one.

        Raises:
            NotInstalledError: for a program with a plan, without the extra ``xla``.
            UsageError: if the module is not StableHLO with a mesh, or lacks the function; and for a program with a plan
                as `caller` does.
        """
        self._check_stablehlo()
        functions = self.manifest.functions
        chosen = name or next(iter(functions))
        if chosen not in functions or (name is None and len(functions) > 1):
            raise UsageError(f"the module has the functions {', '.join(map(repr, functions))}: name one of them")
        mesh = Mesh(tuple(self.manifest.mesh.items()))
        if self.options.importing.plan is None:
            return of_function(self.module, chosen, mesh)
        loaded: Any = backend_named(next(iter(mesh_loaders()))).load(self.module, chosen)
        if not hasattr(loaded, "compiled_text"):
            raise UsageError(f"'{chosen}' has dynamic sizes: what XLA chooses depends on them")
        return of_hlo(loaded.compiled_text(), mesh)

    def _check_stablehlo(self) -> None:
        target = target_for(OutputType.get(self.manifest.output_type))
        if target.collectives is not Collectives.LOWERED:
            raise UsageError(
                f"programs of several devices run from stablehlo, and not from {self.manifest.output_type}"
            )
