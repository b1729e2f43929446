// python build.py && rustc -O main.rs -L . -C link-arg=-Wl,-rpath,. -o classify && ./classify
use std::ffi::{c_char, c_int, c_void, CStr};

#[link(name = "mlp")]
extern "C" {
    fn mlp_run(input: *const f32, output: *mut f32, arena: *mut c_void, arena_bytes: usize) -> c_int;
    fn mlp_status_text(status: c_int) -> *const c_char;
}

#[repr(align(64))]
struct Arena([u8; 4096]); // MLP_RUN_ARENA_BYTES or more

fn main() {
    let input = [1f32; 32];
    let mut output = [0f32; 8];
    let mut arena = Arena([0; 4096]);
    let memory = arena.0.as_mut_ptr() as *mut c_void;
    let status = unsafe { mlp_run(input.as_ptr(), output.as_mut_ptr(), memory, arena.0.len()) };
    if status != 0 {
        panic!("{}", unsafe { CStr::from_ptr(mlp_status_text(status)) }.to_string_lossy());
    }
    println!("{:.4} {:.4} {:.4} {:.4}", output[0], output[1], output[2], output[3]);
}
