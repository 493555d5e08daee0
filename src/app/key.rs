//! The notation of keys in the table of actions: how a key is written for people, and which event it is.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key as the table writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which key.
    pub code: KeyCode,
    /// Held with Control.
    pub control: bool,
}

impl Key {
    /// Reads the table's notation: a character, `^C`, `F10`, `Space`, `S-Tab`, ...
    pub fn parse(text: &str) -> Option<Key> {
        let plain = |code| Some(Key { code, control: false });
        let mut chars = text.chars();
        match (chars.next()?, chars.next()) {
            (c, None) => return plain(KeyCode::Char(c)),
            ('^', Some(c)) => {
                return Some(Key {
                    code: KeyCode::Char(c.to_ascii_lowercase()),
                    control: true,
                });
            }
            ('F', Some('0'..='9')) => return plain(KeyCode::F(text[1..].parse().ok()?)),
            _ => {}
        }
        plain(match text {
            "Space" => KeyCode::Char(' '),
            "Enter" => KeyCode::Enter,
            "Esc" => KeyCode::Esc,
            "Tab" => KeyCode::Tab,
            "S-Tab" => KeyCode::BackTab,
            "Left" => KeyCode::Left,
            "Right" => KeyCode::Right,
            "Up" => KeyCode::Up,
            "Down" => KeyCode::Down,
            "Home" => KeyCode::Home,
            "End" => KeyCode::End,
            "PgUp" => KeyCode::PageUp,
            "PgDn" => KeyCode::PageDown,
            "Del" => KeyCode::Delete,
            _ => return None,
        })
    }

    /// The key of a terminal event; Shift is already in the character.
    pub fn of(event: &KeyEvent) -> Key {
        Key {
            code: event.code,
            control: event.modifiers.contains(KeyModifiers::CONTROL),
        }
    }
}
