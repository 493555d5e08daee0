//! The process table and what acts on other processes, in a real terminal: on a process of the test's own. There is no GPU
//! here, so only the watched process and alloctop itself are in the table.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

#[path = "terminal/session.rs"]
#[allow(dead_code, reason = "the other test program uses the rest")]
mod session;

use session::Session;

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Sleeper(Command::new("sleep").arg("120").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn table(width: u16, pid: &str, more: &[&str]) -> Session {
    let mut args = vec!["--backend", "sim", "-p", pid];
    args.extend(more);
    let mut session = Session::start(width, 40, &args);
    session.see("peak");
    session.type_keys("x");
    session.see("sleep 120");
    session
}

#[test]
fn a_signal_is_asked_for_and_goes_to_the_chosen_process() {
    let mut sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let mut s = table(160, &pid, &[]);
    s.type_keys("/sleep\r");
    s.see("1 of 2");
    s.type_keys("\x1b[20~");
    let dialog = s.see("send a signal?");
    assert!(
        dialog.contains(&format!("PID {pid}")) && dialog.contains("SIGTERM"),
        "{dialog}"
    );
    s.type_keys("\x1b");
    s.wait("the dialog's end", |t| !t.contains("send a signal?"));
    assert!(sleeper.0.try_wait().unwrap().is_none(), "Esc sent a signal");
    std::thread::sleep(std::time::Duration::from_millis(150));
    s.type_keys("\x1b[20~");
    s.see("send a signal?");
    s.type_keys("\r");
    s.see("signal 15 sent");
    assert_eq!(sleeper.0.wait().unwrap().signal(), Some(15));
    s.type_keys("q");
    assert_eq!(s.end().exit_code(), 0);
    s.assert_restored();
}

#[test]
fn readonly_has_no_signal_in_keys_help_and_footer() {
    let sleeper = Sleeper::start();
    let mut s = table(160, &sleeper.pid(), &["--readonly"]);
    s.type_keys("\x1b[20~");
    s.see("off: --readonly");
    s.type_keys("?");
    let help = s.see("allocate a block on the GPU");
    assert!(!help.contains("signal dialog"), "{help}");
    s.type_keys("\x1b[6~\x1b[6~\x1b[6~\x1b[6~");
    let help = s.see("explain");
    assert!(!help.contains("signal dialog"), "{help}");
}

#[test]
fn order_filter_tree_user_and_watching() {
    let sleeper = Sleeper::start();
    let mut s = table(200, &sleeper.pid(), &[]);
    s.type_keys("s");
    s.see("by RSS");
    s.type_keys("I");
    s.see("reversed");
    s.type_keys("/zzz\r");
    s.see("no row matches");
    s.type_keys("\x1b");
    s.see("2 of 2");
    std::thread::sleep(std::time::Duration::from_millis(150));
    s.type_keys("/~[");
    s.see("no whole expression yet");
    s.type_keys("\x1b");
    s.see("2 of 2");
    std::thread::sleep(std::time::Duration::from_millis(150));
    s.type_keys("u");
    s.see("user ");
    s.type_keys("ut");
    s.see("2 of 2");
    // Our own row, then back to the other.
    s.type_keys("/alloctop\r\r");
    s.wait("our own panels", |t| {
        !t.lines().next().unwrap_or_default().contains("process")
    });
    s.type_keys("A");
    s.see("publishes its counters");
    s.type_keys("\x1b");
    std::thread::sleep(std::time::Duration::from_millis(150));
    s.type_keys("/sleep\r");
    s.see("1 of ");
    s.type_keys("A");
    s.see("is not read any more");
    s.type_keys("\r");
    s.see(&format!("process {}", sleeper.pid()));
    s.type_keys("g");
    s.see("is watched");
}

#[test]
fn keys_typed_ahead_act_in_their_order() {
    let mut s = Session::start(120, 36, &["--backend", "sim", "--shape", "1024x1024"]);
    s.see("peak");
    s.type_keys("gd");
    s.see("inside the cache");
    s.see("blocks: 0 live");
    s.type_keys("gggdcd");
    s.wait("two blocks", |t| t.contains("blocks: 2 live") && t.contains("del #5"));
    // Control-C quits also with the help open.
    s.type_keys("?");
    s.see("allocate a block on the GPU");
    s.type_keys("\x03");
    assert_eq!(s.end().exit_code(), 0);
    s.assert_restored();
}
