//! Builds the made-up management library and sets what it answers.
#![allow(dead_code)]

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use alloctop::reading::Reading;
use alloctop::source::nvml::Nvml;

/// One copy of the library in a folder of its own, with its control file.
pub struct Fake {
    folder: tempfile::TempDir,
}

/// Compiles the library once for each set of left-out versions.
fn compiled(lacks: &[&str]) -> PathBuf {
    static DONE: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let key = lacks.join("-");
    let mut done = DONE.get_or_init(Mutex::default).lock().unwrap();
    if let Some(path) = done.get(&key) {
        return path.clone();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml_library/fake.rs");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("libnvidia-ml-{key}.so.1"));
    // Other test binaries build the same file at the same time: it appears in one step.
    let own = folder.join(format!("libnvidia-ml-{key}-{}", std::process::id()));
    let mut command = Command::new(rustc());
    command
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "nvidia_ml",
            "-C",
            "panic=abort",
        ])
        .args(lacks.iter().flat_map(|cfg| ["--cfg".to_owned(), (*cfg).to_owned()]))
        .args(["--cap-lints", "allow", "-o"])
        .arg(&own)
        .arg(&source);
    let out = command.output().expect("rustc runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::rename(own, &path).unwrap();
    done.insert(key, path.clone());
    path
}

/// The compiler beside the cargo that runs the tests, else the one on the path.
fn rustc() -> OsString {
    std::env::var_os("RUSTC")
        .or_else(|| {
            let beside = Path::new(&std::env::var_os("CARGO")?).with_file_name("rustc");
            beside.exists().then(|| beside.into_os_string())
        })
        .unwrap_or_else(|| OsString::from("rustc"))
}

impl Fake {
    /// A library that lacks some versions of its calls and answers what `control` says.
    pub fn new(lacks: &[&str], control: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(compiled(lacks), folder.path().join("libnvidia-ml.so.1")).unwrap();
        let fake = Fake { folder };
        fake.control(control);
        fake
    }

    /// Where it lies.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// From now on it answers this. The file is replaced in one step: a call never sees half of it.
    pub fn control(&self, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.folder.path().join("libnvidia-ml.so.1.control")).unwrap();
    }

    /// Opens it as `--nvml PATH` does.
    pub fn open(&self) -> Reading<Nvml> {
        Nvml::open(Some(&self.path()))
    }

    /// Opens it; it must work.
    pub fn opened(self) -> Opened {
        match self.open() {
            Reading::Is(nvml) => Opened { nvml, fake: self },
            Reading::Missing(why) => panic!("{why}"),
        }
    }
}

/// The opened library, with the folder that it reads its answers from.
pub struct Opened {
    nvml: Nvml,
    pub fake: Fake,
}

impl std::ops::Deref for Opened {
    type Target = Nvml;

    fn deref(&self) -> &Nvml {
        &self.nvml
    }
}

impl std::ops::DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Nvml {
        &mut self.nvml
    }
}
