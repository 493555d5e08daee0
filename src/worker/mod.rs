//! The thread that owns the embedded allocator: a CUDA context belongs to a thread, and the loop that draws must never
//! wait for a driver. Commands go in, one [`Outcome`] each comes out, and the newest [`State`] is published for readers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::allocator::stats::DeviceStats;
use crate::budget::Budget;
use crate::clock::{Clock, Moment};
use crate::driver::Driver;
use crate::driver::cuda::{CudaDevice, CudaDriver};
use crate::driver::sim::SimDevice;

pub mod command;
mod device;
pub mod host;
mod meter;
mod owner;
pub mod setup;
pub mod state;
pub mod tensor;

pub use command::{Command, ContextCost, Done, DriverCall, Outcome, Refusal};
pub use device::BUSY_FOR;
pub use setup::Setup;
pub use state::{BlockKey, LiveBlock, Place, State};
pub use tensor::{BadTensor, Dtype, Shape};

use owner::Owner;

/// How long the end of the program waits for the thread to give everything back. A driver that hangs must not keep the
/// terminal.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Which driver the allocator runs on.
pub enum BackendChoice {
    /// A simulated device, under this process's id.
    Sim(SimDevice),
    /// A CUDA device; nothing of CUDA is loaded before the first command that needs it.
    Cuda(CudaDevice),
    /// A driver that is made on the allocator's thread: test doubles, adaptors.
    Other(Box<dyn FnOnce() -> Box<dyn Driver> + Send>),
}

impl BackendChoice {
    fn open(self) -> Box<dyn Driver> {
        match self {
            BackendChoice::Sim(device) => Box::new(device.driver(std::process::id())),
            BackendChoice::Cuda(device) => Box::new(CudaDriver::new(device)),
            BackendChoice::Other(make) => make(),
        }
    }
}

/// The newest state, for everyone; held only for the time of a pointer's copy.
#[derive(Clone, Default)]
struct Published(Arc<Mutex<Arc<State>>>);

impl Published {
    fn get(&self) -> Arc<State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }
}

/// The allocator's thread, as seen from outside. Dropping it frees every block and ends the context.
pub struct Worker {
    /// What came of each command, in order. Closed when the thread has ended.
    pub outcomes: UnboundedReceiver<Outcome>,
    commands: Option<Sender<Command>>,
    published: Published,
    ended: Receiver<()>,
}

impl Worker {
    /// Starts the thread. `notify` is called on it after each outcome, when the new state is published. No driver call is
    /// made before a command needs one.
    pub fn start(
        backend: BackendChoice,
        setup: Setup,
        budget: Budget,
        clock: Arc<dyn Clock>,
        notify: Box<dyn Fn() + Send>,
    ) -> Self {
        let (commands, todo) = channel();
        let (done, outcomes) = unbounded_channel();
        let (ending, ended) = channel();
        let published = Published::default();
        published.set(State {
            conf: setup.conf.clone(),
            torch: setup.torch(),
            ..State::default()
        });
        let state = published.clone();
        let life = move || {
            let _ending = ending;
            let lived = catch_unwind(AssertUnwindSafe(|| {
                let owner = Owner::new(backend.open(), setup, budget, clock.clone());
                live(owner, &todo, &done, &state, notify.as_ref());
            }));
            if lived.is_err() {
                end(
                    &state,
                    "the allocator's thread failed at its start or end: restart alloctop and report this",
                );
                notify();
            }
        };
        let thread = std::thread::Builder::new().name("allocator".into()).spawn(life);
        if let Err(error) = thread {
            end(
                &published,
                &format!("the allocator's thread cannot be started: {error}"),
            );
        }
        Worker {
            outcomes,
            commands: Some(commands),
            published,
            ended,
        }
    }

    /// Asks for `command`. False if the thread has ended: [`State::ended`] says why.
    pub fn send(&self, command: Command) -> bool {
        self.commands.as_ref().is_some_and(|c| c.send(command).is_ok())
    }

    /// The newest state. Never waits for the driver.
    pub fn latest(&self) -> Arc<State> {
        self.published.get()
    }

    /// A reader of the newest state, for the sampler.
    pub fn reader(&self) -> impl Fn() -> Arc<State> + Send + Sync + Clone + 'static {
        let published = self.published.clone();
        move || published.get()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.commands = None;
        // Ends with an error as soon as the thread has dropped its end.
        _ = self.ended.recv_timeout(LAST_WAIT);
    }
}

/// Does commands until nobody sends any more, then gives everything back.
fn live(
    mut owner: Owner,
    todo: &Receiver<Command>,
    done: &UnboundedSender<Outcome>,
    published: &Published,
    notify: &dyn Fn(),
) {
    published.set(owner.state());
    while let Ok(command) = todo.recv() {
        let asked = command.clone();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let outcome = owner.perform(command);
            (outcome, owner.state())
        }));
        let Ok((outcome, state)) = outcome else {
            let text = "the embedded allocator failed and has stopped: its blocks are gone; restart alloctop and \
                        report what was done before";
            _ = done.send(failed(asked, owner.now(), &published.get().stats, text));
            end(published, text);
            notify();
            return;
        };
        published.set(state);
        // Without a receiver nobody wants outcomes any more; commands are still done.
        _ = done.send(outcome);
        notify();
    }
    owner.close();
}

/// The outcome of a command that the thread did not survive; `last` are the counters before it.
fn failed(command: Command, at: Moment, last: &DeviceStats, text: &str) -> Outcome {
    Outcome {
        at,
        command,
        result: Err(Refusal::Driver(text.to_owned())),
        before: last.clone(),
        after: last.clone(),
        calls: Vec::new(),
        events: Vec::new(),
        took: Duration::ZERO,
        first_use: None,
    }
}

fn end(published: &Published, why: &str) {
    let last = published.get();
    published.set(State {
        blocks: Vec::new(),
        ended: Some(Arc::from(why)),
        ..State::clone(&last)
    });
}
