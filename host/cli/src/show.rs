//! Figures and tables for people.
//!
//! Owns how numbers, sizes, times and columns look. Does not own what is shown.

use std::io::Write;
use std::time::Duration;

use crate::exit::Exit;

/// Writes to standard output. A reader that has gone away has read enough.
pub fn print(text: &str) -> Exit {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(plain(text).as_bytes()).and_then(|()| out.flush());
    Exit::Done
}

/// `text` without characters that control a terminal, but for ends of lines and tabs: names come from files of strangers.
pub fn plain(text: &str) -> String {
    let controls = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if controls(c) { '\u{fffd}' } else { c }).collect()
}

/// A count with its thousands apart: `336,776`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A rate: `162k/s`, `3.1M/s`, `12/s`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.1}M/s", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0}k/s", rate / 1e3),
        rate => format!("{rate:.0}/s"),
    }
}

/// A number of bytes: `312 KiB`, `1.2 MiB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if value < 1024.0 || units.peek().is_none() {
            return if value < 10.0 && unit != "B" {
                format!("{value:.1} {unit}")
            } else {
                format!("{value:.0} {unit}")
            };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit returns")
}

/// A length of time in milliseconds: `0.4 ms`, `31 ms`, `2.5 s`.
pub fn millis(millis: f64) -> String {
    match millis {
        millis if millis < 10.0 => format!("{millis:.1} ms"),
        millis if millis < 1_000.0 => format!("{millis:.0} ms"),
        millis => format!("{:.1} s", millis / 1_000.0),
    }
}

/// A length of time in its two largest units: `45s`, `3m 20s`, `2d 4h`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| {
        if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit} {small}{small_unit}") }
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// A share: `12%`.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Rows under a head, each column as wide as its widest cell; numbers to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let right: Vec<bool> = (0..head.len())
        .map(|column| {
            let mut cells =
                rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty() && *cell != "-");
            column > 0 && cells.all(|cell| cell.starts_with(|first: char| first.is_ascii_digit()))
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &[&str]| {
        let mut shown = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let space = " ".repeat(width(column).saturating_sub(cell.chars().count()));
            let (before, after) = if right[column] { (space.as_str(), "") } else { ("", space.as_str()) };
            shown.push_str(&format!("{before}{cell}{after}  "));
        }
        text.push_str(shown.trim_end());
        text.push('\n');
    };
    line(head);
    for row in rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([0, 12, 1_234, 1_234_567].map(count), ["0", "12", "1,234", "1,234,567"]);
        assert_eq!([0, 900, 2_048, 20_000, 1 << 30].map(bytes), ["0 B", "900 B", "2.0 KiB", "20 KiB", "1.0 GiB"]);
        assert_eq!([0.4, 31.2, 2_500.0].map(millis), ["0.4 ms", "31 ms", "2.5 s"]);
        assert_eq!([5.0, 162_345.0, 3_100_000.0].map(rate), ["5/s", "162k/s", "3.1M/s"]);
        let seconds = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!([seconds(45), seconds(200), seconds(3_600), seconds(187_200)], ["45s", "3m 20s", "1h", "2d 4h"]);
    }

    #[test]
    fn what_is_shown_does_not_control_the_terminal() {
        assert_eq!(plain("a\tb\n\u{1b}[2J\r\u{7}\u{9b}ü"), "a\tb\n\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}ü");
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = vec![vec!["a".to_owned(), "10".to_owned()], vec!["long-name".to_owned(), "9".to_owned()]];
        assert_eq!(table(&["uid", "records"], &rows), "uid        records\na               10\nlong-name        9\n");
    }
}
