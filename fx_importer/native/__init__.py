"""Native code: a lowered module as C source, an object or a library with a C header, without a runtime.

A build has these steps, for each function of the module (`build.py`):

1. `fx_importer.pipelines.native.buffers` lowers the module to loops over memrefs: func, scf, memref, arith, math.
2. `abi.entry_of` reads the interface of the function from that module and the manifest: an `EntryPoint`.
3. `fx_importer.pipelines.native.machine_code` lowers the loops to the LLVM dialect, and a compiler to an object.
4. `header` writes the C header, and `wrapper` the C functions that check arguments and call the code.

The module of step 1, from which C source can be written as well:

* The public function takes, in this order: the arguments of the model, state among them, as memrefs and scalars;
  the weights, ``memref<?xi8>``, a block whose parts are memrefs by ``memref.view`` at constant offsets; a memref for
  each result that is not new state, of rank 0 for a number (the fact `DESTINATIONS` says which argument each result is
  written to); and the arena, ``memref<?xi8>``. It returns nothing and allocates nothing.
* All memrefs of the interface are row-major. Constants below 1 KB are ``memref.global``.
* ``cf.assert`` ends the function, with the status of its attribute `fx_importer.status` (i32); the texts of statuses
  are the fact `MESSAGES`, from `FIRST_STATUS` on.
* With dynamic sizes, the function ``arena_bytes`` returns the bytes of the arena; the fact `DIMENSIONS` lists the
  sizes that it takes.
"""
