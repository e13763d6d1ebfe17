//! A plugin of qemu that counts what callgrind counts: the instructions of one object file, a program or a library, and
//! its calls into others. Whenever the program replies to a PING, and when it ends, the plugin appends a line with both
//! numbers to a file.
//!
//! ```text
//!  qemu-aarch64 -plugin libinstruction_counter.so,object=/path/of/a/library,counts=/path/of/a/file PROGRAM
//! ```
//!
//! qemu translates blocks of instructions, which run one after the other. It calls the plugin whenever it has translated
//! one, and whenever one runs.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// A block of instructions, which belongs to qemu.
#[repr(C)]
pub struct Block([u8; 0]);

/// An instruction of a block.
#[repr(C)]
pub struct Instruction([u8; 0]);

// As in qemu-plugin.h.
unsafe extern "C" {
    fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *const Instruction;
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u32;
    fn qemu_plugin_register_vcpu_tb_trans_cb(plugin: u64, callback: extern "C" fn(u64, *mut Block));
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: extern "C" fn(c_uint, *mut c_void),
        registers: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_syscall_cb(plugin: u64, callback: SystemCall);
    fn qemu_plugin_register_atexit_cb(plugin: u64, callback: extern "C" fn(u64, *mut c_void), data: *mut c_void);
}

/// Its arguments are the plugin, the processor, the number of the call, and the arguments of the call.
type SystemCall = extern "C" fn(u64, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);

/// The version of the interface, which qemu looks up.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// The path of the object file.
static OBJECT: OnceLock<String> = OnceLock::new();
static COUNTS: OnceLock<File> = OnceLock::new();
/// The mapped files, and whether each is the object file.
static MAPPED: Mutex<Vec<(Range<u64>, bool)>> = Mutex::new(Vec::new());

static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
/// The data of the last block.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Bits of the data of a block of ours. The others are the number of its instructions. A block of others has no data.
const RETURNS: usize = 1;
const OURS: usize = 2;
const INSTRUCTION: usize = 4;

/// `ret`, and the number of the system call `write`, on aarch64.
const RET: u32 = 0xd65f_03c0;
const WRITE: i64 = 64;
const PONG: &[u8] = b"+PONG\r\n";

/// Registers the plugin.
///
/// # Safety
///
/// qemu calls this when it starts, with its number for the plugin and the plugin's arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    plugin: u64,
    _: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    for index in 0..count as usize {
        // SAFETY: qemu passes this number of strings.
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) }.to_str().expect("an argument in UTF-8");
        match argument.split_once('=') {
            Some(("object", path)) => OBJECT.set(path.to_owned()).expect("one object file"),
            Some(("counts", path)) => COUNTS.set(File::create(path).expect("a file for the counts")).expect("one file"),
            _ => panic!("not an argument of this plugin: {argument}"),
        }
    }
    // SAFETY: qemu gave the plugin's number, and never unloads the functions.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
        qemu_plugin_register_vcpu_syscall_cb(plugin, calls_system);
        qemu_plugin_register_atexit_cb(plugin, ended, ptr::null_mut());
    }
    0
}

extern "C" fn translated(_plugin: u64, block: *mut Block) {
    // SAFETY: the block is valid during this call, and not empty. Its instructions have 32 bits. The data are a number,
    // which nothing dereferences.
    unsafe {
        let length = qemu_plugin_tb_n_insns(block);
        let last = qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, length - 1)).read_unaligned();
        let data = match is_ours(qemu_plugin_tb_vaddr(block)) {
            true => length * INSTRUCTION + OURS + if last == RET { RETURNS } else { 0 },
            false => 0,
        };
        qemu_plugin_register_vcpu_tb_exec_cb(block, runs, 0, ptr::without_provenance_mut(data));
    }
}

/// Returns true if an address is in the object file. Reads the list of mapped files again if it is in none of them.
fn is_ours(address: u64) -> bool {
    let mut mapped = MAPPED.lock().expect("not poisoned");
    let find =
        |mapped: &[(Range<u64>, bool)]| mapped.iter().find(|(range, _)| range.contains(&address)).map(|file| file.1);
    find(&mapped).unwrap_or_else(|| {
        // qemu maps files of programs with 64 bits at their own addresses.
        let maps = fs::read_to_string("/proc/self/maps").expect("the list of mapped files");
        *mapped = maps.lines().map(mapping).collect();
        find(&mapped).unwrap_or(false)
    })
}

/// Parses a line of the list, such as `7f0000-7f2000 r--p 00001000 fe:00 1234   /usr/lib/a.so`.
fn mapping(line: &str) -> (Range<u64>, bool) {
    let mut words = line.split_whitespace();
    let range = words.next().and_then(|range| range.split_once('-')).expect("a range of addresses");
    let address = |text| u64::from_str_radix(text, 16).expect("an address");
    (address(range.0)..address(range.1), words.nth(4) == OBJECT.get().map(String::as_str))
}

/// Counts a block with its data.
extern "C" fn runs(_processor: c_uint, data: *mut c_void) {
    let (block, last) = (data.addr(), LAST.swap(data.addr(), Relaxed));
    INSTRUCTIONS.fetch_add((block / INSTRUCTION) as u64, Relaxed);
    let is_call = block == 0 && last & (OURS | RETURNS) == OURS;
    CALLS.fetch_add(u64::from(is_call), Relaxed);
}

extern "C" fn calls_system(
    _plugin: u64,
    _processor: c_uint,
    number: i64,
    _file: u64,
    bytes: u64,
    length: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    // SAFETY: the program is about to write these bytes.
    let is_pong = number == WRITE
        && length == PONG.len() as u64
        && unsafe { std::slice::from_raw_parts(bytes as *const u8, PONG.len()) } == PONG;
    if is_pong {
        write_counts();
    }
}

extern "C" fn ended(_plugin: u64, _data: *mut c_void) {
    write_counts();
}

fn write_counts() {
    let line = format!("{} {}\n", INSTRUCTIONS.load(Relaxed), CALLS.load(Relaxed));
    COUNTS.get().expect("a file for the counts").write_all(line.as_bytes()).expect("the counts are written");
}
