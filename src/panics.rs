//! What happens when a thread panics: the terminal is restored before anything is printed, whichever thread it was, and
//! the loop is told so that the program ends with the message (design rule 12). Panics of a library that we expect and
//! catch (a missing driver, `crate::driver::cuda`) are silent.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// There was a panic that nobody expected.
static SEEN: AtomicBool = AtomicBool::new(false);

/// How long the end of the program may take after a panic: a terminal that takes nothing holds whoever prints on it.
const LAST_WAIT: Duration = Duration::from_secs(3);

/// Installs the hook. `restore` puts the terminal back; it may be called from any thread and more than once.
pub fn install(restore: fn()) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if EXPECTED.get() {
            return;
        }
        // Without another thread the end is as late as the terminal makes it.
        let _ = std::thread::Builder::new().name("last wait".into()).spawn(|| {
            std::thread::sleep(LAST_WAIT);
            std::process::exit(101);
        });
        restore();
        tracing::error!("{info}");
        before(info);
        // Last, since the loop ends the process when it sees this.
        SEEN.store(true, Ordering::SeqCst);
    }));
}

/// Was there a panic that was not expected? Its message is printed and logged.
pub fn seen() -> bool {
    SEEN.load(Ordering::SeqCst)
}

/// Runs `f` and turns a panic into its message, without a word on the screen.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let outer = EXPECTED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    EXPECTED.set(outer);
    result.map_err(|payload| message(&*payload))
}

/// The text of a panic's payload.
pub fn message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_caught_panic_is_its_text() {
        assert_eq!(super::caught(|| 5), Ok(5));
        assert_eq!(
            super::caught(|| -> i32 { panic!("no {}", "driver") }),
            Err("no driver".into())
        );
    }
}
