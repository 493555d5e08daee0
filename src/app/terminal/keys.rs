//! From the bytes of a terminal to keys. The library `termina` knows the sequences; here stands what it leaves open:
//! Ctrl-C, ESC and silence end any sequence, and what is no key (mouse, focus, paste, answers to questions of an earlier
//! program) is swallowed, not typed.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use termina::Event;
use termina::event::{self as theirs, Modifiers};

const ESCAPE: u8 = 0x1b;
const CTRL_C: u8 = 0x03;

/// Bytes without a key or a report after which the library's parser is emptied: it keeps an unfinished string whole.
const LONGEST: usize = 1 << 20;

/// The parser: bytes in, keys out.
#[derive(Debug, Default)]
pub struct Parser {
    library: termina::Parser,
    /// Bytes since the library last made something of them.
    kept: usize,
    /// The byte before.
    last: u8,
}

impl Parser {
    /// True while a sequence may be incomplete.
    pub fn amid(&self) -> bool {
        self.kept > 0
    }

    /// Takes bytes in and returns the keys that are complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<KeyEvent> {
        let mut keys = Vec::new();
        for &byte in bytes {
            // Both end what stands before them. The library would take them as a part of that, and type what follows: the
            // D of a cursor key after a sequence that was cut off.
            if matches!(byte, ESCAPE | CTRL_C) || self.kept >= LONGEST {
                keys.extend(self.silence());
            }
            match byte {
                // Strings for a terminal that the library does not know (APC, PM, SOS) are read as OSC.
                b'_' | b'^' | b'X' if self.last == ESCAPE => keys.extend(self.parse(b"]", true)),
                // The end of a string.
                b'\\' if self.last == ESCAPE => *self = Self::default(),
                _ => keys.extend(self.parse(&[byte], true)),
            }
            self.last = byte;
        }
        keys
    }

    /// Nothing more came for a while: what stands is all there is.
    pub fn silence(&mut self) -> Option<KeyEvent> {
        let key = self.parse(&[], false);
        // The library has no other way out of an unfinished sequence.
        *self = Self::default();
        key
    }

    /// A byte makes at most one event.
    fn parse(&mut self, bytes: &[u8], more: bool) -> Option<KeyEvent> {
        self.library.parse(bytes, more);
        self.kept += bytes.len();
        let event = self.library.pop()?;
        self.kept = 0;
        match event {
            Event::Key(key) => of(key),
            _ => None,
        }
    }
}

/// The library's key as the rest of the program takes it; keys that nothing is bound to are none.
fn of(key: theirs::KeyEvent) -> Option<KeyEvent> {
    let code = match key.code {
        // Kitty's keyboard protocol, if a program before us left it on, names the key and not the character.
        theirs::KeyCode::Char(c) if key.modifiers.contains(Modifiers::SHIFT) => KeyCode::Char(c.to_ascii_uppercase()),
        theirs::KeyCode::Char(c) => KeyCode::Char(c),
        theirs::KeyCode::Function(n) => KeyCode::F(n),
        theirs::KeyCode::Enter => KeyCode::Enter,
        theirs::KeyCode::Backspace => KeyCode::Backspace,
        theirs::KeyCode::Tab => KeyCode::Tab,
        theirs::KeyCode::BackTab => KeyCode::BackTab,
        theirs::KeyCode::Escape => KeyCode::Esc,
        theirs::KeyCode::Left => KeyCode::Left,
        theirs::KeyCode::Right => KeyCode::Right,
        theirs::KeyCode::Up => KeyCode::Up,
        theirs::KeyCode::Down => KeyCode::Down,
        theirs::KeyCode::Home => KeyCode::Home,
        theirs::KeyCode::End => KeyCode::End,
        theirs::KeyCode::PageUp => KeyCode::PageUp,
        theirs::KeyCode::PageDown => KeyCode::PageDown,
        theirs::KeyCode::Insert => KeyCode::Insert,
        theirs::KeyCode::Delete => KeyCode::Delete,
        _ => return None,
    };
    if matches!(code, KeyCode::Char(c) if c.is_control()) {
        return None;
    }
    let mut modifiers = KeyModifiers::NONE;
    for (theirs, ours) in [
        (Modifiers::SHIFT, KeyModifiers::SHIFT),
        (Modifiers::ALT, KeyModifiers::ALT),
        (Modifiers::CONTROL, KeyModifiers::CONTROL),
        (Modifiers::SUPER, KeyModifiers::SUPER),
    ] {
        modifiers.set(ours, key.modifiers.contains(theirs));
    }
    let kind = match key.kind {
        theirs::KeyEventKind::Press => KeyEventKind::Press,
        theirs::KeyEventKind::Repeat => KeyEventKind::Repeat,
        theirs::KeyEventKind::Release => KeyEventKind::Release,
    };
    Some(KeyEvent::new_with_kind(code, modifiers, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q: KeyEvent = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);

    /// The keys of some bytes and the silence after them, in short.
    fn keys(bytes: &[u8]) -> String {
        let mut parser = Parser::default();
        let mut found = parser.feed(bytes);
        found.extend(parser.silence());
        assert!(!parser.amid());
        let text = |key: &KeyEvent| {
            let mut out = String::new();
            for (modifier, letter) in [
                (KeyModifiers::CONTROL, "C-"),
                (KeyModifiers::ALT, "A-"),
                (KeyModifiers::SHIFT, "S-"),
            ] {
                if key.modifiers.contains(modifier) {
                    out += letter;
                }
            }
            out + &match key.code {
                KeyCode::Char(c) => c.to_string(),
                other => format!("{other:?}"),
            }
        };
        found.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_terminals_send_is_what_was_pressed() {
        for (bytes, wanted) in [
            ("gG?", "g S-G ?"),
            ("\x03\x1a\x0c\0", "C-c C-z C-l C- "),
            ("\r\t\x7f\x1b", "Enter Tab Backspace Esc"),
            ("\x1b\x1b", "Esc Esc"),
            ("\x1b\x1b[A\x1bx", "Esc Up A-x"),
            ("\x1b[A\x1bOB\x1b[1;5C\x1b[1;2D", "Up Down C-Right S-Left"),
            (
                "\x1b[H\x1b[4~\x1b[5~\x1b[6~\x1b[2~\x1b[3~",
                "Home End PageUp PageDown Insert Delete",
            ),
            ("\x1bOP\x1b[[B\x1b[15~\x1b[21~", "F(1) F(2) F(5) F(10)"),
            ("\x1b[Z", "S-BackTab"),
            ("é世", "é 世"),
            ("\x1b[99;5u\x1b[103;2u", "C-c S-G"),
        ] {
            assert_eq!(keys(bytes.as_bytes()), wanted, "{bytes:?}");
        }
        let released = Parser::default().feed(b"\x1b[103;1:3u");
        assert_eq!(released[0].kind, KeyEventKind::Release);
    }

    #[test]
    fn what_is_no_key_is_swallowed() {
        for bytes in [
            &b"\x1b[M !!"[..],
            b"\x1b[<0;10;10M\x1b[<0;10;10m",
            b"\x1b[I\x1b[O",
            b"\x1b[200~gDq\x1b[201~",
            b"\x1b[12;40R\x1b[0;0R",
            b"\x1b[?62;4c\x1b[?1u\x1b[?2026;2$y",
            b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\",
            b"\x1b]11;rgb:1e1e/1e1e/1e1e\x07",
            b"\x1bP1+r\n436f\x1b\\",
            b"\x1b_Gi=31;OK\x1b\\",
            b"\xff\xfe\x1b[99999999999999999999u\x1b[1u",
        ] {
            assert_eq!(keys(bytes), "", "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn no_beginning_keeps_keys_from_acting() {
        for beginning in [
            "\x1b",
            "\x1b[",
            "\x1b[?",
            "\x1b[<",
            "\x1b[200~",
            "\x1b[M",
            "\x1b[1;",
            "\x1b[[",
            "\x1bO",
            "\x1b]0;",
            "\x1bP",
            "\x1b_",
        ] {
            let mut parser = Parser::default();
            parser.feed(beginning.as_bytes());
            let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(
                parser.feed(b"\x03").last(),
                Some(&control_c),
                "{beginning:?} and Ctrl-C"
            );
            parser.feed(beginning.as_bytes());
            let left = KeyEvent::new(KeyCode::Left, KeyModifiers::NONE);
            let keys = parser.feed(b"\x1b[D");
            assert!(
                keys.ends_with(&[left]) && keys.iter().all(|k| *k == left || k.code == KeyCode::Esc),
                "{keys:?}"
            );
            parser.feed(beginning.as_bytes());
            parser.silence();
            assert_eq!(parser.feed(b"q"), [Q], "{beginning:?}, silence, q");
        }
    }

    #[test]
    fn any_bytes_leave_a_parser_that_works() {
        let mut parser = Parser::default();
        let mut seed = 1_u64;
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let byte = (seed >> 56) as u8;
            // Half of the bytes are those that sequences are made of.
            let byte = if seed >> 55 & 1 == 0 {
                b"\x1b[O]M<?;:0~u"[usize::from(byte) % 12]
            } else {
                byte
            };
            parser.feed(&[byte]);
        }
        parser.silence();
        assert_eq!(parser.feed(b"q"), [Q]);
    }
}
