//! The log: a file under the state directory, never the screen. What is counted or refused silently on the screen stands
//! here with its detail.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use etcetera::BaseStrategy;
use nix::fcntl::OFlag;

/// A log larger than this is kept once as `.old` and begun again.
const LIMIT: u64 = 1 << 20;

/// Where the log stands: `alloctop/alloctop.log` under `$XDG_STATE_HOME` or its default.
pub fn path() -> Option<PathBuf> {
    let base = etcetera::base_strategy::Xdg::new().ok()?;
    Some(base.state_dir()?.join("alloctop").join("alloctop.log"))
}

/// Opens the log. Only a regular file will do: a pipe that nobody reads would hold every command, and a link could lead
/// anywhere.
fn open(path: &Path) -> Option<File> {
    std::fs::create_dir_all(path.parent()?).ok()?;
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() > LIMIT) {
        let _ = std::fs::rename(path, path.with_extension("log.old"));
    }
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(flags.bits())
        .open(path)
        .ok()?;
    file.metadata().is_ok_and(|m| m.is_file()).then_some(file)
}

/// Starts logging; without a place to write, the program runs without a log.
pub fn start() {
    if let Some(file) = path().and_then(|path| open(&path)) {
        let _ = tracing_subscriber::fmt()
            .with_writer(Mutex::new(file))
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .try_init();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn only_a_regular_file_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        open(&at("new/log")).unwrap().write_all(b"a line").unwrap();
        assert_eq!(std::fs::read(at("new/log")).unwrap(), b"a line");

        // A pipe without a reader, and one with.
        nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        assert!(open(&at("pipe")).is_none());
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(at("pipe"));
        assert!(open(&at("pipe")).is_none());
        drop(reader);

        std::os::unix::fs::symlink(at("new/log"), at("link")).unwrap();
        assert!(open(&at("link")).is_none());
        assert!(open(&at("new")).is_none());
    }

    #[test]
    fn a_long_log_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alloctop.log");
        std::fs::write(&path, vec![b'x'; LIMIT as usize + 1]).unwrap();
        drop(open(&path));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        assert!(folder.path().join("alloctop.log.old").exists());
    }
}
