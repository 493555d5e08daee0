//! A screen as an SVG picture: what the README shows, and what `w` writes.

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

/// Cell size in the picture's units. The font's size below gives DejaVu Sans Mono, whose advance is 0.602 em, exactly this
/// width, so that renderers without `textLength` keep the columns too.
const CELL: (u32, u32) = (10, 20);

fn hex(colour: Color, default: &str) -> String {
    let named = |name: &str| name.to_string();
    match colour {
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Black => named("#000000"),
        Color::Red | Color::LightRed => named("#f14c4c"),
        Color::Green | Color::LightGreen => named("#23d18b"),
        Color::Yellow | Color::LightYellow => named("#f5c543"),
        Color::Blue | Color::LightBlue => named("#3b8eea"),
        Color::Magenta | Color::LightMagenta => named("#d670d6"),
        Color::Cyan | Color::LightCyan => named("#29b8db"),
        Color::Gray => named("#b8c0cc"),
        Color::DarkGray => named("#6b7380"),
        Color::White => named("#ffffff"),
        Color::Indexed(n) => indexed(n),
        Color::Reset => named(default),
    }
}

/// The colour cube and the grey ramp of the 256-colour table.
fn indexed(n: u8) -> String {
    match n {
        0..=15 => "#d8dee9".into(),
        16..=231 => {
            let level = |v: u8| if v == 0 { 0 } else { 55 + 40 * v };
            let n = n - 16;
            format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        _ => {
            let v = 8 + 10 * (n - 232);
            format!("#{v:02x}{v:02x}{v:02x}")
        }
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            ' ' => out.push('\u{a0}'),
            c => out.push(c),
        }
    }
}

/// The picture of `buf` on a dark or a light background. Runs of equal style are one text element of fixed width, so that
/// columns stay aligned in any monospace font; full and eighth blocks are drawn as rectangles.
pub fn picture(buf: &Buffer, light: bool) -> String {
    let (back, fore) = if light {
        ("#fbfbf8", "#1c2026")
    } else {
        ("#101418", "#d8dee9")
    };
    let (w, h) = (u32::from(buf.area.width) * CELL.0, u32::from(buf.area.height) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
         font-family=\"'DejaVu Sans Mono','Menlo','Consolas',monospace\" font-size=\"16.61\">\n\
         <rect width=\"{w}\" height=\"{h}\" fill=\"{back}\"/>\n"
    );
    for y in 0..buf.area.height {
        let mut x = 0;
        while x < buf.area.width {
            let cell = &buf[(buf.area.x + x, buf.area.y + y)];
            let start = x;
            let mut text = String::new();
            while x < buf.area.width {
                let next = &buf[(buf.area.x + x, buf.area.y + y)];
                if (next.fg, next.bg, next.modifier) != (cell.fg, cell.bg, cell.modifier)
                    || drawn_as(next.symbol()) != drawn_as(cell.symbol())
                {
                    break;
                }
                text.push_str(next.symbol());
                x += 1;
            }
            run(&mut out, (start, y, x - start), &text, cell, back, fore);
        }
    }
    out.push_str("</svg>\n");
    out
}

fn run(out: &mut String, (x, y, n): (u16, u16, u16), text: &str, cell: &ratatui::buffer::Cell, back: &str, fore: &str) {
    let (mut fg, mut bg) = (hex(cell.fg, fore), hex(cell.bg, back));
    if cell.modifier.contains(Modifier::REVERSED) {
        std::mem::swap(&mut fg, &mut bg);
    }
    let (px, py, pw) = (u32::from(x) * CELL.0, u32::from(y) * CELL.1, u32::from(n) * CELL.0);
    if bg != back {
        let _ = writeln!(
            out,
            "<rect x=\"{px}\" y=\"{py}\" width=\"{pw}\" height=\"{}\" fill=\"{bg}\"/>",
            CELL.1
        );
    }
    // Blanks at the ends of a text are dropped by some renderers: they are a change of place instead.
    let lead = text.chars().take_while(|c| *c == ' ').count() as u16;
    let trimmed = text.trim_matches(' ');
    if trimmed.is_empty() {
        return;
    }
    let used = trimmed.chars().count() as u16;
    let (px, pw, text) = (px + u32::from(lead) * CELL.0, u32::from(used.min(n)) * CELL.0, trimmed);
    let eighths = "▁▂▃▄▅▆▇█";
    if text.chars().all(|c| c == ' ' || eighths.contains(c)) {
        for (i, c) in text.chars().enumerate() {
            let Some(level) = eighths.chars().position(|e| e == c) else {
                continue;
            };
            let tall = CELL.1 * (level as u32 + 1) / 8;
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{tall}\" fill=\"{fg}\"/>",
                px + i as u32 * CELL.0,
                py + CELL.1 - tall,
                CELL.0
            );
        }
        return;
    }
    if text.chars().all(|c| c == ' ' || is_braille(c)) {
        dots(out, (px, py), text, &fg);
        return;
    }
    let weight = if cell.modifier.contains(Modifier::BOLD) {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let opacity = if cell.modifier.contains(Modifier::DIM) {
        " opacity=\"0.6\""
    } else {
        ""
    };
    let _ = write!(
        out,
        "<text x=\"{px}\" y=\"{}\" textLength=\"{pw}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{fg}\"{weight}{opacity}>",
        py + 15
    );
    escape(text, out);
    out.push_str("</text>\n");
}

/// How a symbol is drawn: as dots, as a rectangle, or as text.
fn drawn_as(symbol: &str) -> u8 {
    match symbol.chars().next() {
        Some(c) if is_braille(c) => 0,
        Some('▁'..='█') => 1,
        _ => 2,
    }
}

fn is_braille(c: char) -> bool {
    ('\u{2800}'..='\u{28ff}').contains(&c)
}

/// Few fonts have Braille, so its dots are drawn.
fn dots(out: &mut String, (px, py): (u32, u32), text: &str, fill: &str) {
    const PLACES: [(u32, u32); 8] = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
    for (i, c) in text.chars().enumerate().filter(|(_, c)| is_braille(*c)) {
        for (bit, (dx, dy)) in PLACES.iter().enumerate() {
            if (u32::from(c) - 0x2800) >> bit & 1 == 1 {
                let (x, y) = (px + i as u32 * CELL.0 + 1 + 5 * dx, py + 1 + 5 * dy);
                let _ = writeln!(
                    out,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"3\" height=\"3\" fill=\"{fill}\"/>"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn text_is_escaped_and_every_run_is_closed() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 12, 2));
        buf.set_string(0, 0, "a<b>&\"", Style::new().fg(Color::Rgb(1, 2, 3)));
        buf.set_string(0, 1, "▁█", Style::new());
        let svg = picture(&buf, false);
        assert!(svg.contains("a&lt;b&gt;&amp;\"") && svg.contains("#010203"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
