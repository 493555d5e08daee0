//! Our allocator on real CUDA against itself on a stand-in that is fed with the card's own addresses and answers: every
//! counter equal after each of 10,000 random operations, with and without expandable segments, and the device's memory
//! back at its start (issue 4). Needs a card: it runs only with `ALLOCTOP_TEST_GPU=1`, else it says so and passes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use alloctop::allocator::{Allocator, Config, Rules, Settings};
use alloctop::driver::cuda::{CudaDevice, CudaDriver};
use alloctop::driver::{Driver, DriverError, EventId, MemInfo, StreamId};

/// One answer of the card.
#[derive(Clone, Debug)]
enum Answer {
    Address(Result<u64, DriverError>),
    Done(Result<(), DriverError>),
    Ready(Result<bool, DriverError>),
    Event(Result<EventId, DriverError>),
    Info(Result<MemInfo, DriverError>),
}

type Answers = Rc<RefCell<VecDeque<Answer>>>;

/// The card, whose answers are kept.
struct Card(CudaDriver, Answers);

/// Gives the card's answers again, in their order.
struct Fed(Answers);

/// A call that both make: the card does it and keeps the answer, the model takes that answer.
macro_rules! both {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty, $kind:ident;)*) => {
        impl Driver for Card {
            $(fn $name(&mut self, $($arg: $type),*) -> Result<$out, DriverError> {
                let answer = self.0.$name($($arg),*);
                self.1.borrow_mut().push_back(Answer::$kind(answer.clone()));
                answer
            })*
            fn take_cost(&mut self) -> Duration {
                self.0.take_cost()
            }
        }
        impl Driver for Fed {
            $(fn $name(&mut self, $(_: $type),*) -> Result<$out, DriverError> {
                match self.0.borrow_mut().pop_front() {
                    Some(Answer::$kind(answer)) => answer,
                    other => panic!("the model calls {}, the card had {other:?}", stringify!($name)),
                }
            })*
            fn take_cost(&mut self) -> Duration {
                Duration::ZERO
            }
        }
    };
}

both! {
    alloc(size: u64) -> u64, Address;
    free(address: u64) -> (), Done;
    mem_info() -> MemInfo, Info;
    device_total() -> u64, Address;
    reserve(size: u64) -> u64, Address;
    unreserve(address: u64, size: u64) -> (), Done;
    map(address: u64, granule: u64, count: u64) -> (), Done;
    unmap(address: u64, granule: u64, count: u64) -> (), Done;
    record_event(stream: StreamId) -> EventId, Event;
    event_done(event: EventId) -> bool, Ready;
    wait_event(event: EventId) -> (), Done;
    synchronize(stream: StreamId) -> (), Done;
}

/// A small generator: the same operations for a seed everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn run(text: &str, seed: u64) {
    let rules = Rules::default();
    let config = Config::parse(text, &rules).unwrap();
    let settings = || Settings {
        rules: rules.clone(),
        config: config.clone(),
    };
    let mut cuda = CudaDriver::new(CudaDevice::Ordinal(0));
    let start = cuda.mem_info().unwrap();
    let other = cuda.new_stream().unwrap();
    let answers = Answers::default();
    let mut real = Allocator::new(Card(cuda, answers.clone()), settings());
    let mut model = Allocator::new(Fed(answers.clone()), settings());
    let mut random = Random(seed);
    let mut live: Vec<u64> = Vec::new();
    let mut calls = 0;
    for step in 0..10_000 {
        let stream = if random.below(4) == 0 { other } else { StreamId(0) };
        match random.below(100) {
            0..=54 if live.len() < 200 => {
                let size = match random.below(10) {
                    0..=4 => 1 + random.below(1 << 20),
                    5..=7 => 1 + random.below(12 << 20),
                    8 => 1 + random.below(64 << 20),
                    _ => 1 + random.below(300 << 20),
                };
                let got = real.malloc(size, stream);
                calls += answers.borrow().len();
                let expected = model.malloc(size, stream);
                assert_eq!(got, expected, "step {step}");
                live.extend(got.ok());
            }
            55..=59 if !live.is_empty() => {
                let address = live[random.below(live.len() as u64) as usize];
                real.record_stream(address, other).unwrap();
                calls += answers.borrow().len();
                model.record_stream(address, other).unwrap();
            }
            60 => {
                real.empty_cache().unwrap();
                calls += answers.borrow().len();
                model.empty_cache().unwrap();
            }
            _ if !live.is_empty() => {
                let address = live.swap_remove(random.below(live.len() as u64) as usize);
                real.free(address).unwrap();
                calls += answers.borrow().len();
                model.free(address).unwrap();
            }
            _ => {}
        }
        assert_eq!(real.stats(), model.stats(), "step {step} of {text:?}");
        assert!(
            answers.borrow().is_empty(),
            "step {step}: the card was asked more often"
        );
        if step % 100 == 0 {
            real.check().unwrap();
            model.check().unwrap();
        }
    }
    assert_eq!(real.report(), model.report());
    for address in live {
        real.free(address).unwrap();
    }
    real.empty_cache().unwrap();
    let end = real.driver_mut().mem_info().unwrap();
    println!(
        "{:28} 10000 operations, {calls} driver calls, {} segments made; device free at start {} and end {}",
        if text.is_empty() { "default" } else { text },
        model.stats().num_device_alloc.unwrap_or(-1),
        start.free,
        end.free
    );
    assert_eq!(start.free, end.free, "the device's memory is not back at its start");
}

#[test]
fn the_card_and_its_model_agree_in_every_counter() {
    if std::env::var_os("ALLOCTOP_TEST_GPU").is_none() {
        println!("no card: ALLOCTOP_TEST_GPU=1 runs this where there is one");
        return;
    }
    run("", 0x9e37_79b9_7f4a_7c15);
    run("expandable_segments:True", 0x2545_f491_4f6c_dd1d);
    run(
        "max_split_size_mb:64,garbage_collection_threshold:0.6",
        88_172_645_463_325_252,
    );
}
