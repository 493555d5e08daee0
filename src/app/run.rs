//! The loop: signals, keys, outcomes and samples become events; effects are performed; the screen is drawn when something
//! changed, at most 30 times a second (design rules 7 and 9). Nothing here blocks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::signals::{self, Caught, Signals};
use super::terminal::{Screen, input, restore};
use super::{App, Effect, Event, Setup};
use crate::attach::ProcRoot;
use crate::boot::{self, Found};
use crate::budget::Budget;
use crate::cli::Options;
use crate::clock::{Clock, RealClock};
use crate::driver::sim::SimSpec;
use crate::sample::Sample;
use crate::sample::history::History;
use crate::sample::sampler::{Plan, Sampler, SamplerControl, Target};
use crate::source::host::HostSource;
use crate::source::processes::ProcessTable;
use crate::source::readers::{AllocatorsRead, Readers};
use crate::ui;
use crate::ui::view::View;
use crate::worker::{Command, Worker};
use crate::{panics, worker};

mod arrivals;

use arrivals::{Tables, booted, drawable, next_outcome, next_read, next_sample, next_table};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(33);

/// How the loop ended.
enum End {
    Quit,
    Signal(u8),
    Panic,
    Refused(String),
}

/// Runs the dashboard and returns the exit code. The terminal is as it was before when this returns.
///
/// # Errors
/// The terminal cannot be used.
pub fn run(options: &Options, spec: SimSpec, setup: worker::Setup) -> anyhow::Result<u8> {
    panics::install(restore);
    // NO_COLOR is the theme's business: crossterm's own handling resets bold and reverse as well.
    crossterm::style::force_color_output(true);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()?;
    let end = runtime.block_on(async {
        // Signals first, then what can be refused, then the terminal.
        let signals = Signals::register()?;
        let keys = input::terminal()?;
        let mut screen = Screen::open()?;
        let mut dashboard = Dashboard::new(options, spec, setup);
        let end = dashboard.live(&mut screen, signals, input::start(keys)?).await;
        // The terminal goes back before anything else is given back, which may take its time.
        drop(screen);
        end
    });
    // A stalled driver or monitor must not keep the terminal: its thread is left behind.
    runtime.shutdown_background();
    match end? {
        End::Quit => Ok(0),
        End::Signal(code) => Ok(code),
        End::Panic => Ok(101),
        End::Refused(text) => Err(anyhow::Error::msg(text)),
    }
}

struct Dashboard {
    app: App,
    clock: Arc<dyn Clock>,
    options: Options,
    setup: Option<worker::Setup>,
    booting: Option<JoinHandle<Result<Found, String>>>,
    worker: Option<Worker>,
    samples: Option<mpsc::Receiver<Sample>>,
    tables: Option<Tables>,
    control: Option<SamplerControl>,
    devices: Vec<u32>,
    device: usize,
    /// Reads the allocators of the table's processes; away on a thread while `reading` stands.
    readers: Option<Readers>,
    reading: Option<JoinHandle<(Readers, AllocatorsRead)>>,
    /// Processes whose allocators are not read.
    stopped: Vec<u32>,
    /// Commands typed before the driver was found.
    waiting: Vec<Command>,
    drawn: Option<View>,
    drawn_at: Instant,
    dirty: bool,
}

impl Dashboard {
    fn new(options: &Options, spec: SimSpec, setup: worker::Setup) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
        let watched = options.pid.first().copied();
        let app = App::new(
            Setup {
                look: options.look(|name| std::env::var(name).ok()),
                simulated: false,
                readonly: options.readonly,
                own_pid: std::process::id(),
                budget: options.budget,
                folder: options.folder.clone().unwrap_or_else(|| ".".into()),
            },
            History::new(),
            watched,
            &options.shape,
            options.dtype,
        );
        let asked = options.clone();
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let booting = tokio::task::spawn_blocking(move || boot::find(&asked, &spec, visible.as_deref()));
        Dashboard {
            app,
            clock: clock.clone(),
            options: options.clone(),
            setup: Some(setup),
            booting: Some(booting),
            worker: None,
            samples: None,
            tables: None,
            control: None,
            devices: Vec::new(),
            device: 0,
            readers: Some(Readers::new(ProcRoot::default(), clock.clone(), std::process::id())),
            reading: None,
            stopped: Vec::new(),
            waiting: Vec::new(),
            drawn: None,
            drawn_at: Instant::now(),
            dirty: true,
        }
    }

    async fn live(
        &mut self,
        screen: &mut Screen,
        mut signals: Signals,
        mut keys: mpsc::Receiver<KeyEvent>,
    ) -> io::Result<End> {
        self.draw(screen)?;
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            if panics::seen() {
                return Ok(End::Panic);
            }
            let frame_at = self.drawn_at + FRAME;
            let event = tokio::select! {
                biased;
                caught = signals.next() => {
                    match caught {
                        Caught::End(code) => return Ok(End::Signal(code)),
                        Caught::Suspend => self.suspend(screen)?,
                        Caught::Resized => self.redraw(screen)?,
                    }
                    continue;
                }
                key = keys.recv() => match key {
                    Some(key) => Event::Key(key),
                    // The terminal is gone: nobody can read a sentence about it.
                    None => return Ok(End::Signal(signals::exit_code(nix::libc::SIGHUP))),
                },
                outcome = next_outcome(self.worker.as_mut()) => {
                    let state = self.worker.as_ref().map(Worker::latest).unwrap_or_default();
                    if let Some(control) = &self.control {
                        control.sample_now();
                    }
                    Event::Outcome(Box::new(outcome), state)
                }
                sample = next_sample(self.samples.as_mut()) => Event::Sample(Box::new(sample)),
                table = next_table(self.tables.as_mut()) => {
                    self.read_allocators(&table);
                    Event::Table(table)
                }
                read = next_read(self.reading.as_mut()) => {
                    self.reading = None;
                    let Some((readers, read)) = read else { continue };
                    self.readers = Some(readers);
                    Event::Allocators(Arc::new(read))
                }
                found = booted(self.booting.as_mut()) => {
                    self.booting = None;
                    match found {
                        Ok(found) => self.start(found),
                        Err(text) => return Ok(End::Refused(text)),
                    }
                    continue;
                }
                () = drawable(screen, frame_at), if self.dirty => {
                    self.draw(screen)?;
                    continue;
                }
                _ = seconds.tick() => {
                    self.panic_on_request();
                    Event::Tick
                }
            };
            if let Some(end) = self.handle(event, screen)? {
                return Ok(end);
            }
        }
    }

    /// `--panic-in`: how the tests see that a panic in any thread leaves the terminal as it was.
    fn panic_on_request(&mut self) {
        // The first tick comes at once; the dashboard is to be on the screen before.
        let Some(name) = self.options.panic_in.take_if(|_| self.app.sample.is_some()) else {
            return;
        };
        let fail = || panic!("asked for by --panic-in");
        if name == "main" {
            fail();
        } else {
            let _ = std::thread::Builder::new().name(name).spawn(fail);
        }
    }

    fn handle(&mut self, event: Event, screen: &mut Screen) -> io::Result<Option<End>> {
        self.dirty = true;
        let now = self.clock.now();
        for effect in self.app.update(event, now) {
            match effect {
                Effect::Quit => return Ok(Some(End::Quit)),
                Effect::Suspend => self.suspend(screen)?,
                Effect::Redraw => self.redraw(screen)?,
                Effect::Send(command) => self.send(command),
                Effect::Watch(pid) => self.watch(pid),
                Effect::Table(on) => {
                    if let Some(control) = &self.control {
                        control.set_table(on);
                    }
                }
                Effect::Stopped(pids) => self.stopped = pids,
                Effect::Signal(key, number) => {
                    self.app
                        .tell(crate::source::signal::send(&ProcRoot::default(), key, number));
                }
                Effect::NextDevice => self.next_device(),
                Effect::WriteScreen(path) => {
                    let light = self.options.theme == Some(ui::theme::Scheme::Light);
                    // What is on the screen, without the chooser that asked for it.
                    let area = screen.area();
                    let mut frame = Buffer::empty(area);
                    ui::draw(&mut frame, area, &self.app.view(area), self.app.setup.look);
                    self.write(&path, &ui::svg::picture(&frame, light));
                }
                Effect::WriteText(path, text) => self.write(&path, &text),
            }
        }
        Ok(None)
    }

    /// Reads the allocators of a table's processes on a thread of its own; while one round runs, the next is left out.
    fn read_allocators(&mut self, table: &Arc<ProcessTable>) {
        if let Some(mut readers) = self.readers.take() {
            let (table, stopped) = (table.clone(), self.stopped.clone());
            self.reading = Some(tokio::task::spawn_blocking(move || {
                let read = readers.read(&table, &stopped);
                (readers, read)
            }));
        }
    }

    fn send(&mut self, command: Command) {
        match &self.worker {
            Some(worker) => {
                if !worker.send(command) {
                    let why = worker.latest().ended.clone();
                    self.app.tell(
                        why.as_deref()
                            .unwrap_or("the allocator's thread has ended: restart alloctop"),
                    );
                }
            }
            None => self.waiting.push(command),
        }
    }

    fn write(&mut self, path: &std::path::Path, text: &str) {
        let said = match std::fs::write(path, text) {
            Ok(()) => format!("written: {}", path.display()),
            Err(error) => format!("{} cannot be written: {error}; pass --folder DIR", path.display()),
        };
        self.app.say(said);
    }

    /// Everything that was found goes to work.
    fn start(&mut self, found: Found) {
        let own = std::process::id();
        self.devices = found.devices.iter().map(|d| d.index).collect();
        self.app.setup.simulated = found.devices.first().is_some_and(|d| d.simulated);
        if let Some(note) = found.note {
            self.app.say(note);
        }
        if let (Some(backend), Some(setup)) = (found.backend, self.setup.take()) {
            let host = HostSource::new("/proc");
            let budget = Budget::new(self.options.budget, Box::new(move || host.ceiling(own)));
            let worker = Worker::start(backend, setup, budget, self.clock.clone(), Box::new(|| ()));
            self.app.worker = worker.latest();
            self.worker = Some(worker);
        }
        let reader = self.worker.as_ref().map(Worker::reader);
        let plan = Plan {
            interval: self.options.interval(),
            target: self.app.watched.map_or(Target::Own, Target::Process),
            device: self.devices.first().copied().unwrap_or_default(),
            monitor: found.monitor,
            counters: crate::source::torch::sources(reader, ProcRoot::default(), self.clock.clone()),
            proc_root: "/proc".into(),
        };
        match Sampler::spawn(plan, self.clock.clone()) {
            Ok(handle) => {
                self.samples = Some(handle.samples);
                self.tables = Some(handle.table);
                self.control = Some(handle.control);
            }
            Err(error) => self
                .app
                .say(format!("no thread for the sampler: {error}; nothing is read")),
        }
        for command in std::mem::take(&mut self.waiting) {
            self.send(command);
        }
        self.dirty = true;
    }

    fn watch(&mut self, pid: Option<u32>) {
        if let Some(control) = &self.control {
            control.set_target(pid.map_or(Target::Own, Target::Process));
        }
    }

    fn next_device(&mut self) {
        if self.devices.len() < 2 {
            self.app.tell("there is one GPU to show");
            return;
        }
        self.device = (self.device + 1) % self.devices.len();
        if let Some(control) = &self.control {
            control.set_device(self.devices[self.device]);
        }
    }

    /// Draws if something that is shown changed; an equal view draws an equal frame.
    fn draw(&mut self, screen: &mut Screen) -> io::Result<()> {
        self.dirty = false;
        self.drawn_at = Instant::now();
        let area = screen.area();
        let view = self.app.view(area);
        if self.drawn.as_ref() == Some(&view) {
            return Ok(());
        }
        let look = self.app.setup.look;
        screen.draw(|buf| ui::draw(buf, area, &view, look))?;
        self.drawn = Some(view);
        Ok(())
    }

    /// The next frame is drawn from an empty screen of the size that the terminal has now.
    fn redraw(&mut self, screen: &mut Screen) -> io::Result<()> {
        screen.resize()?;
        self.drawn = None;
        self.dirty = true;
        Ok(())
    }

    /// Ctrl-Z.
    fn suspend(&mut self, screen: &mut Screen) -> io::Result<()> {
        screen.suspend()?;
        self.drawn = None;
        self.dirty = true;
        Ok(())
    }
}
