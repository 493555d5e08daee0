//! The log: a file under the state directory, never the screen. What is counted or refused silently on the screen stands
//! here with its detail.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Mutex;

use etcetera::BaseStrategy;

/// A log larger than this is kept once as `.old` and begun again.
const LIMIT: u64 = 1 << 20;

/// Where the log stands: `alloctop/alloctop.log` under `$XDG_STATE_HOME` or its default.
pub fn path() -> Option<PathBuf> {
    let base = etcetera::base_strategy::Xdg::new().ok()?;
    Some(base.state_dir()?.join("alloctop").join("alloctop.log"))
}

fn open() -> Option<File> {
    let path = path()?;
    std::fs::create_dir_all(path.parent()?).ok()?;
    if std::fs::metadata(&path).is_ok_and(|m| m.len() > LIMIT) {
        let _ = std::fs::rename(&path, path.with_extension("log.old"));
    }
    OpenOptions::new().create(true).append(true).open(path).ok()
}

/// Starts logging; without a place to write, the program runs without a log.
pub fn start() {
    if let Some(file) = open() {
        let _ = tracing_subscriber::fmt()
            .with_writer(Mutex::new(file))
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .try_init();
    }
}
