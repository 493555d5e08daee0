//! Glyph sets: Braille, eighth blocks, ASCII (AC-25), and the choice between them by locale (AC-21).

use ratatui::symbols::border;

use super::theme::Role;

/// Which characters draw curves and frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GlyphSet {
    /// Eighth blocks: filled curves, in every monospace font.
    #[default]
    Block,
    /// Braille dots: twice the columns, four dots a row.
    Braille,
    /// Seven-bit characters only.
    Ascii,
}

impl GlyphSet {
    /// The set for a locale: the first of `LC_ALL`, `LC_CTYPE`, `LANG` that is set and not empty decides, as in POSIX.
    pub fn for_locale(lc_all: Option<&str>, lc_ctype: Option<&str>, lang: Option<&str>) -> Self {
        let locale = [lc_all, lc_ctype, lang]
            .into_iter()
            .flatten()
            .find(|v| !v.is_empty())
            .unwrap_or("C")
            .to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            GlyphSet::Block
        } else {
            GlyphSet::Ascii
        }
    }

    /// True for the set of seven-bit characters.
    pub fn is_ascii(self) -> bool {
        self == GlyphSet::Ascii
    }

    /// The frame's characters.
    pub fn border(self) -> border::Set<'static> {
        if self.is_ascii() {
            border::Set {
                top_left: "+",
                top_right: "+",
                bottom_left: "+",
                bottom_right: "+",
                vertical_left: "|",
                vertical_right: "|",
                horizontal_top: "-",
                horizontal_bottom: "-",
            }
        } else {
            border::ROUNDED
        }
    }

    /// The character that fills a line of the bill, of the block strip and of a swatch: told apart without colour.
    pub fn fill(self, role: Role) -> &'static str {
        let (unicode, ascii) = match role {
            Role::Driver => ("▞", "%"),
            Role::Others => ("▤", "O"),
            Role::Context => ("▓", "x"),
            Role::Live => ("█", "#"),
            Role::Pending => ("▚", "~"),
            Role::Cache => ("▒", "="),
            Role::Free => ("·", "."),
            Role::Unexplained => ("?", "?"),
            _ => ("▄", "*"),
        };
        if self.is_ascii() { ascii } else { unicode }
    }

    /// `unicode` where it can be shown, else `ascii`.
    pub fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.is_ascii() { ascii } else { unicode }
    }

    /// Replaces the few typographic characters of our sentences by seven-bit ones where needed. Foreign text has been
    /// sanitised before; what is left outside ASCII becomes `?`.
    pub fn text(self, text: &str) -> std::borrow::Cow<'_, str> {
        if !self.is_ascii() || text.is_ascii() {
            return text.into();
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '·' | '–' | '—' | '−' => out.push('-'),
                '±' => out.push_str("+-"),
                '≥' => out.push_str(">="),
                '≤' => out.push_str("<="),
                '×' => out.push('x'),
                '…' => out.push_str(".."),
                'µ' => out.push('u'),
                '↑' => out.push('^'),
                '↓' => out.push('v'),
                '←' => out.push('<'),
                '▸' | '→' => out.push('>'),
                c if c.is_ascii() => out.push(c),
                _ => out.push('?'),
            }
        }
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locale_precedence_is_posix() {
        let f = GlyphSet::for_locale;
        assert_eq!(f(None, None, None), GlyphSet::Ascii);
        assert_eq!(f(None, None, Some("en_US.UTF-8")), GlyphSet::Block);
        assert_eq!(f(Some("C"), None, Some("en_US.UTF-8")), GlyphSet::Ascii);
        assert_eq!(f(Some(""), Some("C.utf8"), Some("C")), GlyphSet::Block);
        assert_eq!(f(Some("POSIX"), Some("C.UTF-8"), None), GlyphSet::Ascii);
    }

    #[test]
    fn ascii_text_is_ascii() {
        assert_eq!(GlyphSet::Ascii.text("±0 · 5 µs…"), "+-0 - 5 us..");
        assert_eq!(GlyphSet::Block.text("±0"), "±0");
    }
}
