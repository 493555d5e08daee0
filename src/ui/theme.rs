//! Colours by role. Panes never name a colour: they ask for a role, so that a scheme, a terminal with fewer colours or
//! none at all (NO_COLOR) changes one place. No meaning is carried by colour alone (AC-24): every role that tells parts
//! apart also has its own glyph in [`super::glyphs`].

use ratatui::style::{Color, Modifier, Style};

/// Which set of colours is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheme {
    /// For dark backgrounds. The hues are those of Okabe and Ito, which colour-blind people can tell apart.
    #[default]
    Dark,
    /// For light backgrounds: the same hues, darker.
    Light,
    /// For screen recordings: no dim text, strong hues.
    Recording,
    /// No colour at all: bold, reverse and underline only.
    Mono,
}

/// How many colours the terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The sixteen named colours.
    Sixteen,
    /// The 256-colour table.
    Indexed,
    /// 24 bits.
    True,
}

impl Depth {
    /// From what `TERM` and `COLORTERM` say (AC-23).
    pub fn of(term: &str, colorterm: &str) -> Self {
        if matches!(colorterm, "truecolor" | "24bit") {
            Depth::True
        } else if term.contains("256color") {
            Depth::Indexed
        } else {
            Depth::Sixteen
        }
    }
}

/// What a piece of the screen is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Plain text.
    Text,
    /// Less important text: axes, units, ages.
    Dim,
    /// Frames.
    Frame,
    /// The frame of the panel or area with the focus.
    Focus,
    /// A figure that is to be read first.
    Figure,
    /// Something that went up.
    Up,
    /// Something that went down.
    Down,
    /// A warning: lost samples, stale data, moving bill.
    Warn,
    /// A refusal or an error.
    Alarm,
    /// The badge of a simulated device.
    Badge,
    /// A key in the footer or the help.
    Key,
    /// The selected row.
    Selected,
    /// CPU RAM.
    Ram,
    /// Driver VRAM.
    Vram,
    /// Allocated: live tensors.
    Live,
    /// Reserved: the allocator's pool; its cached part in the bill.
    Cache,
    /// Freed, with an event outstanding.
    Pending,
    /// What the driver keeps for itself.
    Driver,
    /// Other processes.
    Others,
    /// Context, kernels, libraries.
    Context,
    /// Free memory.
    Free,
    /// The signed remainder.
    Unexplained,
}

/// One colour in the three depths.
#[derive(Clone, Copy)]
struct Hue(u8, u8, u8, u8, Color);

const fn hue(r: u8, g: u8, b: u8, indexed: u8, named: Color) -> Hue {
    Hue(r, g, b, indexed, named)
}

/// A scheme at a depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    scheme: Scheme,
    depth: Depth,
}

impl Theme {
    /// The theme of `scheme` on a terminal of `depth`.
    pub fn new(scheme: Scheme, depth: Depth) -> Self {
        Theme { scheme, depth }
    }

    /// No colours: what NO_COLOR asks for.
    pub fn mono() -> Self {
        Theme::new(Scheme::Mono, Depth::Sixteen)
    }

    /// True when this theme draws no colour.
    pub fn is_mono(self) -> bool {
        self.scheme == Scheme::Mono
    }

    /// The style of `role`.
    pub fn style(self, role: Role) -> Style {
        let style = Style::new().add_modifier(self.modifier(role));
        if self.is_mono() {
            return style;
        }
        match (role, self.hue(role)) {
            (Role::Badge, Some(h)) => style.bg(self.colour(h)).fg(Color::Black),
            (Role::Selected, Some(h)) => style.bg(self.colour(h)).fg(match self.scheme {
                Scheme::Light => Color::White,
                _ => Color::Black,
            }),
            (_, Some(h)) => style.fg(self.colour(h)),
            (_, None) => style,
        }
    }

    fn colour(self, Hue(r, g, b, indexed, named): Hue) -> Color {
        match self.depth {
            Depth::True => Color::Rgb(r, g, b),
            Depth::Indexed => Color::Indexed(indexed),
            Depth::Sixteen => named,
        }
    }

    fn modifier(self, role: Role) -> Modifier {
        match role {
            Role::Alarm if self.is_mono() => Modifier::BOLD.union(Modifier::UNDERLINED),
            Role::Badge | Role::Selected if self.is_mono() => Modifier::REVERSED.union(Modifier::BOLD),
            Role::Figure | Role::Focus | Role::Key | Role::Warn | Role::Alarm | Role::Badge => Modifier::BOLD,
            Role::Dim | Role::Frame | Role::Free if self.is_mono() => Modifier::DIM,
            _ => Modifier::empty(),
        }
    }

    fn hue(self, role: Role) -> Option<Hue> {
        Some(match self.scheme {
            Scheme::Mono => return None,
            Scheme::Light => match role {
                Role::Text | Role::Figure => return None,
                Role::Dim | Role::Driver => hue(96, 96, 96, 241, Color::DarkGray),
                Role::Frame | Role::Free => hue(140, 140, 140, 245, Color::Gray),
                Role::Focus | Role::Key | Role::Selected | Role::Ram => hue(0, 90, 150, 24, Color::Blue),
                Role::Down | Role::Vram => hue(0, 110, 80, 29, Color::Green),
                Role::Up | Role::Live => hue(170, 90, 0, 130, Color::Yellow),
                Role::Cache => hue(150, 50, 110, 126, Color::Magenta),
                Role::Pending => hue(120, 100, 0, 94, Color::Cyan),
                Role::Warn | Role::Badge => hue(200, 120, 0, 172, Color::Yellow),
                Role::Alarm | Role::Others => hue(180, 40, 0, 124, Color::Red),
                Role::Context => hue(20, 90, 130, 24, Color::Blue),
                Role::Unexplained => hue(90, 60, 140, 60, Color::Magenta),
            },
            Scheme::Dark | Scheme::Recording => match role {
                Role::Text if self.scheme == Scheme::Recording => hue(235, 235, 235, 255, Color::White),
                Role::Text => return None,
                Role::Figure => hue(255, 255, 255, 231, Color::White),
                Role::Dim | Role::Driver if self.scheme == Scheme::Recording => hue(185, 190, 200, 250, Color::Gray),
                Role::Dim | Role::Driver => hue(138, 146, 158, 246, Color::Gray),
                Role::Frame | Role::Free => hue(92, 100, 112, 241, Color::DarkGray),
                Role::Focus | Role::Key | Role::Selected => hue(86, 180, 233, 75, Color::LightCyan),
                Role::Ram => hue(86, 180, 233, 75, Color::LightBlue),
                Role::Down | Role::Vram => hue(0, 178, 130, 36, Color::LightGreen),
                Role::Up | Role::Live => hue(240, 170, 20, 214, Color::LightYellow),
                Role::Cache => hue(212, 135, 180, 175, Color::LightMagenta),
                Role::Pending => hue(240, 228, 66, 227, Color::LightCyan),
                Role::Warn | Role::Badge => hue(250, 180, 40, 214, Color::LightYellow),
                Role::Alarm | Role::Others => hue(225, 105, 40, 166, Color::LightRed),
                Role::Context => hue(60, 130, 190, 67, Color::LightBlue),
                Role::Unexplained => hue(160, 130, 220, 140, Color::Magenta),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colour_means_no_colour_in_any_role() {
        for role in [
            Role::Text,
            Role::Badge,
            Role::Selected,
            Role::Alarm,
            Role::Live,
            Role::Cache,
            Role::Free,
            Role::Unexplained,
        ] {
            let style = Theme::mono().style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
    }

    #[test]
    fn depth_follows_the_terminal() {
        assert_eq!(Depth::of("xterm-256color", ""), Depth::Indexed);
        assert_eq!(Depth::of("xterm-256color", "truecolor"), Depth::True);
        assert_eq!(Depth::of("linux", ""), Depth::Sixteen);
        assert_eq!(
            Theme::new(Scheme::Dark, Depth::Sixteen).style(Role::Live).fg,
            Some(Color::LightYellow)
        );
    }
}
