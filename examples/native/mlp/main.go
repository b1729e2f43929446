// python build.py && CGO_LDFLAGS_ALLOW=.* go run main.go
package main

// #cgo LDFLAGS: -L. -lmlp -Wl,-rpath,.
// #include <stdlib.h>
// #include "mlp.h"
import "C"

import (
	"fmt"
	"unsafe"
)

func main() {
	var input [C.MLP_RUN_INPUT_COUNT]C.float
	var output [C.MLP_RUN_OUTPUT_COUNT]C.float
	for i := range input {
		input[i] = 1
	}
	arena := C.aligned_alloc(64, (C.MLP_RUN_ARENA_BYTES+63)/64*64)
	defer C.free(unsafe.Pointer(arena))
	if status := C.mlp_run(&input[0], &output[0], arena, C.MLP_RUN_ARENA_BYTES); status != C.MLP_OK {
		panic(C.GoString(C.mlp_status_text(status)))
	}
	fmt.Printf("%.4f %.4f %.4f %.4f\n", output[0], output[1], output[2], output[3])
}
