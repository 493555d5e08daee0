//! The test target: a process that looks, in memory, like PyTorch with an allocator of any release. Compiled by bare rustc
//! as libc10_cuda.so (cfg `library`), or into a program (static PyTorch); with cfg `hidden` the variable is not exported.
//! It obeys lines on its standard input and answers each with one line.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "model.rs"]
#[allow(dead_code)]
mod model;
use model::{FREE_LARGE, FREE_SMALL, Plan, TOTAL_MEMORY, counters, garbage, private_pool, uuid};

#[repr(C)]
struct TypeInfo(*const u8, *const u8);
#[repr(C)]
struct Table(usize, *const TypeInfo, [*const u8; 2]);
unsafe impl Sync for TypeInfo {}
unsafe impl Sync for Table {}

macro_rules! class {
    ($info:ident, $table:ident, $name:literal) => {
        static $info: TypeInfo = TypeInfo(&0u8, concat!($name, "\0").as_ptr());
        static $table: Table = Table(0, &$info, [&0u8, &0u8]);
    };
}
class!(I0, T0, "N3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE");
class!(I1, T1, "N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE");
class!(I2, T2, "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE");
class!(I3, T3, "N4acme9\x1b[2JAllocatorE");

/// The allocator object, static as in PyTorch.
#[repr(C, align(64))]
struct Object([AtomicU64; 0x1000]);
static OBJECT: Object = Object([const { AtomicU64::new(0) }; 0x1000]);

/// `c10::cuda::CUDACachingAllocator::allocator`.
#[cfg_attr(not(hidden), unsafe(export_name = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"))]
#[used]
pub static ALLOCATOR: AtomicU64 = AtomicU64::new(0);

/// Memory that lives as long as the process, 64-byte aligned.
fn words(count: usize) -> &'static [AtomicU64] {
    let memory: &'static mut [Object] = Box::leak(
        (0..count.div_ceil(0x1000)).map(|_| Object([const { AtomicU64::new(0) }; 0x1000])).collect::<Vec<_>>().into_boxed_slice(),
    );
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), count) }
}

fn at(words: &[AtomicU64]) -> u64 {
    words.as_ptr() as u64
}

fn put(to: &AtomicU64, value: u64) {
    to.store(value, Ordering::Relaxed);
}

/// Builds a balanced tree of free blocks in the six words of a set.
fn tree(set: &[AtomicU64], pool: u64, sizes: &[u64], plan: &Plan) {
    let header = at(&set[1..]);
    put(&set[0], 0x1234_5678_0000_0001);
    put(&set[1], 0);
    let nodes: Vec<_> = sizes
        .iter()
        .map(|size| {
            let block = words(16);
            put(&block[1], 0);
            put(&block[plan.pool_member - 2], *size);
            put(&block[plan.pool_member - 1], size - 8);
            put(&block[plan.pool_member], pool);
            put(&block[plan.pool_member + 1], 0x7f12_0000_0000);
            put(&block[plan.pool_member + 2], 0x7788_9900);
            let node = words(5);
            put(&node[4], at(block));
            node
        })
        .collect();
    fn join(nodes: &[&'static [AtomicU64]], parent: u64) -> u64 {
        if nodes.is_empty() {
            return 0;
        }
        let (left, rest) = nodes.split_at(nodes.len() / 2);
        let me = rest[0];
        put(&me[0], 1);
        put(&me[1], parent);
        put(&me[2], join(left, at(me)));
        put(&me[3], join(&rest[1..], at(me)));
        at(me)
    }
    let root = join(&nodes, header);
    put(&set[2], root);
    put(&set[3], nodes.first().map_or(header, |n| at(n)));
    put(&set[4], nodes.last().map_or(header, |n| at(n)));
    put(&set[5], nodes.len() as u64);
}

/// One device's allocator.
struct Device {
    words: &'static [AtomicU64],
    slots: Option<&'static [AtomicU64]>,
    total_reserved: usize,
    plan: Plan,
}

impl Device {
    fn new(plan: &Plan, ordinal: usize) -> Device {
        let words = words(0x1000);
        let mut seed = plan.seed.wrapping_mul(31) + 1 + ordinal as u64;
        for w in words {
            put(w, garbage(&mut seed));
        }
        for (i, value) in [0, 0, 1, 0, 0].into_iter().enumerate() {
            put(&words[i], value);
        }
        let end = plan.stats_at() + plan.stats_words();
        if plan.numbered {
            put(&words[end], 0x5500_0000_0000_7f00 | ordinal as u64);
        }
        let pool = |first: usize, sizes: &[u64], small: u64| {
            for n in 0..plan.sets {
                let unmapped = plan.sets > 1 && n == plan.sets - 1;
                let set = &words[first + 6 * n..];
                match (unmapped, plan.expandable) {
                    (true, false) => tree(set, at(&words[first..]), &[], plan),
                    (true, true) => tree(set, at(&words[first..]), &[20 << 20], plan),
                    (false, _) => tree(set, at(&words[first..]), sizes, plan),
                }
            }
            put(&words[first + 6 * plan.sets], 0x6600_0000_0000_0000 | small);
            first + 6 * plan.sets + 1
        };
        let after = pool(plan.tree_at(), &FREE_LARGE, 0);
        let after = pool(after + plan.between_pools, &FREE_SMALL, 1);
        let total_reserved = after + plan.before_reserved;
        let set = u64::from(plan.limit != 0);
        if plan.property {
            let property = total_reserved + 1;
            let (low, high) = uuid(ordinal).split_at(8).into_words();
            put(&words[property + 0x100 / 8], low);
            put(&words[property + 0x108 / 8], high);
            put(&words[property + 0x120 / 8], TOTAL_MEMORY);
            put(&words[property + 1008 / 8], plan.limit);
            put(&words[property + 1008 / 8 + 1], 0x3300_0000_0000_0000 | set);
        } else {
            put(&words[total_reserved + 1], plan.limit);
            put(&words[total_reserved + 8], 0x3300_0000_0000_0000 | set);
        }
        let mut slots = None;
        if plan.map {
            let map = &words[plan.stats_at() + 72..];
            // 7 buckets and a lookup limit of 4: 11 slots and an end marker.
            let memory = self::words(12 * 15);
            for slot in memory.chunks(15) {
                put(&slot[0], 0xff);
            }
            put(&memory[11 * 15], 0);
            put(&map[0], at(memory));
            put(&map[1], 7);
            put(&map[2], 0x3f00_0000_0000_043d);
            put(&map[3], plan.private_pools as u64);
            slots = Some(memory);
        }
        Device { words, slots, total_reserved, plan: plan.clone() }
    }

    /// Writes the counters of sequence `n` under the lock word.
    fn operate(&self, n: u64, buffer: &mut [u64]) {
        let stats = &self.words[self.plan.stats_at()..][..self.plan.stats_words()];
        counters(n, &self.plan, buffer);
        // The futex word is the lower half.
        self.words[0].swap(1, Ordering::AcqRel);
        for (i, (to, from)) in stats.iter().zip(buffer.iter()).enumerate() {
            if !(self.plan.map && (72..76).contains(&i)) {
                put(to, *from);
            }
        }
        put(&self.words[self.total_reserved], buffer[60]);
        if let Some(slots) = self.slots {
            for k in 0..self.plan.private_pools {
                let slot = &slots[2 * k * 15..];
                let mut pool = [0; 12];
                let id = private_pool(k, n, &mut pool);
                put(&slot[0], 0);
                put(&slot[1], id.0);
                put(&slot[2], id.1);
                for (to, from) in slot[3..].iter().zip(pool) {
                    put(to, from);
                }
            }
        }
        self.words[0].store(0, Ordering::Release);
    }
}

trait IntoWords {
    fn into_words(self) -> (u64, u64);
}
impl IntoWords for (&[u8], &[u8]) {
    fn into_words(self) -> (u64, u64) {
        let word = |b: &[u8]| u64::from_ne_bytes(b.try_into().unwrap());
        (word(self.0), word(self.1))
    }
}

unsafe extern "C" {
    fn mprotect(address: u64, length: usize, protection: i32) -> i32;
    fn prctl(option: i32, ...) -> i32;
    fn setuid(uid: u32) -> i32;
    fn setgid(gid: u32) -> i32;
    fn dlsym(library: usize, name: *const std::ffi::c_char) -> *mut u8;
}

/// Puts the vector of devices into the object, with decoys before it.
fn publish(devices: &[Device], plan: &Plan) {
    let decoys = words(64);
    for (i, d) in decoys[..2].iter().enumerate() {
        put(d, at(&words(0x100)[i..]));
    }
    for (to, value) in OBJECT.0[4..].iter().zip([at(decoys), at(&decoys[2..]), at(&decoys[2..])]) {
        put(to, value);
    }
    let pointers = words(devices.len());
    for (to, d) in pointers.iter().zip(devices) {
        put(to, at(d.words));
    }
    let (begin, end) = (at(pointers), at(pointers) + 8 * devices.len() as u64);
    for (to, value) in OBJECT.0[plan.vector..].iter().zip([begin, end, end]) {
        put(to, value);
    }
}

/// Runs operations at `rate` a second (0: as fast as possible) until `stop`, from sequence `from` on.
fn operations(device: &Device, rate: u64, next: &AtomicU64, stop: &AtomicU64) {
    let mut buffer = vec![0; device.plan.stats_words()];
    let started = Instant::now();
    let mut done = 0u64;
    while stop.load(Ordering::Relaxed) == 0 {
        // A clock read costs as much as half an operation at the highest rate: eight operations share one.
        if rate != 0 && done % 8 == 0 {
            let due = Duration::from_nanos(done * 1_000_000_000 / rate);
            while started.elapsed() < due {
                std::hint::spin_loop();
            }
        }
        device.operate(next.fetch_add(1, Ordering::Relaxed), &mut buffer);
        done += 1;
    }
}

/// The main function of the target.
#[unsafe(no_mangle)]
pub extern "C" fn attach_target_main() {
    let plan = Plan::from_args(std::env::args());
    let mut devices: &'static [Device] = &[];
    let (next, stop): (&'static AtomicU64, &'static AtomicU64) = (&words(1)[0], &words(1)[0]);
    let mut worker: Option<std::thread::JoinHandle<()>> = None;
    let mut buffer = vec![0; plan.stats_words()];
    let mut saved = 0;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut parts = line.split_whitespace();
        let command = parts.next().unwrap_or_default();
        let mut number = || parts.next().map_or(0, |t| t.parse::<i128>().unwrap() as u64);
        match command {
            // The static initialiser, with a class.
            "load" => {
                let table = [&T0, &T1, &T2, &T3][number() as usize];
                put(&OBJECT.0[0], table.2.as_ptr() as u64);
                ALLOCATOR.store(&raw const OBJECT as u64, Ordering::SeqCst);
            }
            // As after a copy relocation: the variable of the program is set, the library's own stays null.
            "load_program" => {
                put(&OBJECT.0[0], T0.2.as_ptr() as u64);
                let name = c"_ZN3c104cuda20CUDACachingAllocator9allocatorE";
                let variable = unsafe { &*dlsym(0, name.as_ptr()).cast::<AtomicU64>() };
                put(variable, &raw const OBJECT as u64);
            }
            "init" => {
                devices = Box::leak((0..plan.devices).map(|n| Device::new(&plan, n)).collect::<Vec<_>>().into_boxed_slice());
                for (i, d) in devices.iter().enumerate() {
                    d.operate(if plan.idle_rest && i > 0 { 0 } else { 1 }, &mut buffer);
                }
                publish(devices, &plan);
            }
            "seq" => {
                let n = number();
                for (i, d) in devices.iter().enumerate() {
                    d.operate(if plan.idle_rest && i > 0 { 0 } else { n }, &mut buffer);
                }
                next.store(n + 1, Ordering::Relaxed);
            }
            "run" => {
                let rate = number();
                put(stop, 0);
                worker = Some(std::thread::spawn(move || operations(&devices[0], rate, next, stop)));
            }
            "stop" => {
                put(stop, 1);
                worker.take().map(|w| w.join());
                println!("{}", next.load(Ordering::Relaxed) - 1);
                continue;
            }
            "poke" => put(&devices[number() as usize].words[number() as usize], number()),
            "save" => saved = devices[number() as usize].words[number() as usize].load(Ordering::Relaxed),
            "restore" => put(&devices[number() as usize].words[number() as usize], saved),
            "poke_object" => put(&OBJECT.0[number() as usize], number()),
            "poke_symbol" => put(&ALLOCATOR, number()),
            "where" => {
                println!("{} {}", &raw const OBJECT as u64, devices.first().map_or(0, |d| at(d.words)));
                continue;
            }
            "hide_device" => {
                let page = at(devices[0].words) & !0xfff;
                assert_eq!(unsafe { mprotect(page, 0x2000, 0) }, 0);
            }
            "not_dumpable" => assert_eq!(unsafe { prctl(4, 0u64) }, 0),
            "become" => {
                let uid = number() as u32;
                assert_eq!(unsafe { setgid(uid) }, 0);
                assert_eq!(unsafe { setuid(uid) }, 0);
            }
            "name" => {
                let name = b"\x1b[2J\x07) Z 0\n\0";
                assert_eq!(unsafe { prctl(15, name.as_ptr()) }, 0);
            }
            "exec" => {
                use std::os::unix::process::CommandExt;
                println!("exec");
                std::io::stdout().flush().unwrap();
                panic!("{}", std::process::Command::new("sleep").arg("60").exec());
            }
            "exit" => std::process::exit(0),
            other => panic!("no command {other}"),
        }
        println!("ok");
    }
}

#[cfg(not(library))]
fn main() {
    attach_target_main();
}
