//! From the bytes of a terminal to keys (ECMA-48 control sequences; xterm's and kitty's documents for the keys). Whatever
//! comes, the parser comes back: control characters end a sequence, silence ends it, Ctrl-C is a key everywhere. What is
//! no key (mouse, focus, answers to questions of an earlier program) is swallowed, not typed.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Bytes of a sequence that are kept; keys have fewer than 20.
const LONGEST: usize = 32;

const ESCAPE: u8 = 0x1b;
const CTRL_C: u8 = 0x03;

/// Where in a sequence we are.
#[derive(Debug, Default)]
enum State {
    #[default]
    Ground,
    /// After ESC.
    Escape,
    /// After `ESC [`: parameters and intermediates so far.
    Csi(Vec<u8>),
    /// After `ESC [ [`: a function key of the Linux console.
    Console,
    /// After `ESC O`.
    Ss3,
    /// So many bytes of a mouse report remain (`ESC [ M` and three).
    Mouse(u8),
    /// A string for a terminal, begun by ESC and this byte, and whether anything followed.
    Text(u8, bool),
    /// ESC in such a string: `ESC \` ends it.
    TextEscape,
    /// The first bytes of a character.
    Character(Vec<u8>),
}

/// The parser: bytes in, keys out.
#[derive(Debug, Default)]
pub struct Parser(State);

impl Parser {
    /// True while a sequence is incomplete.
    pub fn amid(&self) -> bool {
        !matches!(self.0, State::Ground)
    }

    /// Takes bytes in and returns the keys that are complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<KeyEvent> {
        let mut keys = Vec::new();
        for &byte in bytes {
            self.step(byte, &mut keys);
        }
        keys
    }

    /// Nothing more came for a while: what stands is all there is.
    pub fn silence(&mut self) -> Option<KeyEvent> {
        match std::mem::take(&mut self.0) {
            State::Escape => Some(plain(KeyCode::Esc)),
            State::Csi(bytes) if bytes.is_empty() => Some(alt('[')),
            State::Ss3 => Some(alt('O')),
            State::Text(byte, false) => Some(alt(char::from(byte))),
            _ => None,
        }
    }

    fn step(&mut self, byte: u8, keys: &mut Vec<KeyEvent>) {
        let state = std::mem::take(&mut self.0);
        // Ctrl-C gets through whatever stands before it.
        if byte == CTRL_C {
            keys.extend(control(byte));
            return;
        }
        match (state, byte) {
            (State::Text(..), ESCAPE) => self.0 = State::TextEscape,
            (State::Escape, ESCAPE) => {
                keys.push(plain(KeyCode::Esc));
                self.0 = State::Escape;
            }
            (_, ESCAPE) => self.0 = State::Escape,
            // BEL, CAN and SUB end a string; other control characters are part of it.
            (State::Text(..), 0x07 | 0x18 | 0x1a) | (State::TextEscape, b'\\') => {}
            (State::Text(introducer, _), _) => self.0 = State::Text(introducer, true),
            (State::Escape | State::TextEscape, _) => self.after_escape(byte, keys),
            (State::Ground, _) | (State::Csi(_) | State::Console | State::Ss3 | State::Mouse(_), 0..0x20 | 0x7f..) => {
                self.ground(byte, keys);
            }
            (State::Csi(bytes), _) => self.csi(bytes, byte, keys),
            (State::Console, b'A'..=b'E') => keys.push(plain(KeyCode::F(byte - b'A' + 1))),
            (State::Ss3, _) => keys.extend(letter(byte).map(plain)),
            (State::Mouse(left), _) if left > 1 => self.0 = State::Mouse(left - 1),
            (State::Console | State::Mouse(_), _) => {}
            (State::Character(bytes), _) => self.character(bytes, byte, keys),
        }
    }

    fn ground(&mut self, byte: u8, keys: &mut Vec<KeyEvent>) {
        match byte {
            0x20..=0x7e => keys.push(typed(char::from(byte))),
            0x80.. => self.character(Vec::new(), byte, keys),
            _ => keys.extend(control(byte)),
        }
    }

    fn after_escape(&mut self, byte: u8, keys: &mut Vec<KeyEvent>) {
        match byte {
            b'[' => self.0 = State::Csi(Vec::new()),
            b'O' => self.0 = State::Ss3,
            // DCS, SOS, OSC, PM, APC.
            b'P' | b'X' | b']' | b'^' | b'_' => self.0 = State::Text(byte, false),
            _ => {
                let before = keys.len();
                self.ground(byte, keys);
                for key in &mut keys[before..] {
                    key.modifiers |= KeyModifiers::ALT;
                }
            }
        }
    }

    fn csi(&mut self, mut bytes: Vec<u8>, byte: u8, keys: &mut Vec<KeyEvent>) {
        match byte {
            b'[' if bytes.is_empty() => self.0 = State::Console,
            b'M' if bytes.is_empty() => self.0 = State::Mouse(3),
            0x40.. => keys.extend(sequence(&bytes, byte)),
            _ => {
                // A longer one is no key; its end is awaited all the same.
                if bytes.len() < LONGEST {
                    bytes.push(byte);
                }
                self.0 = State::Csi(bytes);
            }
        }
    }

    /// One more byte of a character in UTF-8; what is no character is dropped.
    fn character(&mut self, mut bytes: Vec<u8>, byte: u8, keys: &mut Vec<KeyEvent>) {
        if byte < 0x80 {
            self.ground(byte, keys);
            return;
        }
        bytes.push(byte);
        match std::str::from_utf8(&bytes) {
            Ok(text) => keys.extend(text.chars().map(typed)),
            Err(error) if error.error_len().is_none() => self.0 = State::Character(bytes),
            Err(_) => {}
        }
    }
}

fn plain(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn alt(character: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(character), KeyModifiers::ALT)
}

/// A character as a key: capitals are typed with Shift.
fn typed(character: char) -> KeyEvent {
    let shift = if character.is_uppercase() {
        KeyModifiers::SHIFT
    } else {
        KeyModifiers::NONE
    };
    KeyEvent::new(KeyCode::Char(character), shift)
}

/// The key of a control character.
fn control(byte: u8) -> Option<KeyEvent> {
    let with_control = |character| Some(KeyEvent::new(KeyCode::Char(character), KeyModifiers::CONTROL));
    match byte {
        b'\t' => Some(plain(KeyCode::Tab)),
        b'\r' => Some(plain(KeyCode::Enter)),
        0x7f => Some(plain(KeyCode::Backspace)),
        0 => with_control(' '),
        0x01..=0x1a => with_control(char::from(byte - 1 + b'a')),
        0x1c..=0x1f => with_control(char::from(byte - 0x1c + b'4')),
        _ => None,
    }
}

/// Keys that end in a letter, after `ESC O` or `ESC [`.
fn letter(byte: u8) -> Option<KeyCode> {
    Some(match byte {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'P'..=b'S' => KeyCode::F(byte - b'P' + 1),
        _ => return None,
    })
}

/// Keys that have a number, before `~`: the VT220's and what came after.
fn numbered(number: u32) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F(number as u8 - 10),
        17..=21 => KeyCode::F(number as u8 - 11),
        23..=26 => KeyCode::F(number as u8 - 12),
        28..=29 => KeyCode::F(number as u8 - 15),
        31..=34 => KeyCode::F(number as u8 - 17),
        _ => return None,
    })
}

/// A key given by its character's number (kitty, xterm's modifyOtherKeys). We ask for neither, but a program before us may
/// have left them on.
fn coded(number: u32, modifiers: KeyModifiers) -> Option<KeyEvent> {
    let shift = modifiers.contains(KeyModifiers::SHIFT);
    let code = match number {
        9 if shift => KeyCode::BackTab,
        9 => KeyCode::Tab,
        13 => KeyCode::Enter,
        27 => KeyCode::Esc,
        8 | 127 => KeyCode::Backspace,
        // Keys without a character have numbers of the private use area.
        0..32 | 57_344..=63_743 => return None,
        _ => {
            let character = char::from_u32(number)?;
            KeyCode::Char(if shift {
                character.to_ascii_uppercase()
            } else {
                character
            })
        }
    };
    Some(KeyEvent::new(code, modifiers))
}

/// Shift, Alt and Control of xterm's modifier parameter (1 + bits).
fn modifiers(parameter: u32) -> KeyModifiers {
    let bits = parameter.saturating_sub(1);
    let mut out = KeyModifiers::NONE;
    for (bit, modifier) in [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
    ] {
        if bits & bit != 0 {
            out |= modifier;
        }
    }
    out
}

/// The key of a complete control sequence, if it is one.
fn sequence(parameters: &[u8], last: u8) -> Option<KeyEvent> {
    // Private parameters (`<`, `?`, `>`) belong to reports, intermediates to commands.
    if parameters.iter().any(|b| !matches!(b, b'0'..=b'9' | b';' | b':')) {
        return None;
    }
    let text = std::str::from_utf8(parameters).ok()?;
    let number =
        |field: usize, part: usize| -> Option<u32> { text.split(';').nth(field)?.split(':').nth(part)?.parse().ok() };
    let held = modifiers(number(1, 0).unwrap_or(1));
    let mut key = match last {
        b'Z' => KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT | held),
        b'~' if number(0, 0) == Some(27) => coded(number(2, 0)?, held)?,
        b'~' => KeyEvent::new(numbered(number(0, 0)?)?, held),
        b'u' => coded(number(0, 0)?, held)?,
        // A report of the cursor's place looks like F3.
        b'R' => return None,
        _ => KeyEvent::new(letter(last)?, held),
    };
    key.kind = match number(1, 1) {
        Some(2) => KeyEventKind::Repeat,
        Some(3) => KeyEventKind::Release,
        _ => KeyEventKind::Press,
    };
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("\x03\x1a\x0c\0\x1c", "C-c C-z C-l C-  C-4"),
            ("\r\t\x7f", "Enter Tab Backspace"),
            ("\x1b", "Esc"),
            ("\x1b\x1b", "Esc Esc"),
            ("\x1bx\x1b[", "A-x A-["),
            ("\x1bO", "A-O"),
            ("\x1b]", "A-]"),
            ("\x1b[A\x1bOB\x1b[1;5C\x1b[1;2D", "Up Down C-Right S-Left"),
            ("\x1b[H\x1b[4~\x1b[5~\x1b[6~\x1b[3~", "Home End PageUp PageDown Delete"),
            ("\x1bOP\x1b[[B\x1b[15~\x1b[21~", "F(1) F(2) F(5) F(10)"),
            ("\x1b[Z", "S-BackTab"),
            ("é世", "é 世"),
            ("\x1b[99;5u\x1b[103;2u\x1b[27;5;99~", "C-c S-G C-c"),
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
            b"\x1b[200~\x1b[201~",
            b"\x1b[12;40R\x1b[0;0R",
            b"\x1b[?62;4c\x1b[?1u\x1b[?2026;2$y",
            b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\",
            b"\x1b]11;rgb:1e1e/1e1e/1e1e\x07",
            b"\x1bP1+r\n436f\x1b\\",
            b"\xff\xfe\xc3(\x1b[99999999999999999999u",
        ] {
            let wanted = if bytes.contains(&b'(') { "(" } else { "" };
            assert_eq!(keys(bytes), wanted, "{:?}", String::from_utf8_lossy(bytes));
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
        ] {
            let mut parser = Parser::default();
            parser.feed(beginning.as_bytes());
            let key = parser.feed(b"\x03");
            assert_eq!(key.last(), control(CTRL_C).as_ref(), "{beginning:?} and Ctrl-C");
            parser.feed(beginning.as_bytes());
            parser.silence();
            assert_eq!(parser.feed(b"q"), [typed('q')], "{beginning:?}, silence, q");
        }
        assert_eq!(Parser::default().feed(b"\xc3q"), [typed('q')]);
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
        assert_eq!(parser.feed(b"q"), [typed('q')]);
    }
}
