//! What happens when a thread panics: the terminal is restored before anything is printed, whichever thread it was, and
//! the loop is told so that the program ends with the message (design rule 12). Panics of a library that we expect and
//! catch (a missing driver, `crate::driver::cuda`) are silent.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The first panic's message, for the loop.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Installs the hook. `restore` puts the terminal back; it may be called from any thread and more than once.
pub fn install(restore: fn()) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if EXPECTED.get() {
            return;
        }
        restore();
        let mut first = FIRST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if first.is_none() {
            *first = Some(info.to_string());
        }
        drop(first);
        before(info);
    }));
}

/// The message of a panic that was not expected, if there was one.
pub fn seen() -> Option<String> {
    FIRST.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
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
