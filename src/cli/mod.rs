//! What can be typed: flags and subcommands, with the habits of the tools beside us (acceptance, "Conventions").

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::ui::glyphs::GlyphSet;
use crate::ui::theme::Scheme;
use crate::units::Bytes;
use crate::worker::{Dtype, Shape};

pub mod check;
pub mod parse;
pub mod run;

/// Which driver the embedded allocator runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// CUDA where the monitor library finds a device, else the simulated one.
    #[default]
    Auto,
    /// The simulated device.
    Sim,
    /// The CUDA driver; an error where there is none.
    Cuda,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// What the exit codes of the dashboard, of --once and of --json mean.
const EXIT_CODES: &str = "Exit codes: 0 fine; 1 something that was asked for could not be read (with --once and --json: no \
GPU, or a process of --pid); 2 what was typed cannot be done. experiment: 0 all agree, 1 one disagrees, 2 something is \
unknown. parity: 0 equal, 1 different. doctor: 0 all well, 1 warnings, 2 failures.";

/// Where is the memory, and which of my actions moved it? Four live graphs: CPU RAM, driver VRAM, and a PyTorch caching
/// allocator's allocated and reserved bytes.
#[derive(Clone, Debug, Parser)]
#[command(name = "alloctop", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do instead of the dashboard.
    #[command(subcommand)]
    pub command: Option<Task>,

    /// Everything else.
    #[command(flatten)]
    pub options: Options,
}

/// Flags of the dashboard; most hold for the subcommands too.
#[derive(Clone, Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that can be typed")]
pub struct Options {
    /// Watch this process (reading only); more than one, separated by commas, with --once and --json
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse::pid)]
    pub pid: Vec<u32>,

    /// Driver of the embedded allocator
    #[arg(long, value_enum, default_value_t, env = "ALLOCTOP_BACKEND", global = true)]
    pub backend: Backend,

    /// Sampling interval, 10 ms to 10 s: 500ms, 1s, 0.5 (a plain number is seconds)
    #[arg(long, value_parser = parse::interval, default_value = "100ms", env = "ALLOCTOP_INTERVAL")]
    pub interval: Duration,

    /// Sampling interval in tenths of a second, as htop and nvtop have it
    #[arg(short = 'd', value_name = "TENTHS", value_parser = clap::value_parser!(u64).range(1..=100), conflicts_with = "interval")]
    pub delay: Option<u64>,

    /// GPUs to show: index, UUID or PCI id, separated by commas; the first is shown first (default: those that
    /// CUDA_VISIBLE_DEVICES names, else all)
    #[arg(long, value_name = "ID", value_delimiter = ',', global = true)]
    pub gpu: Vec<String>,

    /// Shape of the next block (keys [ and ] change it)
    #[arg(long, value_name = "NxM", default_value = "10000x20000", global = true)]
    pub shape: Shape,

    /// Element type of the next block, by PyTorch's name
    #[arg(long, default_value = "float32", global = true)]
    pub dtype: Dtype,

    /// What the embedded allocator and the host blocks may hold at most (default: the smaller of 4 GiB and a quarter of
    /// what is free)
    #[arg(long, value_name = "SIZE", value_parser = parse::size, global = true)]
    pub budget: Option<Bytes>,

    /// Rules of this PyTorch release (2.0 to 2.15; one that was never examined gets those of the nearest older)
    #[arg(long, value_name = "VERSION", global = true)]
    pub torch: Option<String>,

    /// Configuration of the embedded allocator, in the language of PYTORCH_CUDA_ALLOC_CONF
    #[arg(long, value_name = "CONF", global = true)]
    pub alloc_conf: Option<String>,

    /// The NVIDIA monitor library (libnvidia-ml.so.1)
    #[arg(long, value_name = "PATH", env = "ALLOCTOP_NVML", global = true)]
    pub nvml: Option<PathBuf>,

    /// Figures of the simulated device, e.g. total=24GiB,reserved=300MiB,context=400MiB,kernel=60MiB,unattributed=8MiB
    #[arg(long, value_name = "KEY=SIZE", value_delimiter = ',', global = true)]
    pub sim: Vec<String>,

    /// Colours
    #[arg(long, value_enum)]
    pub theme: Option<Scheme>,

    /// No colours (also: NO_COLOR)
    #[arg(short = 'C', long)]
    pub no_color: bool,

    /// Characters of the curves
    #[arg(long, value_enum)]
    pub glyphs: Option<GlyphSet>,

    /// Seven-bit characters only
    #[arg(short = 'U', long, visible_alias = "ascii", conflicts_with = "glyphs")]
    pub no_unicode: bool,

    /// Unicode whatever the locale says
    #[arg(long, conflicts_with_all = ["no_unicode", "glyphs"])]
    pub utf8: bool,

    /// No mouse (it is never captured; accepted for the habit)
    #[arg(short = 'M', long)]
    pub no_mouse: bool,

    /// Remove the keys that act on other processes; reading stays
    #[arg(long)]
    pub readonly: bool,

    /// Print once and leave
    #[arg(short = '1', long)]
    pub once: bool,

    /// Print one JSON document and leave
    #[arg(long, global = true)]
    pub json: bool,

    /// Only this user's processes (name or uid), with --once and --json
    #[arg(short, long)]
    pub user: Option<String>,

    /// Where files are written (key w); default: the current folder
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// For the tests of the terminal's restoration: panics in the named thread after a second
    #[arg(long, hide = true, value_name = "THREAD")]
    pub panic_in: Option<String>,

    /// The flags that were typed, by their ids: neither defaults nor the environment's.
    #[arg(skip)]
    pub typed: Vec<String>,
}

/// Subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// Allocate, delete and flush 800 MB by itself and check every figure against what PyTorch's documentation says
    Experiment {
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// The child process of the experiment, which does the steps
    #[command(hide = true, name = "experiment-child")]
    ExperimentChild {
        /// What the parent asks for
        options: String,
    },
    /// Replay recordings of PyTorch's allocator through ours and compare every figure
    Parity {
        /// Recordings: trace, golden, train files, snapshot pickles; plain or .gz
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Check libraries, driver, devices, permissions and terminal; exit 0, 1 (warnings) or 2 (failures)
    Doctor {
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Print the key table in Markdown, as the README has it
    #[command(hide = true)]
    Keys,
}

impl Cli {
    /// Reads the command line, and which flags are on it.
    ///
    /// # Errors
    /// clap's own; `exit` prints it.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let matches = Cli::command().try_get_matches_from(args)?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        let typed = |matches: &ArgMatches| {
            let ids = matches.ids().map(|id| id.as_str().to_owned());
            ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
                .collect::<Vec<_>>()
        };
        cli.options.typed = typed(&matches);
        if let Some((_, inner)) = matches.subcommand() {
            cli.options.typed.extend(typed(inner));
        }
        Ok(cli)
    }
}

impl Options {
    /// The sampling interval, whichever flag gave it.
    pub fn interval(&self) -> Duration {
        self.delay
            .map_or(self.interval, |tenths| Duration::from_millis(tenths * 100))
    }

    /// Colours and characters, from flags and the environment (`env` looks a variable up).
    pub fn look(&self, env: impl Fn(&str) -> Option<String>) -> crate::ui::Look {
        use crate::ui::theme::{Depth, Theme};
        let var = |name: &str| env(name).unwrap_or_default();
        let no_color = self.no_color || env("NO_COLOR").is_some_and(|v| !v.is_empty());
        let term = var("TERM");
        let theme = if no_color || term == "dumb" {
            Theme::mono()
        } else {
            Theme::new(self.theme.unwrap_or_default(), Depth::of(&term, &var("COLORTERM")))
        };
        let locale = || {
            GlyphSet::for_locale(
                env("LC_ALL").as_deref(),
                env("LC_CTYPE").as_deref(),
                env("LANG").as_deref(),
            )
        };
        let glyphs = match (self.glyphs, self.no_unicode, self.utf8) {
            (Some(set), ..) => set,
            (None, true, _) => GlyphSet::Ascii,
            (None, _, true) => GlyphSet::Block,
            _ => locale(),
        };
        crate::ui::Look { theme, glyphs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::Theme;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_mean_what_their_peers_mean() {
        let cli = Cli::parse_from(["alloctop", "-d", "5", "-p", "12,13", "-U", "-C"]);
        assert_eq!(cli.options.interval(), Duration::from_millis(500));
        assert_eq!(cli.options.pid, [12, 13]);
        let look = cli.options.look(|_| Some("xterm-256color".into()));
        assert_eq!((look.glyphs, look.theme), (GlyphSet::Ascii, Theme::mono()));
        for wrong in [
            "--interval=9ms",
            "--interval=11s",
            "--interval=x",
            "--shape=0",
            "--pid=0",
            "--budget=1GB",
        ] {
            assert!(Cli::try_parse_from(["alloctop", wrong]).is_err(), "{wrong}");
        }
    }
}
