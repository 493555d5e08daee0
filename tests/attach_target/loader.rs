//! A program that loads a library given by its path and runs the target in it; with a name after `map:` it only maps that
//! file, whatever is in it.

use std::ffi::{CString, c_char, c_void};
use std::io::BufRead;
use std::os::fd::AsRawFd;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: i32) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
    fn mmap(at: *mut c_void, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void;
}

/// With cfg `copied`: the program's own copy of the allocator's variable, as a copy relocation makes it.
#[cfg(copied)]
#[unsafe(export_name = "_ZN3c104cuda20CUDACachingAllocator9allocatorE")]
#[used]
pub static COPY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn main() {
    let path = std::env::args().nth(1).unwrap();
    if let Some(file) = path.strip_prefix("map:") {
        let file = std::fs::File::open(file).unwrap();
        let length = file.metadata().unwrap().len().max(1) as usize;
        // PROT_READ | PROT_WRITE, MAP_PRIVATE.
        let at = unsafe { mmap(std::ptr::null_mut(), length, 3, 2, file.as_raw_fd(), 0) };
        assert!(at as isize != -1);
        println!("ready");
        for _ in std::io::stdin().lock().lines() {
            println!("ok");
        }
        return;
    }
    let path = CString::new(path).unwrap();
    let library = unsafe { dlopen(path.as_ptr(), 2) };
    if library.is_null() {
        panic!("{:?}", unsafe { std::ffi::CStr::from_ptr(dlerror()) });
    }
    let run = unsafe { dlsym(library, c"attach_target_main".as_ptr()) };
    assert!(!run.is_null());
    let run: extern "C" fn() = unsafe { std::mem::transmute(run) };
    run();
}
