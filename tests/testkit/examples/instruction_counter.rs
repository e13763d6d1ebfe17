//! A plugin of qemu that counts what callgrind counts: the instructions of a program without its libraries, and its
//! calls into them. When the program ends, it writes both numbers to the standard error.
//!
//! qemu translates blocks of instructions, which run one after the other. It calls the plugin whenever it has translated
//! one, and whenever one runs.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A block of instructions, which belongs to qemu.
#[repr(C)]
pub struct Block([u8; 0]);

// As in qemu-plugin.h.
unsafe extern "C" {
    fn qemu_plugin_start_code() -> u64;
    fn qemu_plugin_end_code() -> u64;
    fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_register_vcpu_tb_trans_cb(plugin: u64, callback: extern "C" fn(u64, *mut Block));
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: extern "C" fn(c_uint, *mut c_void),
        registers: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_atexit_cb(plugin: u64, callback: extern "C" fn(u64, *mut c_void), data: *mut c_void);
}

/// The version of the interface, which qemu looks up.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static WAS_OURS: AtomicBool = AtomicBool::new(false);

/// Registers the plugin. qemu calls this when it starts.
#[unsafe(no_mangle)]
pub extern "C" fn qemu_plugin_install(plugin: u64, _: *const c_void, _: c_int, _: *const *const c_void) -> c_int {
    // SAFETY: qemu gave the plugin's number, and never unloads the functions.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
        qemu_plugin_register_atexit_cb(plugin, ended, ptr::null_mut());
    }
    0
}

extern "C" fn translated(_plugin: u64, block: *mut Block) {
    // SAFETY: the block is valid during this call. The data are a number, which nothing dereferences.
    unsafe {
        let program = qemu_plugin_start_code()..qemu_plugin_end_code();
        let is_ours = program.contains(&qemu_plugin_tb_vaddr(block));
        let instructions = if is_ours { qemu_plugin_tb_n_insns(block) } else { 0 };
        qemu_plugin_register_vcpu_tb_exec_cb(block, runs, 0, ptr::without_provenance_mut(instructions));
    }
}

/// Counts a block with this number of instructions, or with 0 if it is a library's.
extern "C" fn runs(_processor: c_uint, instructions: *mut c_void) {
    let is_ours = !instructions.is_null();
    INSTRUCTIONS.fetch_add(instructions.addr() as u64, Relaxed);
    CALLS.fetch_add(u64::from(WAS_OURS.swap(is_ours, Relaxed) && !is_ours), Relaxed);
}

extern "C" fn ended(_plugin: u64, _data: *mut c_void) {
    eprintln!("{} {}", INSTRUCTIONS.load(Relaxed), CALLS.load(Relaxed));
}
